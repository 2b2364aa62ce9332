"""Foreign sources, and their lines in the user's files.

A source is a file, or a string literal in a Python file. Compilers see the literal as `<source 0>`, so that cache keys
do not depend on its location. The literal is located only for compiler messages.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ArgumentError, CompileError
from ..ir.location import Location, user_location

GLUE_FILE = "<glue>"
"""File name of generated lines in compiler messages."""
SUFFIXES = {".c": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++", ".cu": "cuda"}


class SourceLine(NamedTuple):
    """A source line for display."""

    file: str
    line: int
    text: str
    shift: int = 0
    """Columns by which the line is indented further than in the source."""


class ForeignSource:
    """A source text, its file (or None), and the location of the user's call."""

    def __init__(self, text: str, path: Path | None, origin: Location | None) -> None:
        self.text = text
        self.path = path
        self.origin = origin
        self._lines: list[SourceLine] | None = None

    @property
    def language(self) -> str:
        """Return `c`, `c++` or `cuda` by file name; a text has the default language."""
        return SUFFIXES.get(self.path.suffix, "") if self.path else ""

    def place(self, line: int) -> SourceLine:
        """Return the location of a line of the source, counted from 1."""
        if self._lines is None:
            self._lines = self._located()
        if 1 <= line <= len(self._lines):
            return self._lines[line - 1]
        return (
            SourceLine(self._lines[-1].file, self._lines[-1].line, "")
            if self._lines
            else SourceLine("<source>", line, "")
        )

    def _located(self) -> list[SourceLine]:
        lines = self.text.split("\n")
        if self.path is not None:
            return [SourceLine(str(self.path), n, line) for n, line in enumerate(lines, 1)]
        found = _literal_lines(lines, self.text, self.origin) if self.origin else None
        return found or [SourceLine("<source>", n, line) for n, line in enumerate(lines, 1)]


def source(given: str | os.PathLike[str], origin: Location | None = None) -> ForeignSource:
    """Make a source from a text or file name (a Path, or a single-line text with a known suffix).

    >>> source("int f(); ").text
    'int f(); '
    """
    if isinstance(given, str) and not _names_file(given):
        return ForeignSource(given, None, origin or user_location())
    if not isinstance(given, str | os.PathLike):
        raise ArgumentError(f"a source is a text or a path, not {type(given).__name__} {given!r:.60}")
    path = Path(given).absolute()
    try:
        return ForeignSource(path.read_text(encoding="utf-8"), path, origin or user_location())
    except (OSError, UnicodeDecodeError) as problem:
        raise ArgumentError(f"{path}: the source cannot be read: {problem}") from None


def _names_file(text: str) -> bool:
    return "\n" not in text and "{" not in text and ";" not in text and os.path.splitext(text)[1] in SUFFIXES


def sources(given: object, origin: Location | None) -> list[ForeignSource]:
    """Return one or several sources."""
    many: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    if not many:
        raise ArgumentError("there is no source: give a text, a file, or a list of them")
    return [x if isinstance(x, ForeignSource) else source(x, origin) for x in many]


def _literal_lines(lines: Sequence[str], text: str, origin: Location) -> list[SourceLine] | None:
    """Locate a text as a string literal in the calling file; None if it is no literal."""
    file = "".join(linecache.getlines(origin.file))  # also of a notebook's cell
    try:
        tree = ast.parse(file)
    except (SyntaxError, ValueError):
        return _verbatim(lines, text, file, origin)
    wanted = textwrap.dedent(text).strip()
    near = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and wanted
        and textwrap.dedent(node.value).strip() == wanted
    ]  # fmt: skip
    if not near:
        return None
    node = min(near, key=lambda n: abs(n.lineno - origin.line))
    value, shown = str(node.value), file.split("\n")
    start = value[: len(value) - len(value.lstrip())].count("\n") - text[: len(text) - len(text.lstrip())].count("\n")
    plain = (node.end_lineno or 0) - node.lineno == value.count("\n")
    places = []
    for n, line in enumerate(lines):
        number = node.lineno + n + start if plain else _similar(line, shown, node)
        whole = shown[number - 1] if 0 < number <= len(shown) else ""
        at = whole.find(line.strip())
        shift = at - (len(line) - len(line.lstrip())) if line.strip() and at >= 0 else 0
        places.append(SourceLine(os.path.relpath(origin.file), number, whole, shift))
    return places


def _verbatim(lines: Sequence[str], text: str, file: str, origin: Location) -> list[SourceLine] | None:
    """Locate a text in a file that is not Python (a document)."""
    at = file.find(text) if text.strip() else -1
    if at < 0:
        return None
    first, shown = file.count("\n", 0, at) + 1, file.split("\n")
    start = at - (file.rfind("\n", 0, at) + 1)
    name = os.path.relpath(origin.file)
    return [SourceLine(name, first + n, shown[first + n - 1], start if n == 0 else 0) for n in range(len(lines))]


def _similar(line: str, shown: Sequence[str], node: ast.Constant) -> int:
    """Find the file line that most resembles a line of the text, if escapes or concatenation separate them."""
    inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return next((n for n in inside if line.strip() and line.strip() in shown[n - 1]), node.lineno)


MESSAGE_KINDS = r"(?P<kind>fatal error|error|note|warning)"
GCC_FORMAT = rf"^(?P<file><[^>]+>|[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? *{MESSAGE_KINDS}: (?P<text>.*)"
MSVC_FORMAT = (
    r"^(?P<file><[^>]+>|[^\s(][^(]*)\((?P<line>\d+)(?:,(?P<column>\d+))?\) ?: *"
    rf"{MESSAGE_KINDS}(?: #?[\w-]+)?: (?P<text>.*)"
)
"""Message formats of gcc and clang, and of NVRTC and MSVC."""
MAX_MESSAGES = 8


class CompilerMessage(NamedTuple):
    """One compiler message."""

    kind: str
    text: str
    place: SourceLine | None
    column: int

    def __str__(self) -> str:
        if self.place is None:
            return f"{self.kind}: {self.text}"
        message = f"{self.place.file}:{self.place.line}: {self.kind}: {self.text}"
        if not self.place.text.strip():
            return message
        indent = len(self.place.text) - len(self.place.text.lstrip())
        mark = self.column + self.place.shift - 1 - indent
        caret = f"\n    {' ' * mark}^" if self.column and 0 <= mark <= len(self.place.text) else ""
        return f"{message}\n    {self.place.text.strip()}{caret}"


def messages(log: str, given: Sequence[ForeignSource]) -> list[CompilerMessage]:
    """Parse compiler output and map its locations to the user's files."""
    found = []
    for line in log.splitlines():
        parts = re.match(GCC_FORMAT, line) or re.match(MSVC_FORMAT, line)
        if parts is None:
            if "undefined reference" in line or "unresolved external" in line or "undefined symbol" in line:
                found.append(CompilerMessage("error", line.rpartition(": ")[2], None, 0))
            continue
        number, column = int(parts["line"]), int(parts["column"] or 0)
        found.append(CompilerMessage(parts["kind"], parts["text"], user_line(parts["file"], number, given), column))
    return found


def user_line(file: str, line: int, given: Sequence[ForeignSource]) -> SourceLine:
    """Map a line of the compiled text to the user's file."""
    inner = re.match(r"<source (\d+)>", file)
    if inner and int(inner[1]) < len(given):
        return given[int(inner[1])].place(line)
    if file == GLUE_FILE:
        return SourceLine("the call that tilegrad makes from the signature", line, "")
    return SourceLine(os.path.relpath(file), line, _line_of_file(file, line))


def _line_of_file(file: str, number: int) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").split("\n")[number - 1]
    except (OSError, IndexError):
        return ""


HINTS = (
    ("was not declared in this scope", "a name is missing: include the header that declares it"),
    ("is undefined", "a name is missing: define it in the source"),
    ("No such file or directory", "say where headers are with include=[...]"),
    ("undefined reference", "a function is declared and defined nowhere: give its source too, or link=['-l...']"),
    ("read-only", "inputs are only read: write to the results"),
    ("assignment of read-only", "inputs are only read: write to the results"),
)


def compile_error(name: str, compiler: str, log: str, given: Sequence[ForeignSource]) -> CompileError:
    """Make the error for a compilation failure, at the user's lines."""
    said = messages(log, given)
    errors = [m for m in said if "error" in m.kind]
    shown = [m for m in said if m.kind != "warning"] if errors else said
    lines = [str(m) for m in shown[:MAX_MESSAGES]] or log.strip().splitlines()[-20:]
    if len(shown) > MAX_MESSAGES:
        lines.append(f"... and {len(shown) - MAX_MESSAGES} more")
    hint = next((hint for word, hint in HINTS if any(word in m.text for m in errors)), "")
    return CompileError(f"{name}: {compiler} refuses it\n" + "\n".join(lines) + (f"\n{hint}" if hint else ""))
