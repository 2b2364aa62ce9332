"""Time the launches of a program on copies of its inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ..ir.program import Copy, Foreign, Launch, Program, name_of
from ..ir.program_printer import show_step
from ..ir.size import known
from ..runtime import events
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device
from ..runtime.executable import Executable
from ..schedule.group import Group
from .count import Work, product_of, work_of
from .limit import Limit, limit_of

MEASURING_S = 0.3
"""Seconds for which a program is measured."""
MAX_RUNS = 200
MAX_SHARE = 1.2
"""Ratio to the machine's limit above which the limit must be wrong."""
SETTLING_RUNS = 5
"""Runs before measuring: the first touch fresh memory, and the CPU repartitions its work by measured times."""


class Row(NamedTuple):
    """A launch with its work, its seconds (0: not measured), and its limit."""

    number: int
    name: str
    step: str
    work: Work
    seconds: float
    limit: Limit

    @property
    def share(self) -> float:
        return self.limit.share(self.seconds)


class Measured(NamedTuple):
    """All launches of a program, and the whole: `seconds` is the time of a run from Python.

    Where nothing was run `runs` is 0, and so are all times.
    """

    rows: tuple[Row, ...]
    whole: Row
    runs: int
    advice: str = ""
    """The reason why figures are implausible or absent."""

    def __str__(self) -> str:
        lines = [f"{'kernel':31} {'time':>9} {'GB/s':>7} {'GFLOP/s':>8} {'of limit':>9}  bound by"]
        for row in (*self.rows, self.whole):
            number = f"{row.number:2}" if row is not self.whole else "  "
            shown = [f"{cell:{form}}" for cell, form in zip(cells(row), FORMS, strict=True)]
            lines.append(" ".join([number, *shown]).rstrip())
        if self.runs:
            lines.append(f"{self.runs} runs, medians; bytes and operations are those needed at least")
        lines.extend([self.advice] if self.advice else [])
        return "\n".join(lines)


FORMS = ("28", ">9", ">7", ">8", ">9", "")


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """Format a row: name, time, GB/s, GFLOP/s, percent of the limit, bound."""
    if not row.seconds:
        return (row.name, "-", "-", "-", "-", row.limit.bound)
    bandwidth, speed = row.work.bytes / row.seconds / 1e9, row.work.operations / row.seconds / 1e9
    share = f"{100 * row.share:.0f} %" if row.share else "-"
    bound = f" {row.limit.bound}" if row.limit.bound else ""
    return (row.name[:28], duration(row.seconds), _figure(bandwidth), _figure(speed), share, bound)


def duration(seconds: float) -> str:
    """Format seconds with a unit.

    >>> duration(2.5), duration(0.0125), duration(3.21e-5), duration(4e-8)
    ('2.50 s', '12.5 ms', '32.1 us', '40 ns')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds < 1 else f"{seconds:.2f} s"
    return f"{seconds * 1e9:.0f} ns"


def _figure(x: float) -> str:
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 1 else f"{x:.2f}" if x else "-"


def measure(
    executable: Executable,
    device: Device,
    inputs: Sequence[DeviceBuffer],
    groups: Sequence[Group],
    sizes: Mapping[str, int] = {},
    runs: int | None = None,
) -> Measured:
    """Time each launch. The inputs are copied first: a training step may be measured without training."""
    wholes, launches = _timed(executable, device, inputs, sizes, runs) if device.runs else ([0.0], [])
    program = executable.program
    works = works_of(program, groups, sizes)
    steps = [s for s in program.steps if isinstance(s, Launch | Copy | Foreign)]
    times = [median(column) for column in zip(*launches, strict=True)]
    if len(times) != len(steps):
        times = [0.0] * len(steps)
    limits = device.limits
    rows = tuple(
        Row(n, _name(s), show_step(s), work, seconds, limit_of(work, limits))
        for n, (s, work, seconds) in enumerate(zip(steps, works, times, strict=True))
    )
    return Measured(rows, _whole(rows, median(wholes)), len(launches), _advice(device, rows))


def _advice(device: Device, rows: Sequence[Row]) -> str:
    if not device.runs:
        return f"{device.name} runs nothing here: there are no times"
    if device.kind == "cpu" and any(row.share > MAX_SHARE for row in rows):
        return (
            "Nothing is faster than the machine: what it can do was measured while it was busy. "
            "`python -m tilegrad doctor --measure` does so again, and keeps the best"
        )
    return ""


def _timed(
    executable: Executable, device: Device, inputs: Sequence[DeviceBuffer], sizes: Mapping[str, int], runs: int | None
) -> tuple[list[float], list[list[float]]]:
    """Return the seconds of each run, and those of its launches."""
    runner = executable.bound(sizes)
    copies = [device.copy(b) for b in inputs]
    launches: list[list[float]] = []
    wholes: list[float] = []
    least, most = (1, runs) if runs is not None else (3, MAX_RUNS)
    for _ in range(SETTLING_RUNS if runs is None else 0):
        runner(copies)
        if len(executable.program.steps) and runs is None:
            device.synchronize()
    end = time.perf_counter() + MEASURING_S
    while len(wholes) < least or (len(wholes) < most and time.perf_counter() < end):
        start = time.perf_counter()
        runner(copies)
        device.synchronize()
        wholes.append(time.perf_counter() - start)
        launches.append(_launch_times(runner, copies))
    return wholes, launches


def _launch_times(runner: object, inputs: Sequence[DeviceBuffer]) -> list[float]:
    """Return the seconds of each launch and copy in one run, in order."""
    seen: list[float] = []

    def listen(event: events.TimedEvent) -> None:
        if event.kind in ("launch", "copy"):
            seen.append(event.seconds)

    with events.listening(listen):
        runner(inputs)  # type: ignore[operator]
    return seen


def _whole(rows: Sequence[Row], seconds: float) -> Row:
    work = Work()
    for row in rows:
        work = work.plus(row.work)
    return Row(len(rows), "the whole", "", work, seconds, Limit(sum(r.limit.seconds for r in rows), ""))


def works_of(program: Program, groups: Sequence[Group], sizes: Mapping[str, int]) -> list[Work]:
    """Count the work of each launch and copy; `groups` are those that the launches were made of, in order."""
    remaining = iter(groups)
    found = []
    for step in program.steps:
        match step:
            case Launch() | Foreign():
                group = next(remaining, None)
                work = work_of(group, sizes) if group is not None else Work()
                found.append(work._replace(product=product_of(step.kernel)) if isinstance(step, Launch) else work)
            case Copy(source):
                bytes = known(program.buffer(source).type.bytes, sizes)
                found.append(Work(bytes, bytes))
            case _:
                pass
    return found


def _name(step: Launch | Copy | Foreign) -> str:
    return f"copy {step.target}" if isinstance(step, Copy) else name_of(step)
