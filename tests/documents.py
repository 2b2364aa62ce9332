"""Reading the documents: the blocks that they tell people to type.

    ```python              run here, with the names of the blocks before it; `>>>` makes it a doctest
    ```python train.py     written to this file; `train.py, at its end` is added to it
    ```console             each line `$ command` is run by a shell; what follows is its output
    ```text                directly after a python block: what the block prints

Outputs are compared where they are given; `...` stands for anything. A first line of words after the
language says why a block is not run here: `skip: needs a GPU`, or `ci`, if .ci/run types it. A block that
`needs PyTorch` is run where that is installed.

A document that says `<!-- typed in a copy of the repository -->` is typed in one: its files may be part of the
package, and its commands see them. `pytest --update-golden` puts what is printed now into the blocks that differ
(read the diff, above all around `...`); where a document prints its own line numbers, run it twice.
"""

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\S*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a document."""

    path: Path
    line: int
    language: str
    note: str
    text: str
    follows: bool
    """Whether nothing but blank lines stands between it and the block before."""

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def in_a_copy(path: Path) -> bool:
    """Whether a document wants to be typed in a copy of the repository."""
    return "<!-- typed in a copy of the repository -->" in path.read_text()


def written(path: Path, printed: dict[int, str]) -> str:
    """The document with other texts in the blocks that begin at some lines."""
    lines = path.read_text().split("\n")
    for block in reversed(blocks(path)):
        if block.line in printed:
            length = block.text.count("\n")
            lines[block.line : block.line + length] = printed[block.line].strip("\n").split("\n")
    return "\n".join(lines)


def abridged(old: str, new: str) -> str:
    """The lines of a new output that stand where those of an old one did, which leaves some out.

    After each `...` the text goes on where the new output looks, numbers aside, as the old one did.

    >>> print(abridged("a 1\\n...\\nb 2\\nc", "a 3\\nx\\ny\\nb 4\\nd\\ne"))
    a 3
    ...
    b 4
    d
    """
    parts = re.split(r"^\.\.\.$", old, flags=re.MULTILINE)
    if len(parts) == 1:
        return new
    lines, at = new.split("\n"), 0
    made = ""
    for part in parts:
        wanted = part.strip("\n").split("\n") if part.strip() else []
        found = _place(wanted[0], lines, at) if wanted else len(lines)
        made += "...\n" if any(lines[at:found]) else "\n" * (found - at)
        now = lines[found : found + len(wanted)]
        at = found + len(now)
        made += "".join(f"{a if _fits(a, b) else b}\n" for a, b in zip(wanted, now, strict=False))
    return made.strip("\n")


def _place(line: str, lines: list[str], start: int) -> int:
    """Find a line, or one that resembles it, from a line on."""
    begin = line.partition("...")[0]
    exact = [n for n in range(start, len(lines)) if lines[n].startswith(begin)]
    similar = [n for n in range(start, len(lines)) if _numberless(lines[n]).startswith(_numberless(line))]
    return (exact + similar + [start])[0]


def _fits(line: str, now: str) -> bool:
    """Whether a line with something left out still says what is so."""
    parts = [re.escape(part) for part in line.split("...")]
    return len(parts) > 1 and re.fullmatch(".*".join(parts), now) is not None


def _numberless(line: str) -> str:
    return re.sub(r"\d+", "#", line.partition("...")[0]).rstrip()


class Command(NamedTuple):
    """A line to type in a shell, and what it should print (None: not said)."""

    line: str
    output: str | None


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        language, note, body = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        found.append(
            Block(path, line, language, note.strip(), body, bool(found) and not text[end : match.start()].strip())
        )
        end = match.end()
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.split("\n")
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        output = "\n".join(lines[count:]).strip("\n")
        found.append(Command("\n".join(lines[:count]), output or None))
    return found
