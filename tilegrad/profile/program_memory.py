"""List the owners of a program's memory at its peak, the bytes of each launch, and the price of a smaller budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..errors import ArgumentError, BudgetError
from ..ir.graph import Graph, Value
from ..ir.program import Copy, Foreign, Launch, Program, ProgramBuffer, name_of, uses
from ..ir.size import known
from ..jitted.function import Jitted, PreparedProgram
from ..jitted.memory_budget import shown_bytes
from ..jitted.specialised import Specialised
from ..runtime.device import device
from ..schedule.assemble import buffer_names
from ..schedule.group import Schedule
from ..schedule.planned import planned
from ..transform.operation_count import operations
from ..transform.rematerialise import MemoryPlan, recomputed, rematerialise
from .memory import ROWS, Owner, tensor_labels, totals, variable_labels

BUDGET_SHARES = (0.9, 0.75, 0.5)
"""Shares of the peak that are tried as budgets."""


class Peak:
    """The memory of a program: its owners at the peak, and the live bytes of each launch."""

    def __init__(self, program: Specialised, sizes: Mapping[str, int]) -> None:
        self.specialised = program
        self.compiled = program.compiled
        self.program: Program = program.compiled.program
        self.sizes = sizes
        used = self._lifetimes()
        self.steps = [s for s in self.program.steps if isinstance(s, Launch | Copy | Foreign)]
        fixed = [b for b in self.program.buffers if b.offset is None and b.alias is None]
        rest = sum(self._bytes(b) for b in fixed)
        temporaries = [b for b in self.program.buffers if b.offset is not None and b.name in used]
        self.timeline: tuple[tuple[str, int], ...] = tuple(
            (_label(step), rest + sum(self._bytes(b) for b in temporaries if used[b.name][0] <= n <= used[b.name][1]))
            for n, step in enumerate(self.steps)
        )
        """The name of each launch, with the bytes that are live during it."""
        self.at = max(range(len(self.steps)), key=lambda n: self.timeline[n][1], default=0)
        """Number of the launch with most live bytes."""
        live = [b for b in temporaries if used[b.name][0] <= self.at <= used[b.name][1]]
        self.owners: tuple[Owner, ...] = tuple(sorted(self._owners([*fixed, *live]), key=lambda o: -o.bytes))

    @property
    def bytes(self) -> int:
        """Bytes that are live at the peak."""
        return self.timeline[self.at][1] if self.timeline else sum(o.bytes for o in self.owners)

    def _bytes(self, buffer: ProgramBuffer) -> int:
        return known(buffer.type.bytes, self.sizes)

    def _lifetimes(self) -> dict[str, tuple[int, int]]:
        """Map each buffer to the numbers of the first and the last launch that use it."""
        found: dict[str, tuple[int, int]] = {}
        steps = [s for s in self.program.steps if isinstance(s, Launch | Copy | Foreign)]
        for n, step in enumerate(steps):
            for name in uses(step):
                found[name] = found.get(name, (n, n))[0], n
        return found

    def _owners(self, buffers: Sequence[ProgramBuffer]) -> Iterator[Owner]:
        schedule: Schedule = self.compiled.stages["order"].artifact  # type: ignore[assignment]
        values = {name: value for value, name in buffer_names(schedule).items()}
        saved = {v for g in schedule.groups if any(_is_derived(s) for s in g.stored) for v in g.needs()}
        given, made = self._given(), self._made()
        for b in buffers:
            value = values.get(b.name)
            if value is not None and value in saved and not _is_derived(value):
                unnamed = "activation", ""
            else:
                unnamed = "temporary", ""
            kind, name = given.get(b.name) or made.get(b.name) or unnamed
            at = value.location if value is not None else None
            if not name and value is not None:
                name = _name(value)
            shape = tuple(known(n, self.sizes) for n in b.type.shape)
            line = str(at) if at else ""
            yield Owner(kind, name or b.name, shape, b.type.dtype.name, b.type.device, self._bytes(b), line)

    def _given(self) -> dict[str, tuple[str, str]]:
        """Map each input to its kind and name: arguments, then captured tensors, then numbers."""
        known_names = variable_labels()
        arguments = len(self.specialised.traced.arguments)
        found = {name: ("tensor", f"argument {n}") for n, name in enumerate(self.program.inputs)}
        for n, captured in enumerate(self.specialised.environment.captured):
            found[self.program.inputs[arguments + n]] = known_names.get(id(captured.base.storage), ("tensor", ""))
        return found

    def _made(self) -> dict[str, tuple[str, str]]:
        """Map each output to its kind: results, then arguments that are written to, then gradients."""
        traced, outputs = self.specialised.traced, self.program.outputs
        results = sum(v is not None for v in traced.values)
        gradients = results + len(traced.modified)
        last = len(outputs) - len(self.specialised.updates)
        labels = tensor_labels()
        owners = [g.holder for g in self.specialised.outputs.gradients if g.value is not None]
        named = [f"of {labels[id(x)][1]}" if id(x) in labels else "" for x in owners]
        named += [""] * (last - gradients - len(named))
        found = {name: ("gradient", label) for name, label in zip(outputs[gradients:last], named, strict=False)}
        return found | dict.fromkeys(outputs[:results], ("result", ""))

    @cached_property
    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind at the peak."""
        return totals(self.owners)

    @cached_property
    def budgets(self) -> tuple[tuple[int, int, float], ...]:
        """Budgets for `tg.jit(fit=...)`: the bytes that the program takes then, those saved, and the share of added
        operations. Slow: the program is planned again for each.
        """
        if self.specialised.fit or self.program.sizes:
            return ()
        stages = self.compiled.stages.made
        graph = next(s.artifact for s in reversed(stages) if isinstance(s.artifact, Graph))
        target, updates = device(self.compiled.device).target, self.specialised.updates

        def planner(trial: Graph) -> MemoryPlan:
            return planned(trial, updates, target)

        whole = planner(graph).bytes
        found = {}
        for share in BUDGET_SHARES:
            try:
                fitted = rematerialise(graph, planner, int(share * whole))
            except BudgetError:
                break
            again = recomputed(fitted)
            extra = sum(map(operations, again))
            needed = sum(map(operations, fitted.values())) - extra
            bytes = planner(fitted).bytes
            found[bytes] = (bytes, whole - bytes, extra / max(1, needed))
        return tuple(found.values())

    def __str__(self) -> str:
        at = f" in launch {self.at} of {len(self.steps)} ({self.timeline[self.at][0]})" if self.timeline else ""
        lines = [f"{shown_bytes(self.bytes)} at the peak{at}"]
        lines += [f"{shown_bytes(bytes):>10}  {kind}" for kind, bytes in self.by_kind.items()]
        lines += ["the largest:", *map(str, self.owners[:ROWS])]
        for bytes, saved, share in self.budgets:
            word = shown_bytes(bytes).replace(" bytes", "").replace(" ", "")
            lines.append(f"jit(fit={word!r}) would save {shown_bytes(saved)} for {share:.1%} more operations")
        return "\n".join(lines)


def _name(value: Value) -> str:
    """Name a value by its op and its module."""
    at = value.location
    return f"{value.op} in {at.module}" if at is not None and at.module else value.op


def peak(fn: Callable[..., Any] | PreparedProgram, *args: Any, **kwargs: Any) -> Peak:
    """List the owners of a jitted function's memory where its program takes most; without arguments of the program
    compiled last. Nothing is run.

    >>> import tilegrad as tg
    >>> step = tg.jit(lambda x: (x.exp().sum(0) * x).sum())
    >>> [(o.kind, o.shape) for o in peak(step, tg.ones(256, 256)).owners][:2]
    [('tensor', (256, 256)), ('temporary', (256,))]
    """
    if isinstance(fn, PreparedProgram):
        _ = fn.compiled  # an error for a function that runs without a program
        return Peak(fn.program, fn.sizes)
    if not isinstance(fn, Jitted):
        raise ArgumentError(f"memory.peak takes a function that tilegrad.jit has made, not {fn!r:.60}")
    if args or kwargs:
        return peak(fn.prepared(*args, **kwargs))
    program = next((p for p in fn.programs if not p.unjitted_reason), None)
    if program is None:
        raise ArgumentError("memory.peak: the function has no program yet: call it once, or give its arguments")
    return Peak(program, dict(next(iter(program.runners), ())))


def _label(step: Launch | Copy | Foreign) -> str:
    return f"copy {step.target}" if isinstance(step, Copy) else name_of(step)


def _is_derived(value: Value) -> bool:
    return value.location is not None and value.location.derived
