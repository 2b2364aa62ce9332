"""Print assembly for people: the inner loops, and every instruction on demand."""

from __future__ import annotations

import re
from collections.abc import Mapping

LABEL = re.compile(r"^([.\w$]+):")
JUMP = re.compile(
    r"^\s*(?:j\w+|b(?:\.\w+)?|(?:@!?U?P\w+ )?BRA(?:\.\w+)*|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\d+,)\s+([.\w$]+)\s*$"
)
DIRECTIVE = re.compile(r"^\s*(?:\.(?!L)\w+|#|//)")
COMMENT = re.compile(r"\s+(?:#|//|@).*$")


class Listing:
    """The machine code of some kernels, in print. Shows inner loops; `full` has every line, `[name]` one kernel."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def __getitem__(self, name: str) -> str:
        return cleaned(self.texts[name])

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def full(self) -> str:
        """Every instruction of every kernel."""
        return "\n\n".join(f"{name}:\n{cleaned(text)}" for name, text in self.texts.items())

    def loops(self, name: str) -> str:
        """Print the inner loops of a kernel."""
        code = cleaned(self.texts[name])
        count = sum(bool(line.strip()) and not LABEL.match(line) for line in code.split("\n"))
        found = inner_loops(code)
        head = f"{name}: {count} instructions, {len(found)} inner loop{'' if len(found) == 1 else 's'}"
        return "\n\n".join([head, *found] if found else [head, code])

    def __str__(self) -> str:
        return "\n\n".join(self.loops(name) for name in self.texts)


def cleaned(text: str) -> str:
    """Strip directives, comments and labels that nothing jumps to."""
    lines = [COMMENT.sub("", line.expandtabs(8)).rstrip() for line in text.split("\n")]
    lines = [line for line in lines if line.strip() and not DIRECTIVE.match(line)]
    targets = {m[1] for line in lines if (m := JUMP.match(line))}
    kept = [line for line in lines if not (m := LABEL.match(line)) or m[1] in targets or not m[1].startswith(".")]
    return "\n".join(kept)


def inner_loops(code: str) -> list[str]:
    r"""Find the ranges from a label to a jump back to it that contain no other such range.

    >>> print(inner_loops("f:\n  xor eax, eax\n.L1:\n  add eax, 1\n  cmp eax, 9\n  jne .L1\n  ret")[0])
    .L1:
      add eax, 1
      cmp eax, 9
      jne .L1
    """
    lines = code.split("\n")
    places = {m[1]: n for n, line in enumerate(lines) if (m := LABEL.match(line))}
    spans = []
    for n, line in enumerate(lines):
        jump = JUMP.match(line)
        if jump and places.get(jump[1], n) < n:
            spans.append((places[jump[1]], n))
    inner = [s for s in spans if not any(t != s and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
    return ["\n".join(lines[a : b + 1]) for a, b in sorted(set(inner))]
