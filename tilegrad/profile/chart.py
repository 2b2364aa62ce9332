"""Draw line charts as SVG without external resources."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 70, 50, 30, 150
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6")
TICKS = 5


class Curve(NamedTuple):
    """A curve with a name."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False
    """Whether points are drawn, and not the line through them."""


class Scale(NamedTuple):
    """A linear or logarithmic mapping from numbers to positions on an axis."""

    low: float
    high: float
    log: bool

    def at(self, x: float) -> float:
        """Map a number to a position from 0 to 1."""
        low, high, value = (log10(v) if self.log else v for v in (self.low, self.high, x))
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        """Return the numbers to write on the axis."""
        if self.log:
            found = [10.0**n for n in range(floor(log10(self.low)), floor(log10(self.high)) + 2)]
            return [x for x in found if self.low <= x <= self.high] or [self.low, self.high]
        step = (self.high - self.low) / TICKS
        return [self.low + n * step for n in range(TICKS + 1)]


def scale(values: Sequence[float], log: bool) -> Scale:
    """Return the scale that shows all values; a linear one begins at 0 if nothing is below."""
    usable = [v for v in values if isfinite(v) and (v > 0 or not log)]
    if not usable:
        return Scale(0.1 if log else 0.0, 1.0, log)
    low, high = min(usable), max(usable)
    return Scale(low if log else min(0.0, low), high, log)


def chart(
    title: str, lines: Sequence[Curve], xlabel: str = "", ylabel: str = "", *, x_log: bool = False, y_log: bool = False
) -> str:
    """Return the chart as SVG; points that a logarithmic axis cannot show are left out."""
    points = [p for line in lines for p in line.points]
    across, up = scale([x for x, _ in points], x_log), scale([y for _, y in points], y_log)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * across.at(x), HEIGHT - BOTTOM - high * up.at(y)

    parts = [_text(WIDTH / 2, 18, title, "middle")]
    for x in across.ticks():
        at = place(x, up.low)[0]
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#8884"/>')
        parts.append(_text(at, HEIGHT - BOTTOM + 16, f"{x:.4g}", "middle"))
    for y in up.ticks():
        at = place(across.low, y)[1]
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#8884"/>')
        parts.append(_text(LEFT - 6, at + 4, f"{y:.4g}", "end"))
    parts += [_text(LEFT + wide / 2, HEIGHT - 12, xlabel, "middle"), _text(8, 18, ylabel, "start")]
    for n, line in enumerate(lines):
        colour = COLOURS[n % len(COLOURS)]
        shown = [(x, y) for x, y in line.points if isfinite(y) and (y > 0 or not y_log) and (x > 0 or not x_log)]
        places = [place(x, y) for x, y in shown]
        if line.marks:
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in places]
        else:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts.append(_text(WIDTH - RIGHT + 10, TOP + 14 + 18 * n, line.name, "start", colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="#888">\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#888") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
