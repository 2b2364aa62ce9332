"""Format an explanation as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ..ir.graph import Graph
from ..ir.program import Foreign, Launch, name_of
from ..ir.program_printer import peak, show_program
from . import document as html
from .diagram import fused, memory_plan, recorded
from .lines import kernels_of
from .measure import Row, cells, duration

if TYPE_CHECKING:
    from .explanation import Explanation


def page(e: Explanation) -> str:
    """Format one explanation as a whole page."""
    return pages([e])


def pages(explanations: Sequence[Explanation]) -> str:
    """Format several explanations as one page."""
    links: dict[str, str] = {}
    bodies = []
    for n, e in enumerate(explanations):
        place = f"p{n}-" if len(explanations) > 1 else ""
        parts = sections(e, place)
        if place:
            links[f"{e.name} ({n})" if n else e.name] = f"{place}top"
        else:
            links |= {title: f"{place}{name}" for name, (title, _) in parts.items()}
        inner = "\n".join(f'<h2 id="{place}{k}">{escape(title)}</h2>\n{body}' for k, (title, body) in parts.items())
        bodies.append(f'<header id="{place}top">{heading(e)}</header>\n<main>{inner}</main>')
    title = ", ".join(dict.fromkeys(e.name for e in explanations))
    return html.document(f"{title}: explained", links, "\n".join(bodies))


def heading(e: Explanation) -> str:
    whole = e.measured.whole
    facts = {
        "operations recorded": str(len(e.differentiated.values()) - len(e.differentiated.inputs)),
        "kernels": str(len(e.kernels)),
        "memory at its peak": _bytes(sum(_number(x) for x in peak(e.program))),
    }
    if whole.seconds:
        facts["a run"] = duration(whole.seconds)
    if whole.share:
        facts["of the machine's limit"] = f"{100 * whole.share:.0f} %"
    return f"<h1>{escape(e.name)} <small>on {escape(e.device.name)}</small></h1>{html.cards(facts)}"


def sections(e: Explanation, place: str = "") -> dict[str, tuple[str, str]]:
    """List the sections of a page: name, title, contents."""
    return {
        "lines": ("Your lines", lines(e, place)),
        "graph": ("Graph", graph(e)),
        "groups": ("Groups", groups(e, place)),
        "kernels": ("Kernels", kernels(e, place)),
        "program": ("Program and memory", program(e)),
        "measured": ("Measured", measured(e, place)),
    }


def lines(e: Explanation, place: str) -> str:
    """Format the user's source, each line with its kernels."""
    rows, file = [], ""
    for line in e.lines:
        if line.place.file != file:
            file = line.place.file
            rows.append(f'<tr><td></td><td class="c">{escape(str(line.place).rpartition(":")[0])}</td><td></td></tr>')
        chips = "".join(html.chip(n, place) for n in line.kernels)
        rows.append(f"<tr><td>{line.place.line}</td><td>{html.coloured(line.text)}</td><td>{chips}</td></tr>")
    if not rows:
        return '<p class="soft">The source is not at hand.</p>'
    return f'<div class="scroll"><table class="lines">{"".join(rows)}</table></div>'


def graph(e: Explanation) -> str:
    """Format the recorded graph, the fused graph, and each pass."""
    computed = kernels_of(e.simplified, e.groups)
    names = [name_of(launch) for launch in e.kernels.launches]
    before, after = recorded(e.simplified, computed), fused(e.simplified, e.groups, computed, names)
    parts = [
        "<p>First the operations, then the kernels into which they were fused; a colour is a kernel.</p>",
        f'<div class="pair"><figure>{before}</figure><figure>{after}</figure></div>',
        html.folded(f"as it was recorded: {_size(e.graph)}", html.code(e.graph)),
    ]
    if e.differentiated is not e.graph:
        title = f"differentiated: {_size(e.differentiated)}, with what is computed from gradients"
        parts.append(html.folded(title, html.code(e.differentiated)))
    for stage in e.passes:
        if stage.changed:
            title = f"after {stage.name}: {_size(stage.artifact)} ({duration(stage.seconds)})"
            parts.append(html.folded(title, html.code(stage.artifact)))
        else:
            parts.append(f'<p class="soft">{escape(stage.name)}: unchanged ({duration(stage.seconds)})</p>')
    return "\n".join(parts)


def _size(graph: object) -> str:
    return f"{len(graph.values()) - len(graph.inputs)} operations" if isinstance(graph, Graph) else ""


def groups(e: Explanation, place: str) -> str:
    """Format the groups, and why neighbours were not fused."""
    names = e.schedule.names()
    number = {m.value: n for n, g in enumerate(e.groups) for m in g.members}
    parts = [f"<p>{html.chip(n, place)}</p>{html.code(g.text(names))}" for n, g in enumerate(e.groups)]
    shown = html.folded(f"{len(parts)} groups in the scalar language", "\n".join(parts), len(parts) <= 6)
    pairs = {(p, number[c], reason): None for p, c, reason in e.schedule.apart if p in names and c in number}
    rows = [(html.chip(number[p], place) + escape(names[p]), html.chip(c, place), escape(r)) for p, c, r in pairs]
    if not rows:
        return shown + '<p class="soft">No neighbours stayed apart.</p>'
    return shown + "<h3>Why these were not fused</h3>" + html.table(("made", "read by", "reason"), rows)


def kernels(e: Explanation, place: str) -> str:
    """Format each kernel as source, with its machine code."""
    parts = []
    rows = e.measured.rows
    steps = [n for n, s in enumerate(s for s in e.program.steps if isinstance(s, Launch | Foreign))]
    for text, (numbers, launch) in e.kernels.distinct().items():
        anchors = "".join(f'<span id="{place}kernel-{n}"></span>' for n in numbers)
        chips = "".join(html.chip(n, place) for n in numbers)
        times = ", ".join(duration(rows[n].seconds) for n in numbers if n < len(steps) and rows[n].seconds)
        parts.append(f'{anchors}<h3>{chips}{escape(name_of(launch))} <span class="soft">{times}</span></h3>')
        parts.append(html.code(text))
        if isinstance(launch, Foreign):
            continue
        if launch.kernel.name in e.assembly.texts:
            parts.append(html.folded("inner loops", html.code(e.assembly.loops(launch.kernel.name), False)))
            parts.append(html.folded("all of the assembly", html.code(e.assembly[launch.kernel.name], False)))
        source = e.device.source(launch.kernel)
        if source:
            parts.append(html.folded("what the backend wrote", html.code(source, False)))
    return "\n".join(parts)


def program(e: Explanation) -> str:
    """Format the steps of the program and its memory plan."""
    caption = "Temporaries: downwards their place in the arena, to the right the steps during which they are needed."
    return f"<figure>{memory_plan(e.program)}<figcaption>{caption}</figcaption></figure>" + html.code(
        show_program(e.program)
    )


def measured(e: Explanation, place: str) -> str:
    """Format times with the machine's limits."""
    head = ("", "kernel", "time", "GB/s", "GFLOP/s", "of the limit", "", "bound by")
    shown = {n for numbers, _ in e.kernels.distinct().values() for n in numbers}
    rows = [_row(row, html.chip(row.number, place) if row.number in shown else "") for row in e.measured.rows]
    rows.append(_row(e.measured.whole, ""))
    note = (
        f"Medians of {e.measured.runs} runs on copies of the arguments. Bytes and operations are those that are needed "
        "at least; the limit is the shorter of what memory and arithmetic units were measured to allow."
    )
    note = e.measured.advice if not e.measured.runs else f"{note} {e.measured.advice}"
    return html.table(head, rows, (2, 3, 4, 5)) + f'<p class="soft">{escape(note)}</p>'


def _row(row: Row, sign: str) -> tuple[str, ...]:
    name, time, bandwidth, speed, share, bound = map(escape, cells(row))
    return (sign, name, time, bandwidth, speed, share, html.bar(row.share) if row.share else "", bound)


def _number(x: object) -> int:
    return x if isinstance(x, int) else 0


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
