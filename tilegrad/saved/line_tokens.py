"""Read one line of a network: names, sizes, types, literals, structures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ..errors import CheckpointError
from ..ir.dtype import DType, dtype_named
from ..ir.graph import TensorType
from ..ir.size import Dim, Size
from ..tree import NOTHING, Tree
from .op_classes import CHECKS, MAX_EXTENT, WINDOW_CLASSES

TOKEN = re.compile(
    r"""\s*(?:(?P<word>@?"(?:[^"\\]|\\.)*"|[%$]?(?:\d+\.)*[A-Za-z_]\w*(?:\.\w+)*|%\d+)"""
    r"""|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|-inf|-nan)|(?P<mark>->|!=|[][(){},:=*+@-]))""",
    re.ASCII,
)
MAX_NESTING = 16
MAX_DIGITS = 20
DTYPES = re.compile(r"(float|int|uint|bfloat)\d+(_\w+)?|bool", re.ASCII)
CONSTANTS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
WORDS = frozenset(CONSTANTS)


class LineTokens:
    """The tokens of one line."""

    def __init__(self, text: str, fail: Callable[[str], CheckpointError]) -> None:
        self.fail = fail
        self.tokens: list[tuple[str, str]] = []
        self.place = 0
        at, text = 0, text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                if text[at:].lstrip().startswith("#"):
                    break
                raise fail(f"has no meaning from {text[at : at + 20]!r} on")
            self.tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()

    def __bool__(self) -> bool:
        return self.place < len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.place + ahead][1] if self.place + ahead < len(self.tokens) else ""

    def next(self) -> tuple[str, str]:
        if not self:
            raise self.fail("ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def take(self, mark: str) -> bool:
        if self.peek() != mark:
            return False
        self.place += 1
        return True

    def want(self, mark: str) -> None:
        if not self.take(mark):
            raise self.fail(f"has {self.peek() or 'nothing'!r} where {mark!r} is wanted")

    def word(self) -> str:
        kind, text = self.next()
        if kind != "word":
            raise self.fail(f"has {text!r:.40} where a name is wanted")
        return json.loads(text.removeprefix("@")) if text[0] in '@"' else text

    def listed(self, end: str, part: Callable[[], Any]) -> tuple[list[Any], bool]:
        """Read parts up to the closing bracket; return them, and whether a comma came last."""
        found: list[Any] = []
        comma = False
        while not self.take(end):
            if found and not comma:
                raise self.fail(f"lacks {end!r} or a comma before {self.peek() or 'its end'!r:.40}")
            found.append(part())
            comma = self.take(",")
        return found, comma

    # -- sizes, types, literals

    def size(self) -> Dim:
        total: Dim = self.term()
        while self.take("+"):
            total = total + self.term()
        return total

    def term(self) -> Dim:
        made: Dim = 1
        while True:
            kind, text = self.next()
            if kind == "number":
                made = made * self.integer(text)
            elif kind == "word" and text[0] not in '@"%$':
                made = made * Size.named(text)
            else:
                raise self.fail(f"has {text!r:.40} where a size is wanted")
            if not self.take("*"):
                return made

    def integer(self, text: str) -> int:
        if len(text) > MAX_DIGITS or not re.fullmatch(r"-?\d+", text) or abs(int(text)) > MAX_EXTENT:
            raise self.fail(f"has {text:.40}, which is no size")
        return int(text)

    def dtype(self) -> DType:
        name = self.word()
        try:
            if not DTYPES.fullmatch(name):
                raise KeyError(name)
            return dtype_named(name)
        except KeyError:
            raise self.fail(f"has the unknown type {name!r:.40}") from None

    def type(self) -> TensorType:
        dtype = self.dtype()
        self.want("[")
        shape, _ = self.listed("]", self.size)
        device = self.word() if self.take("@") else "cpu"
        made = TensorType(dtype, tuple(shape), device)
        if not CHECKS["TensorType"](made):
            raise self.fail("has a type that is too large, or with a negative extent")
        return made

    def literal(self, depth: int = 0) -> Any:
        if depth > MAX_NESTING:
            raise self.fail(f"is nested more than {MAX_NESTING} deep")
        if self.take("("):
            parts, comma = self.listed(")", lambda: self.literal(depth + 1))
            return parts[0] if len(parts) == 1 and not comma else tuple(parts)
        text = self.peek()
        if text[:1] == '"':
            return self.word()
        if text in CONSTANTS:
            self.next()
            return CONSTANTS[text]
        if text in ("-inf", "-nan") or re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)|-?\d+\.\d+", text):
            self.next()
            return float(text)
        if text in WINDOW_CLASSES and self.peek(1) == "(":
            self.next(), self.next()
            return WINDOW_CLASSES[text](**dict(self.listed(")", self.setting)[0]))
        if DTYPES.fullmatch(text):
            return self.type() if self.peek(1) == "[" else self.dtype()
        return self.size()

    def setting(self) -> tuple[str, Any]:
        name = self.word()
        self.want("=")
        return name, self.literal(1)

    def structure(self, leaf: Callable[[], Tree], depth: int = 0) -> Tree:
        if depth > MAX_NESTING:
            raise self.fail(f"is nested more than {MAX_NESTING} deep")
        if self.take("None"):
            return NOTHING
        if self.take("{"):
            pairs, _ = self.listed("}", lambda: (self.key(), self.structure(leaf, depth + 1)))
            keys = tuple(key for key, _ in pairs)
            if len(set(keys)) < len(keys):
                raise self.fail("has a key twice")
            return Tree(dict, keys, tuple(part for _, part in pairs))
        for begin, end, kind in (("(", ")", tuple), ("[", "]", list)):
            if self.take(begin):
                return Tree(kind, (), tuple(self.listed(end, lambda: self.structure(leaf, depth + 1))[0]))
        return leaf()

    def key(self) -> Any:
        found = self.literal(1)
        if type(found) not in (str, int):
            raise self.fail(f"has the key {found!r:.40}")
        self.want(":")
        return found
