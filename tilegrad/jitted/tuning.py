"""Tune compiled programs: `tg.jit(tune="20s")`, and `python -m tilegrad tune SCRIPT`.

Variants of the programs' kernels are measured on their device (`schedule/tune.py`); the fastest are written to
`kernels.lock`, and the programs are recompiled with them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..compiler import Compiled, add_choices, lock_for
from ..config import VERSION
from ..errors import ArgumentError
from ..runtime.choice import LockEntry
from ..runtime.device import device
from ..runtime.lock import keep, place
from ..schedule.group import Schedule
from ..schedule.trial import measured
from ..schedule.tune import Tuned, TuningJob, format_seconds, jobs_of, merge_jobs, tune

TIME = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|min|h)")
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class SizedProgram(NamedTuple):
    """A program, and the sizes that it runs with."""

    compiled: Compiled
    sizes: Mapping[str, int]


def seconds_of(time: str | float, what: str = "tune") -> float:
    """Parse a duration.

    >>> seconds_of("20s"), seconds_of("1.5m"), seconds_of(3)
    (20.0, 90.0, 3.0)
    """
    found = TIME.fullmatch(time.strip()) if isinstance(time, str) else None
    if found is not None:
        return float(found[1]) * UNITS[found[2]]
    if isinstance(time, int | float) and not isinstance(time, bool) and 0 <= time < float("inf"):
        return float(time)
    raise ArgumentError(f"{what}={time!r}: a time is wanted, such as '20s', '5m' or a number of seconds")


def tune_programs(programs: Sequence[SizedProgram], seconds: float, path: Path | None = None) -> Tuned:
    """Tune the kernels of programs that have no choice in `kernels.lock`, and write each result as it is found."""
    jobs = [job for job in merge_jobs(_jobs(programs)) if job.digest not in lock_for(job.place).entries]
    line = ProgressLine(seconds)
    target = path or place()
    kept = "" if target is None else f"; kept in {target}"

    def note(job: TuningJob, entry: LockEntry) -> None:
        nonlocal kept
        add_choices(job.place, {job.digest: entry})
        if target is not None:
            try:
                keep(target, VERSION, job.place.machine, {job.digest: entry})
            except OSError as problem:  # it holds for this process
                kept = f"; not kept, since {target} cannot be written: {problem.strerror}"

    tuned = tune(jobs, seconds, line.show, measured, keep=note)
    line.end()
    return tuned._replace(kept=kept if tuned.finished else "")


def _jobs(programs: Sequence[SizedProgram]) -> list[TuningJob]:
    found = []
    for compiled, sizes in programs:
        schedule = compiled.stages["order"].artifact
        assert isinstance(schedule, Schedule)
        found += jobs_of(schedule, sizes, device(compiled.device))
    return found


def summary(tuned: Tuned, seconds: float) -> str:
    """Summarise the result in one line."""
    if not tuned.jobs:
        return "nothing to tune: there is no kernel with a choice that is not settled"
    left = tuned.jobs - tuned.finished
    reason = "interrupted" if tuned.interrupted else f"the {format_seconds(seconds)} were over"
    rest = f"; {left} left as {'it is' if left == 1 else 'they are'}: {reason}" if left else ""
    return (
        f"{tuned.finished} of {tuned.jobs} kernels tuned, {tuned.faster} of them faster than before{tuned.kept}{rest}"
    )


class ProgressLine:
    """A progress line on standard error with the share of the budget, overwritten in place on a terminal."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.began = seconds, time.monotonic()
        self.width = 0
        self.terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self.terminal:
            spent = f", {time.monotonic() - self.began:.0f} of {self.seconds:.0f} s" if self.seconds else ""
            text = f"tuning{spent}: {text}"[:119]
            print(f"\r{text:{self.width}}", end="", file=sys.stderr, flush=True)
            self.width = len(text)

    def end(self) -> None:
        if self.terminal and self.width:
            print(f"\r{'':{self.width}}\r", end="", file=sys.stderr, flush=True)


def tune_compiled(compiled: Compiled, sizes: Mapping[str, int], seconds: float) -> Compiled:
    """Tune the kernels of a program and recompile it; report the result."""
    tuned = tune_programs([SizedProgram(compiled, sizes)], seconds)
    if not tuned.jobs:
        return compiled
    print(f"tilegrad: {summary(tuned, seconds)}", file=sys.stderr)
    return compiled.again()
