"""Draw graphs in layers, and memory over time, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from ..ir.graph import Graph, Value
from ..ir.program import Buffer, Program
from ..ir.size import Size, known
from ..schedule.group import Group
from .document import hue

LETTER, HEIGHT, GAP, STEP, MARGIN = 6.7, 22, 14, 46, 40
MAX_ROW_PX, HALF_PAGE_PX = 1080, 540
"""Largest width of a row, in pixels: a wider one is broken. Two drawings of half a page are placed side by side."""
MAX_NODES = 600
"""Largest number of nodes that are drawn; a larger drawing cannot be read."""


class Box(NamedTuple):
    """A node of a drawing: `colour` is the number of a kernel, None for an input; `reads` are other boxes."""

    label: str
    title: str
    colour: int | None
    reads: tuple[int, ...]


def recorded(graph: Graph, kernels: Mapping[Value, Sequence[int]]) -> str:
    """Draw the values of a graph, each in the colour of the kernel that computes it."""
    given, names = set(graph.inputs), graph.names()
    values = [v for v in dict.fromkeys([*graph.inputs, *graph.values()]) if v in given or v.inputs]  # no constants
    number = {v: n for n, v in enumerate(values)}
    boxes = []
    for v in values:
        leaf = v in given
        title = f"{names[v]}: {v.type}" + (f" ({v.location})" if v.location and not leaf else "")
        reads = () if leaf else tuple(dict.fromkeys(number[x] for x in v.inputs if x in number))
        boxes.append(
            Box(names[v] if leaf else v.op, title, None if leaf else next(iter(kernels.get(v, ())), -1), reads)
        )
    return layered(boxes)


def fused(
    graph: Graph, groups: Sequence[Group], kernels: Mapping[Value, Sequence[int]], titles: Sequence[str] = ()
) -> str:
    """Draw the kernels of a graph, and the tensors in memory between them."""
    boxes = [Box(names, str(x.type), None, ()) for x, names in graph.names().items() if x in set(graph.inputs)]
    place = {x: n for n, x in enumerate(graph.inputs)}
    maker = {v: len(boxes) + n for n, g in enumerate(groups) for v in g.stored}
    for n, group in enumerate(groups):
        inside = [v.op for v in graph.values() if n in kernels.get(v, ())]
        title = f"kernel {n}: {', '.join(inside)}"
        read = group.stored[0].inputs if group.kind == "opaque" else group.reads()
        reads = sorted({place[x] if x in place else maker[x] for x in read if x in place or x in maker})
        count = f" ({len(inside)} ops)" if len(inside) > 1 else ""
        name = titles[n] if n < len(titles) else group.stored[-1].op
        boxes.append(Box(f"{n} {name}{count}", title, n, tuple(r for r in reads if r != len(boxes))))
    return layered(boxes)


def layered(boxes: Sequence[Box]) -> str:
    """Arrange boxes from top to bottom, each below all that it reads."""
    if len(boxes) > MAX_NODES:
        return f'<p class="soft">{len(boxes)} boxes are too many to draw.</p>'
    level = [0] * len(boxes)
    for n in _by_reads(boxes):
        level[n] = max((level[r] + 1 for r in boxes[n].reads), default=0)
    for n, box in enumerate(boxes):  # what is given stands right above those who read it
        readers = [level[m] for m, other in enumerate(boxes) if n in other.reads]
        if not box.reads and readers:
            level[n] = min(readers) - 1
    least = min(level, default=0)
    rows: list[list[int]] = [[] for _ in range(max(level, default=0) - least + 1)]
    for n in range(len(boxes)):
        rows[level[n] - least].append(n)
    return _drawn(boxes, [part for row in rows for part in _broken(boxes, row)])


def _broken(boxes: Sequence[Box], row: list[int]) -> list[list[int]]:
    """Break a row that is too wide into several; inputs come first."""
    wide = 0.0
    parts: list[list[int]] = [[]]
    for n in sorted(row, key=lambda n: bool(boxes[n].reads)):
        wide += _width(boxes[n]) + GAP
        if wide > MAX_ROW_PX and parts[-1]:
            wide = _width(boxes[n]) + GAP
            parts.append([])
        parts[-1].append(n)
    return parts


def _width(box: Box) -> float:
    return max(34.0, len(box.label) * LETTER + 14)


def _by_reads(boxes: Sequence[Box]) -> list[int]:
    order: list[int] = []
    done: set[int] = set()
    stack = [(n, False) for n in reversed(range(len(boxes)))]
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
        elif n not in done:
            done.add(n)
            stack.append((n, True))
            stack.extend((r, False) for r in boxes[n].reads)
    return order


def _drawn(boxes: Sequence[Box], rows: list[list[int]]) -> str:
    width = [_width(b) for b in boxes]
    middle = dict.fromkeys(range(len(boxes)), 0.0)
    for row in rows:  # near the middle of what is read
        row.sort(key=lambda n: sum(middle[r] for r in boxes[n].reads) / len(boxes[n].reads) if boxes[n].reads else 0.0)
        whole = sum(width[n] + GAP for n in row) - GAP
        left = -whole / 2
        for n in row:
            middle[n] = left + width[n] / 2
            left += width[n] + GAP
    shift = -min((middle[n] - width[n] / 2 for n in middle), default=0.0) + 4
    total = max((middle[n] + width[n] / 2 for n in middle), default=0.0) + shift + MARGIN
    top = {n: 4 + y * STEP for y, row in enumerate(rows) for n in row}
    parts = []
    for n, box in enumerate(boxes):
        for r in box.reads:
            x, y, u, v = middle[r] + shift, top[r] + HEIGHT, middle[n] + shift, top[n]
            past = min(MARGIN, (v - y) / 8) if v - y > STEP else 0.0  # beside the boxes between, not through them
            bend = f"C{x + past:.0f} {y + 16} {u + past:.0f} {v - 16} {u:.0f} {v}"
            parts.append(f'<path class="edge" d="M{x:.0f} {y}{bend}"/>')
    for n, box in enumerate(boxes):
        style = 'class="leaf"' if box.colour is None else f'class="box" style="--hue:{hue(box.colour)}"'
        x = middle[n] + shift
        parts.append(
            f"<g><title>{escape(box.title)}</title>"
            f'<rect {style} x="{x - width[n] / 2:.1f}" y="{top[n]}" width="{width[n]:.1f}" height="{HEIGHT}" rx="5"/>'
            f'<text x="{x:.1f}" y="{top[n] + 15}" text-anchor="middle">{escape(box.label)}</text></g>'
        )
    return svg(total, len(rows) * STEP, "".join(parts), "wide" if total > HALF_PAGE_PX else "")


def svg(width: float, height: float, inside: str, style: str = "") -> str:
    """Wrap a drawing. The style "fit" shrinks it to the available width, "wide" gives it a line of its own."""
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<svg class="{style}" {size} role="img">{inside}</svg>'


def memory_plan(program: Program) -> str:
    """Draw the address range of each temporary in the arena (downwards) over its lifetime in steps (to the right)."""
    placed = [b for b in program.buffers if b.offset is not None]
    if not placed:
        return '<p class="soft">There are no temporaries.</p>'
    if isinstance(program.arena, Size) or any(isinstance(b.offset, Size) for b in placed):
        return '<p class="soft">The plan depends on sizes that vary; the offsets stand in the list.</p>'
    used: dict[str, list[int]] = {}
    for n, step in enumerate(program.steps):
        for name in _names(step):
            used.setdefault(name, []).append(n)
    across = max(14.0, min(60.0, 900 / len(program.steps)))
    tall = 220
    parts = []
    for n in range(len(program.steps) + 1):
        parts.append(f'<line class="grid" x1="{n * across:.1f}" y1="0" x2="{n * across:.1f}" y2="{tall}"/>')
    scale = tall / (program.arena or 1)
    for b in placed:
        steps = used.get(b.name)
        if steps is not None:
            x, wide = steps[0] * across, (steps[-1] - steps[0] + 1) * across
            parts.append(_place(b, steps, x, wide, scale))
    parts += [
        f'<text class="soft" x="{n * across + 3:.1f}" y="{tall + 14}">{n}</text>' for n in range(len(program.steps))
    ]
    return svg(len(program.steps) * across + 2, tall + 18, "".join(parts))


def _place(b: Buffer, steps: Sequence[int], x: float, wide: float, scale: float) -> str:
    """Draw one temporary of the plan."""
    y, high = scale * known(b.offset or 0, {}), scale * known(b.type.bytes, {})
    title = f"{b.name}: {b.type}, {b.type.bytes} bytes at {b.offset}, steps {steps[0]}-{steps[-1]}"
    box = f'x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{max(2.0, high - 1):.1f}" rx="3"'
    name = escape(b.name[: int(wide / LETTER)])
    text = f'<text x="{x + 5:.1f}" y="{y + 12:.1f}">{name}</text>' if high > 14 else ""
    return f'<g><title>{escape(title)}</title><rect class="box" style="--hue:{hue(steps[0])}" {box}/>{text}</g>'


def _names(step: object) -> list[str]:
    arguments = getattr(step, "arguments", None) or (getattr(step, "source", None), getattr(step, "target", None))
    return [a for a in arguments if isinstance(a, str)]
