"""Build self-contained HTML pages: no script, no font, no link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("page.css")

TOKENS = re.compile(
    r"(?P<c>#[^\n]*)|(?P<s>\"[^\"\n]*\")|(?P<k>\b(?:def|for|in|if|else|while|return|range|let|store|group|over|along)\b)"
    r"|(?P<f>\b(?:tl|tg)\.\w+|@tg\.kernel)|(?P<d>(?<![\w.])-?\d[\d.]*(?:e[-+]?\d+)?\b)"
)


def document(title: str, sections: Mapping[str, str], body: str, note: str = "") -> str:
    """Build a whole page. `sections` maps the words of the navigation to anchors."""
    links = "".join(f'<a href="#{place}">{escape(words)}</a>' for words, place in sections.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<nav><div>{links}</div></nav>
{body}
<footer>{escape(note or "Written by tilegrad; this file needs nothing but itself.")}</footer>
</body>
</html>
"""


def code(text: object, colour: bool = True) -> str:
    """Format a block of source."""
    return f"<pre>{coloured(str(text)) if colour else escape(str(text))}</pre>"


def coloured(text: str) -> str:
    """Highlight the tokens of source.

    >>> coloured("x = tl.load(p)  # <here>")
    'x = <span class="f">tl.load</span>(p)  <span class="c"># &lt;here&gt;</span>'
    """
    parts, end = [], 0
    for match in TOKENS.finditer(text):
        parts += [
            escape(text[end : match.start()], quote=False),
            f'<span class="{match.lastgroup}">{escape(match[0], quote=False)}</span>',
        ]
        end = match.end()
    return "".join([*parts, escape(text[end:], quote=False)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Format a table of HTML cells; the columns `numbers` are aligned to the right."""
    marks = [' class="n"' if n in numbers else "" for n in range(len(head))]
    top = "".join(f"<th{m}>{escape(h)}</th>" for h, m in zip(head, marks, strict=True))
    lines = "\n".join(
        "<tr>" + "".join(f"<td{m}>{cell}</td>" for cell, m in zip(row, marks, strict=True)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>'


def cards(facts: Mapping[str, str]) -> str:
    """Format large figures with their captions."""
    shown = "".join(f'<div class="card"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in facts.items())
    return f'<div class="cards">{shown}</div>'


def folded(title: str, inside: str, shown: bool = False) -> str:
    """Format a section that is collapsed at first."""
    return f"<details{' open' if shown else ''}><summary>{escape(title)}</summary>\n{inside}\n</details>"


def bar(share: float) -> str:
    """Draw a fraction of 1 as a bar."""
    return f'<span class="bar"><i style="width:{100 * min(1.0, max(0.0, share)):.0f}%"></i></span>'


def chip(number: int, place: str = "") -> str:
    """Format the label of a kernel, in its colour, as a link to it."""
    return f'<a class="chip" style="--hue:{hue(number)}" href="#{place}kernel-{number}">{number}</a>'


def hue(number: int) -> int:
    """Return a colour for each kernel; those of neighbours differ strongly."""
    return (20 + number * 137) % 360
