"""Describe an explanation for the viewer (`viewer/model.py`): nodes, lines, kernels, passes, memory."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..ir.graph import Graph, Value
from ..ir.program import Launch
from ..ir.program_printer import peak, show_step
from ..ir.size import known
from ..ops.broadcasting import Expand, Fill, Reduction
from ..ops.cast import Bitcast, Cast, Detach
from ..ops.control import Where
from ..ops.creation import Iota
from ..ops.movement import Slice
from ..runtime.bounds import operations_per_second
from ..schedule.group import Group
from ..transform.pipeline import PASSES
from ..viewer.launches import computing_steps, memory_of, title_of
from ..viewer.model import Line, PageKernel, PageMemory, PageNode, PagePass, PageStep, Phase, Role, clipped, page_of
from ..viewer.page import json_text, page
from .files import write_whole
from .limit import launch_seconds
from .lines import FileLine, kernel_numbers, kernels_of
from .listing import cleaned, inner_loops
from .measure import Row, duration
from .memory import labels_of
from .shares import Share, shares_of

if TYPE_CHECKING:
    from .explanation import Explanation

LOW_SHARE = 0.3
"""Fraction of the limit below which a kernel gets a hint."""
MAX_CODES = 40
"""Kernels, the slowest first, whose source and machine code a page has: each is compiled again for it."""
LEFT_OUT = f"left out: the page has the machine code of the {MAX_CODES} slowest kernels"
MAX_OPERATIONS = 3
"""Operations that a kernel's title names."""
WORDS = {"contract": "matmul", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negate"}
"""Names of operations in titles and sentences, where they differ from those of the graph."""
SILENT = (Bitcast, Cast, Detach, Expand, Fill, Iota, Slice, Where)
"""Operations that move, convert or select elements: titles do not name them."""
STAGES = {
    "graph": "Records the operations that the function asked for, gradients included.",
    "fuse": "Groups operations so that each group is one kernel, and values within it stay out of memory.",
    "order": "Orders the kernels so that few temporaries live at the same time.",
    "program": "Makes a tile kernel of each group, and gives temporaries their places in one block of memory.",
    "expand": "Replaces declared operators by the operations that they are made of.",
    "hoist_constants": "Moves what depends on seldom changing inputs to a program of its own.",
    "rematerialise": "Computes values again instead of keeping them, to fit into the memory budget.",
    "replace": "Puts kernels that were edited by hand in the place of generated ones.",
}
"""Sentences for the stages that are not passes of `transform/`."""


def step_of(e: Explanation) -> PageStep:
    """Describe one explanation."""
    return _Described(e).step()


def save(path: str | Path, explanations: Sequence[Explanation]) -> Path:
    """Write explanations as one page, or as the page's data if the name ends in `.json`."""
    title = ", ".join(dict.fromkeys(e.name for e in explanations))
    data = page_of(f"{title}: explained", steps=[step_of(e) for e in explanations])
    return write_whole(path, json_text(data) if Path(path).suffix == ".json" else page(data))


class _Described:
    """The tables of one explanation."""

    def __init__(self, e: Explanation) -> None:
        self.e = e
        self.graph = e.simplified
        self.kernels = kernels_of(self.graph, e.groups)
        self.labels = dict(zip(self.graph.inputs, labels_of(e._inputs()), strict=False))
        self.given = _argument_names(e)
        given = set(self.graph.inputs)
        self.values = [
            v for v in dict.fromkeys([*self.graph.inputs, *self.graph.values()]) if v in given or v.inputs
        ]  # constants are left out
        self.number = {v: n for n, v in enumerate(self.values)}
        self.phases = _phases(self.graph)
        self.steps = computing_steps(e.program)
        rows = enumerate(e.measured.rows)
        self.slowest = {n for n, row in sorted(rows, key=lambda pair: -pair[1].seconds)[:MAX_CODES]}
        self.shares = shares_of(e, e.sizes)
        self.names = e.compiled.stages["order"].artifact.names()  # type: ignore[attr-defined]
        self.lines = self._lines()
        self.places = {(line["file"], line["number"]): n for n, line in enumerate(self.lines)}

    def step(self) -> PageStep:
        e = self.e
        kernels = [self._kernel(n, row) for n, row in enumerate(e.measured.rows)]
        for line, share in zip(self.lines, self._line_shares(), strict=True):
            line["share"] = share
        return PageStep(
            name=e.name, device=e.device.name, facts=self._facts(), nodes=[self._node(v) for v in self.values],
            lines=self.lines, kernels=kernels, passes=self._passes(), memory=self._memory(kernels),
            roof=_roof(e.device.limits, {row.work.product for row in e.measured.rows}), note=e.measured.advice,
        )  # fmt: skip

    def _facts(self) -> list[list[str]]:
        e, whole = self.e, self.e.measured.whole
        facts = [["operations", f"{len(e.differentiated.values()) - len(e.differentiated.inputs):,}"]]
        facts.append(["kernels", str(len(self.steps))])
        facts.append(["memory", _bytes(sum(known(x, e.sizes) for x in peak(e.program)))])
        if whole.seconds:
            facts.append(["a run", duration(whole.seconds).replace("us", "µs")])
        if whole.share:
            facts.append(["of the limit", f"{100 * whole.share:.0f} %"])
        return facts

    def _phase(self, v: Value) -> Phase:
        """Return the phase of a value; fusion makes some that the graph does not have."""
        return self.phases.get(v) or ("backward" if v.location and v.location.derived else "forward")

    # -- the graph

    def _node(self, v: Value) -> PageNode:
        kind, label = self.labels.get(v, ("", ""))
        given = v in self.graph.inputs
        name = (label or self.given[v]) if given else self.names.get(v, "")
        return PageNode(
            name=name, op="" if given else _word(v.op), type=str(v.type), bytes=known(v.type.bytes, self.e.sizes),
            role=_role(kind, v) if given else "operation", phase=self._phase(v),
            module=v.location.module if v.location and not given else name.rpartition(".")[0] if label else "",
            line=self._line_of(v), kernels=self.kernels.get(v, []),
            reads=[] if given else sorted({self.number[x] for x in v.inputs if x in self.number}),
            output=v in self.graph.outputs,
        )  # fmt: skip

    def _line_of(self, v: Value) -> int | None:
        if not v.location or not v.inputs:
            return None
        return self.places.get((Path(v.location.file).name, v.location.line))

    # -- the lines

    def _lines(self) -> list[Line]:
        """Return the source of every function that recorded something, in the order of the lines."""
        codes = {v.location.code for v in self.values if v.location and v.inputs}
        found: dict[FileLine, str] = {line.place: line.text for line in self.e.lines}
        for code in codes:
            found |= _source(code)
        for v in self.values:
            if v.location and v.inputs:
                place = FileLine(v.location.file, v.location.line)
                found.setdefault(place, linecache.getline(*place).rstrip())
        kernels: dict[FileLine, set[int]] = {}
        for n, shares in enumerate(self.shares):
            for share in shares:
                kernels.setdefault(share.place, set()).add(n)
        return [
            Line(file=Path(p.file).name, number=p.line, text=found[p], kernels=sorted(kernels.get(p, ())), share=None)
            for p in sorted(found)
        ]

    def _line_shares(self) -> list[float | None]:
        """Return the part of each line in the time of all kernels."""
        rows = self._launch_rows()
        whole = sum(row.seconds for row in rows)
        if not whole:
            return [None] * len(self.lines)
        spent = [0.0] * len(self.lines)
        for row, shares in zip(rows, self.shares, strict=True):
            for share in shares:
                at = self._at(share)
                if at is not None:
                    spent[at] += share.share * row.seconds / whole
        return list(spent)

    def _at(self, share: Share) -> int | None:
        return self.places.get((Path(share.place.file).name, share.place.line))

    def _launch_rows(self) -> list[Row]:
        """Return the measured rows of launches, without those of copies: one for each group."""
        groups = [type(s).__name__ != "Copy" for s in self.steps]
        return [row for row, is_group in zip(self.e.measured.rows, groups, strict=True) if is_group]

    # -- the kernels

    def _kernel(self, number: int, row: Row) -> PageKernel:
        step, group = self.steps[number], self._group(number)
        shares = self.shares[self._groups_before(number)] if group else ()
        heart = _heart(group) if group else None
        source, machine = self._codes(step) if number in self.slowest else (LEFT_OUT, LEFT_OUT)
        share = min(1.0, row.share) if row.seconds and row.limit.seconds else None
        bound = self._bound(row)
        return PageKernel(
            title=self._title(group, heart) if group and heart else title_of(step), name=title_of(step),
            phase=self._phase(heart) if heart else "forward", module=_module(heart),
            lines=sorted({at for at in map(self._at, shares) if at is not None}),
            why=self._why(number, group) if group else [], text=clipped(_text(step)),
            source=clipped(source), language="CUDA C++" if self.e.device.kind == "cuda" else "LLVM IR",
            machine=clipped(machine), hot=_loop_lines(machine), seconds=row.seconds or None,
            bytes=row.work.bytes, operations=row.work.operations, limit=row.limit.seconds, share=share,
            bound=bound, hint=_hint(share, bound, row),
        )  # fmt: skip

    def _groups_before(self, number: int) -> int:
        return sum(type(s).__name__ != "Copy" for s in self.steps[:number])

    def _group(self, number: int) -> Group | None:
        if type(self.steps[number]).__name__ == "Copy":
            return None
        return self.e.groups[self._groups_before(number)]

    def _codes(self, step: Any) -> tuple[str, str]:
        """Return the backend's source of a kernel, and its machine code."""
        if not isinstance(step, Launch):
            return "", ""
        device = self.e.device
        return device.source(step.kernel), cleaned(device.assembly(step.kernel) or "")

    def _bound(self, row: Row) -> str:
        short = row.limit.seconds < launch_seconds(self.e.device.kind) and row.share < LOW_SHARE
        return "launch" if row.limit.bound and short else row.limit.bound

    def _title(self, group: Group, heart: Value) -> str:
        """Name a kernel by its module and its main operations."""
        where = _module(heart) or _call(heart)
        said = {"forward": where, "backward": f"gradient of {where}" if where else "gradient", "update": where}
        prefix = said[self._phase(heart)]
        updated = [name for name in map(self._updated, group.stored) if name]
        listed = [v for v in group.values() if not (v.moves or isinstance(v, SILENT) or self._updates(v))]
        words = list(dict.fromkeys(_word(v.op) for v in listed))
        main = _word(heart.op)
        words = [main, *(w for w in words if w != main)] if main in words or not words else words
        what = ", ".join(words[:MAX_OPERATIONS]) + (" …" if len(words) > MAX_OPERATIONS else "")
        if updated:
            what += f" → {', '.join(updated[:2])}" + (" …" if len(updated) > 2 else "")
        return f"{prefix}: {what}" if prefix else what

    def _updates(self, v: Value) -> bool:
        return self._phase(v) == "update"

    def _updated(self, v: Value) -> str:
        """Return the name of the parameter or state that a value is written over."""
        schedule = self.e.compiled.stages["order"].artifact
        old = dict(schedule.overwritten).get(v)  # type: ignore[attr-defined]
        if old is None and self._updates(v) and v in self.graph.outputs:
            same = [x for x in v.inputs if x in self.labels and x.type == v.type]
            old = same[0] if same else None
        return self.labels.get(old, ("", ""))[1] if old is not None else ""

    def _why(self, number: int, group: Group) -> list[str]:
        """Say what is fused into a kernel, and why its neighbours are not."""
        maker = {m.value: n for n, g in enumerate(self.e.groups) for m in g.members}
        own = self._groups_before(number)
        reasons: dict[str, set[int]] = {}
        for producer, consumer, reason in self.e.schedule.unfused:
            ends = {maker.get(producer, own), maker.get(consumer, own)} - {own}
            if len(ends) == 1 and own in (maker.get(producer), maker.get(consumer)):
                reasons.setdefault(reason, set()).update(ends)
        fused = sum(own in kernels for kernels in self.kernels.values())
        return [
            _fusion(group, fused),
            *(f"Not fused with {kernel_numbers(sorted(others))}: {reason}." for reason, others in reasons.items()),
        ]

    # -- the rest

    def _passes(self) -> list[PagePass]:
        found = []
        for stage in self.e.compiled.stages.made:
            graph = stage.artifact
            values = len(graph.values()) - len(graph.inputs) if isinstance(graph, Graph) else len(self.e.groups)
            state = "changed" if stage.changed else stage.skipped or "unchanged"
            text = clipped(str(graph)) if stage.changed and isinstance(graph, Graph) else ""
            found.append(
                PagePass(
                    name=stage.name, sentence=_sentence(stage.name), state=state, seconds=stage.seconds,
                    operations=values, text=text,
                )
            )  # fmt: skip
        return found

    def _memory(self, kernels: Sequence[PageKernel]) -> PageMemory:
        """Return the memory plan, with the owners called by what the user knows."""
        found = memory_of(self.e.program, self.e.sizes, [k["title"] for k in kernels])
        values = {name: v for v, name in self.names.items()}
        last = len(kernels) - 1
        for owner in found["owners"]:
            v = values.get(owner["name"])
            if v is None:
                continue
            node = owner["node"] = self.number.get(v)
            owner["line"] = self._line_of(v)
            kind, label = self.labels.get(v, ("", ""))
            owner["name"] = label or self._called(v, owner["kind"])
            if kind in ("parameter", "gradient", "optimizer state", "buffer"):
                owner["kind"] = kind
            elif owner["kind"] == "output" and self._phase(v) == "backward":
                owner["kind"] = "gradient"
            elif owner["kind"] == "temporary" and node is not None and self._is_kept(v, kernels, owner["last"], last):
                owner["kind"] = "activation"
        return found

    def _called(self, v: Value, role: str) -> str:
        """Name a value that no tensor of the user holds."""
        if role in ("input", "constant"):
            return self.given[v]
        where = v.location.module if v.location else ""
        same = [name for x, (kind, name) in self.labels.items() if kind == "parameter" and x.type == v.type]
        mine = [name for name in same if name.rpartition(".")[0] == where]
        if role == "output" and self._phase(v) == "backward" and len(mine) == 1:
            return f"gradient of {mine[0]}"
        of = "gradient in " if self._phase(v) == "backward" else ""
        return f"{_word(v.op)} ({of}{where or _call(v)})"

    def _is_kept(self, v: Value, kernels: Sequence[PageKernel], until: int, last: int) -> bool:
        """Whether a value of the forward pass is read in the backward pass."""
        return self._phase(v) == "forward" and kernels[min(until, last)]["phase"] != "forward"


def _phases(graph: Graph) -> dict[Value, Phase]:
    """Tell forward, backward and update apart: an update reads gradients, and is no gradient itself."""
    found: dict[Value, Phase] = dict.fromkeys(graph.inputs, "forward")
    for v in graph.values():
        if v in found:
            continue
        if v.location is not None and v.location.derived:
            found[v] = "backward"
        else:
            reads = any(found[x] != "forward" for x in v.inputs)
            found[v] = "update" if reads else "forward"
    return found


def _role(kind: str, v: Value) -> Role:
    match kind:
        case "parameter" | "optimizer state" | "buffer":
            return kind
    return "number" if not v.shape else "input"


def _word(op: str) -> str:
    return WORDS.get(op, op.replace("_", " "))


def _call(v: Value) -> str:
    """Return the function that a line calls first: `cross_entropy` for `loss = F.cross_entropy(net(x), y)`."""
    if not v.location:
        return ""
    text = linecache.getline(v.location.file, v.location.line).strip().removeprefix("return ")
    return re.sub(r"^[^=(]+=(?!=)\s*", "", text).partition("(")[0].rpartition(".")[2][:40]


def _argument_names(e: Explanation) -> dict[Value, str]:
    """Return the names of inputs: parameters of the function where each is one tensor, else x0, x1, ..."""
    names = {v: name for v, name in e.simplified.names().items() if v in e.simplified.inputs}
    numbered = [v for v, name in names.items() if re.fullmatch(r"x\d+", name)]
    try:
        declared = list(inspect.signature(e._function).parameters) if e._function is not None else []
    except (TypeError, ValueError):
        declared = []
    return names | (dict(zip(numbered, declared, strict=True)) if len(declared) == len(numbered) else {})


def _heart(group: Group) -> Value:
    """Return the main value of a kernel: its matrix product, or the first reduction, or what it stores."""
    members = group.values()
    heart = next((v for v in members if v.contracts), None)
    return heart or next((v for v in members if isinstance(v, Reduction)), group.stored[0])


def _fusion(group: Group, count: int) -> str:
    """Say what a kernel computes, and what stays out of memory."""
    fused = f"{count} operations are one kernel" if count > 1 else "One operation is one kernel"
    rows = " × ".join(str(i.extent) for i in group.rows)
    columns = " × ".join(str(i.extent) for i in group.columns)
    stored = f"{len(group.stored)} of its values are stored" if len(group.stored) > 1 else "only its result is stored"
    match group.kind:
        case "contraction":
            return (
                f"{fused}: a matrix product of {rows or 1} elements, each a sum over {columns}. What is computed of "
                f"its operands is computed as they are loaded, what follows it before it is stored; {stored}."
            )
        case "rows":
            what = f"each of {rows} rows is reduced along {columns}" if rows else f"{columns} elements are reduced"
            return f"{fused}: {what}, and used again while it is in the cache; {stored}."
        case "map":
            return f"{fused}: {rows or 1} elements, each computed from the same place of its inputs; {stored}."
    return "The operation brings a kernel of its own; nothing is fused into it."


def _text(step: Any) -> str:
    """Return a kernel in the tile language, or another step as the program shows it."""
    return str(step.kernel.replaced(origin="")) if isinstance(step, Launch) else show_step(step)


def _module(heart: Value | None) -> str:
    """Return the module of the network that an operation belongs to."""
    return heart.location.module if heart is not None and heart.location else ""


def _loop_lines(machine: str) -> list[list[int]]:
    """Return the first and the last line of each inner loop of machine code."""
    first = [machine[: machine.index(loop)].count("\n") for loop in inner_loops(machine)]
    return [[line, line + loop.count("\n")] for line, loop in zip(first, inner_loops(machine), strict=True)]


def _hint(share: float | None, bound: str, row: Row) -> str:
    if share is None or share >= LOW_SHARE:
        return ""
    if bound == "launch":
        return (
            f"{100 * share:.0f} % of the limit: it computes for {duration(row.limit.seconds)} at best, less than a "
            "launch takes. Larger batches, or more of the loop under jit, give it more to do."
        )
    return f"{100 * share:.0f} % of the limit, bound by {bound}: `python -m tilegrad tune` looks for better tiles."


def _sentence(name: str) -> str:
    """Return the first sentence of a pass's docstring."""
    if name in STAGES:
        return STAGES[name]
    run = next((p.run for p in PASSES if p.name == name), None)
    text = inspect.getdoc(run) or "" if run is not None else ""
    return " ".join(text.partition("\n\n")[0].split())


def _source(code: CodeType) -> Iterator[tuple[FileLine, str]] | dict[FileLine, str]:
    """Return the lines of a function; none where its file is not there."""
    try:
        texts, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return {}
    if code.co_name == "<module>":
        return {}
    return {FileLine(code.co_filename, first + n): text.rstrip() for n, text in enumerate(texts)}


def _roof(limits: Any, products: Set[str]) -> dict[str, float]:
    """Return the peaks of the machine, of arithmetic that of the fastest products among the kernels."""
    peak = max(operations_per_second(limits, product) or 0.0 for product in {"", *products})
    memory = max((float(limits.get(k, 0.0)) for k in ("read", "copy", "triad")), default=0.0)
    caches = {level: float(limits.get(f"{level}_read", 0.0)) for level in ("L1", "L2", "L3")}
    return {"bytes": memory, "operations": float(peak)} | {k: v for k, v in caches.items() if v}


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
