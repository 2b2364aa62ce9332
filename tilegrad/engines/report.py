"""Measure the modes of an engine on this machine, and say which is best and why."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .engine import Engine

MEASURED_ROUNDS = 3
"""Rounds in which all modes take turns; the median counts."""


class MeasuredMode(NamedTuple):
    """A way to run calls, as measured."""

    mode: str
    callers: int
    """Sets of activations, or stages of a pipeline."""
    calls_per_second: float
    bytes: int
    """Weights and all activations."""


class EngineReport(NamedTuple):
    """Measurements of an engine: printed, they are a table."""

    batch: int
    modes: list[MeasuredMode]
    plan_seconds: dict[str, float]
    """Seconds in which each plan was made: the cost of sizes that are met for the first time."""
    best: str
    why: str

    def __str__(self) -> str:
        lines = ["| mode | callers | calls per second | memory |", "| --- | --- | --- | --- |"]
        lines += [f"| {m.mode} | {m.callers} | {m.calls_per_second:,.0f} | {m.bytes:,} bytes |" for m in self.modes]
        lines += [f"first call with {sizes}: {seconds:.2f} s" for sizes, seconds in self.plan_seconds.items()]
        return "\n".join([*lines, f"best: {self.best}, {self.why}"])


def measured(engine: Engine, batch: int, seconds: float, callers: int) -> EngineReport:
    """Run calls of examples in each mode, in turns, for so many seconds in all."""
    call = example_of(engine, batch)
    callers_of: dict[str, int] = {"sequential": 1, "double": 2, "threads": callers, "pipeline": callers}
    runs: dict[str, Callable[[Iterable[Any]], Iterator[Any]]] = {m: engine.mode(m, n) for m, n in callers_of.items()}
    budget = seconds / len(callers_of) / (MEASURED_ROUNDS + 1)
    rates: dict[str, list[float]] = {mode: [] for mode in callers_of}
    for _ in range(MEASURED_ROUNDS + 1):
        for mode, run in runs.items():
            rates[mode].append(_rate(run, call, budget))
    weights, activations = engine.memory
    sets = {mode: 1 if mode == "pipeline" else n for mode, n in callers_of.items()}
    modes = [
        MeasuredMode(mode, n, statistics.median(rates[mode][1:]), weights + activations * sets[mode])
        for mode, n in callers_of.items()
    ]
    best = max(modes, key=lambda m: m.calls_per_second)
    times = {", ".join(f"{k} = {v}" for k, v in p.sizes.items()) or "the sizes": p.seconds for p in engine.plans}
    return EngineReport(batch, modes, times, best.mode, _reason(best, modes))


def example_of(engine: Engine, batch: int) -> tuple[Any, ...]:
    """Make arguments of a batch: normal numbers, or zeros and ones; other sizes that vary are 16."""
    draw, made = np.random.default_rng(0), []
    for spec in engine.inputs:
        shape = [batch if d == engine.batch else OTHER_EXTENT if isinstance(d, str) else d for d in spec.shape]
        made.append(np.asarray(draw.standard_normal(shape) if spec.dtype.is_float else draw.integers(0, 2, shape)))
    return tuple([x.astype(spec.dtype.numpy) for x, spec in zip(made, engine.inputs, strict=True)])


OTHER_EXTENT = 16
"""Extent of sizes that vary, other than the batch, while an engine is measured."""


def _rate(run: Callable[[Iterable[Any]], Iterator[Any]], call: tuple[Any, ...], seconds: float) -> float:
    """Run a call again and again for some time; return calls per second."""
    start = time.perf_counter()
    ends = start + seconds
    calls = itertools.takewhile(lambda _: time.perf_counter() < ends, itertools.repeat(call))
    count = sum(1 for _ in run(calls))
    return count / (time.perf_counter() - start)


def _reason(best: MeasuredMode, modes: list[MeasuredMode]) -> str:
    """Explain what the best mode has over the one that needs least memory."""
    first = modes[0]
    ratio = best.calls_per_second / max(first.calls_per_second, 1e-9)
    others = ", ".join(f"{m.mode} {m.calls_per_second / max(first.calls_per_second, 1e-9):.2f}" for m in modes[1:])
    match best.mode:
        case "sequential":
            return f"a call uses the cores well by itself, with the least memory (the others against it: {others})"
        case "double":
            return f"the caller's own work overlaps with the network: {ratio:.2f} times the calls of sequential"
        case "threads":
            return f"each call has a core to itself, and none waits for another: {ratio:.2f} times sequential"
    return f"each stage keeps its weights in the cache of one core: {ratio:.2f} times sequential"
