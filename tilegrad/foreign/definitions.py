"""Scan C++ or CUDA sources for function definitions: names, return types, parameters.

The scanner only understands blocks, brackets and words, enough to call functions by their parameter names. The compiler
rejects what it misreads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

NO_FUNCTIONS = frozenset({"if", "for", "while", "switch", "catch", "else", "do", "return", "sizeof", "alignas"})
BETWEEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|R\"\((?:.*?)\)\"", re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
HEAD = re.compile(r"(?P<result>.*?)(?P<name>[A-Za-z_]\w*)\s*$", re.DOTALL)


class DefinedParameter(NamedTuple):
    """A parameter: its type as written, and its name."""

    type: str
    name: str


class Definition(NamedTuple):
    """A function at namespace scope."""

    name: str
    result: str
    parameters: tuple[DefinedParameter, ...]
    line: int

    @property
    def takes_call(self) -> bool:
        """Whether its only parameter is a `tg_call`."""
        return len(self.parameters) == 1 and "tg_call" in self.parameters[0].type

    @property
    def is_kernel(self) -> bool:
        return "__global__" in self.result

    @property
    def returns(self) -> bool:
        """Whether it returns a value."""
        return re.search(r"\bvoid\s*$", self.result) is None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{p.type} {p.name}'.strip() for p in self.parameters)})"


def without_comments(text: str) -> str:
    """Blank comments, string literals and preprocessor lines; positions stay the same."""
    return PREPROCESSOR.sub(_blank, BETWEEN.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def definitions(text: str) -> dict[str, Definition]:
    """Find the functions defined at the top level, in namespaces, or in `extern "C"`.

    >>> found = definitions('''
    ... template <class T> struct Pair { T x; void swap() {} };
    ... static inline float twice(float x) { return x + x; }
    ... extern "C" void scale(const float *x, float *out, long n) { for (;;) {} }''')
    >>> [str(d) for d in found.values()]
    ['twice(float x)', 'scale(const float * x, float * out, long n)']
    """
    plain = without_comments(text)
    found: dict[str, Definition] = {}
    start = at = 0
    while at < len(plain):
        c = plain[at]
        if c == "{":
            head = plain[start:at]
            if "(" not in head and re.search(r"\bnamespace\b|\bextern\b", head):
                start = at = at + 1
                continue
            made = _definition(head, plain, start)
            if made is not None:
                found.setdefault(made.name, made)
            at = _closing(plain, at)
            start = at
            continue
        if c in ";}":
            start = at + 1
        at += 1
    return found


def _closing(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at a position."""
    depth = 0
    for n in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[n], 0)
        if depth == 0:
            return n + 1
    return len(text)


def _definition(head: str, text: str, start: int) -> Definition | None:
    end = head.rfind(")")
    if end < 0 or re.search(r"[=\[]\s*$", head):
        return None
    depth, begin = 0, end
    for begin in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(head[begin], 0)
        if depth == 0:
            break
    named = HEAD.fullmatch(head[:begin])
    if named is None or named["name"] in NO_FUNCTIONS or not named["result"].strip():
        return None
    result = re.sub(r"\btemplate\s*<[^>]*>|\bextern\b|\bTG_EXPORT\b|\binline\b|\bstatic\b", " ", named["result"])
    line = text.count("\n", 0, start + len(named["result"])) + 1
    return Definition(named["name"], " ".join(result.split()), tuple(_parameters(head[begin + 1 : end])), line)


def _parameters(text: str) -> Sequence[DefinedParameter]:
    parts, depth, part = [], 0, ""
    for c in text:
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    parts.append(part)
    taken = []
    for part in parts:
        declared = " ".join(part.partition("=")[0].split())
        if declared in ("", "void"):
            continue
        array = re.sub(r"\[[^\]]*\]\s*$", "", declared)
        named = re.fullmatch(r"(.*[\s*&>])(\w+)", array.strip())
        star = " *" if array != declared else ""
        taken.append(DefinedParameter(named[1].strip() + star, named[2]) if named else DefinedParameter(declared, ""))
    return taken
