"""Tune kernels: measure the choices for each, the most expensive kernels first.

A choice replaces the cost model's only if its kernel computes the same results on random elements, and is faster by
more than the noise of measurements. The results go into `kernels.lock` (`runtime/lock.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ..errors import TilegradError
from ..ir.graph import Value
from ..runtime.choice import Choice, LockEntry
from ..runtime.device import Device
from .group import Group, Schedule
from .options import candidates, digest_of, signature, title
from .trial import CLOCK_SECONDS, Contender, Trial, measured

ROUNDS = 7
"""Measurements of each finalist, interleaved."""
MAX_FINALIST_RATIO = 1.25
"""Largest ratio to the fastest first measurement for a choice to become a finalist."""
NANOSECOND = 1e-9
"""A nanosecond, in seconds."""
MIN_TIME_SHARE = 0.25
"""Least share of the remaining time for the next kernel, the most expensive one."""
MAX_WINNER_RATIO = 0.95
"""Largest ratio to the time of the default choice for another to replace it."""

Measure = Callable[[Contender], float]
Say = Callable[[str], None]


class TuningJob(NamedTuple):
    """A kernel to tune: its origin, and how often it runs."""

    digest: str
    group: Group
    overwritten: Mapping[Value, Value]
    sizes: Mapping[str, int]
    place: Device
    launches: int = 1


class Tuned(NamedTuple):
    """The results of tuning, by the digests of kernels; and how many kernels were tuned, of how many."""

    found: dict[str, LockEntry]
    finished: int
    jobs: int
    faster: int
    interrupted: bool
    kept: str = ""
    """The file that the results were written to, or why there is none."""


def jobs_of(schedule: Schedule, sizes: Mapping[str, int], place: Device) -> list[TuningJob]:
    """Collect the tunable kernels of a schedule, each once."""
    jobs: dict[str, TuningJob] = {}
    overwritten = dict(schedule.overwritten)
    for group in schedule.groups:
        if not any(v.type.count != 0 for v in group.stored) or len(candidates(group, place.target)) < 2:
            continue
        digest = digest_of(group)
        known = jobs.get(digest, TuningJob(digest, group, overwritten, sizes, place, 0))
        jobs[digest] = known._replace(launches=known.launches + 1)
    return list(jobs.values())


def merge_jobs(jobs: Sequence[TuningJob]) -> list[TuningJob]:
    """Merge the jobs of several programs, each kernel once."""
    found: dict[tuple[str, str], TuningJob] = {}
    for job in jobs:
        known = found.get((job.place.name, job.digest))
        found[job.place.name, job.digest] = (
            job if known is None else known._replace(launches=known.launches + job.launches)
        )
    return list(found.values())


def tune(
    jobs: Sequence[TuningJob],
    seconds: float,
    say: Say = lambda text: None,
    measure: Measure = measured,
    clock: Callable[[], float] = time.perf_counter,
    keep: Callable[[TuningJob, LockEntry], None] = lambda job, entry: None,
) -> Tuned:
    """Tune kernels within a time; results are kept when a user interrupts. `keep` is called with each result."""
    end = clock() + seconds
    found: dict[str, LockEntry] = {}
    faster = 0
    interrupted = False
    try:
        waiting = _worst_first(jobs, end, say, measure, clock)
        while waiting and clock() < end:
            (job, usual), rest = waiting[0], waiting[1:]
            total = sum(each.launches * took for each, took in waiting)
            until = clock() + (end - clock()) * max(MIN_TIME_SHARE, job.launches * usual / max(total, CLOCK_SECONDS))
            entry, better = _tuned(job, min(until, end), say, measure, clock)
            waiting = rest
            if entry is not None:
                found[job.digest] = entry
                keep(job, entry)
                faster += better
    except KeyboardInterrupt:
        interrupted = True
    return Tuned(found, len(found), len(jobs), faster, interrupted)


def _worst_first(
    jobs: Sequence[TuningJob], end: float, say: Say, measure: Measure, clock: Callable[[], float]
) -> list[tuple[TuningJob, float]]:
    """Sort jobs by the total seconds of their kernels with the default choice, the longest first."""
    timed = []
    for n, job in enumerate(jobs):
        if clock() >= end:
            break
        say(f"measuring {n + 1} of {len(jobs)}: {title(job.group)}")
        timed.append((job, measure(Trial(*job[1:5]).contender(None))))
    return sorted(timed, key=lambda pair: -pair[0].launches * pair[1])


def _tuned(
    job: TuningJob, end: float, say: Say, measure: Measure, clock: Callable[[], float]
) -> tuple[LockEntry | None, bool]:
    """Return the best choice for a kernel, and whether it is not the default; None: there was no time."""
    name = title(job.group)
    trial = Trial(*job[1:5])
    usual_choice, *others = candidates(job.group, job.place.target)
    usual = trial.contender(usual_choice)
    usual.times.append(measure(usual))
    contenders = [usual]
    expected = trial.results(usual)
    for choice in others:
        if clock() >= end:
            break
        made = _contender(trial, choice, contenders, expected, say)
        if made is not None:
            made.times.append(measure(made))
            contenders.append(made)
            fastest = min(c.times[0] for c in contenders)
            say(f"{name}: {choice}: {format_seconds(made.times[0])}, the best so far {format_seconds(fastest)}")
    left = [c for c in contenders if c.times[0] <= MAX_FINALIST_RATIO * min(c.times[0] for c in contenders)]
    left = left if usual in left else [usual, *left]
    for n in range(ROUNDS):
        if clock() >= end and n >= 3:
            break
        for contender in left:
            contender.times.append(measure(contender))
    best = min(left, key=_middle)
    if _middle(best) > MAX_WINNER_RATIO * _middle(usual) or min(best.times) > MAX_WINNER_RATIO * min(usual.times):
        best = usual  # a difference that the fastest runs do not show was made by something else on the machine
    return _entry(job, usual, best, len(contenders)), best is not usual


def _contender(
    trial: Trial, choice: Choice, others: Sequence[Contender], expected: Mapping[str, object], say: Say
) -> Contender | None:
    """Compile a candidate that differs from the others and is right; None if it is not."""
    try:
        made = trial.contender(choice)
        if any(c.launch.kernel == made.launch.kernel and c.launch.grid == made.launch.grid for c in others):
            return None
        difference = trial.first_difference(expected, made)
    except TilegradError as problem:  # a device may have no room for such tiles
        say(f"{title(trial.group)}: {choice} does not run: {problem}")
        return None
    if difference:
        say(f"{title(trial.group)}: {choice} is left out: {difference}")
        return None
    return made


def _middle(contender: Contender) -> float:
    """Return the median time, without the first one, by which the finalist was selected."""
    return median(contender.times[1:] or contender.times)


def _entry(job: TuningJob, usual: Contender, best: Contender, tried: int) -> LockEntry:
    assert best.choice is not None
    before, now = _middle(usual), _middle(best)
    times = format_seconds(now) if best is usual else f"{format_seconds(now)} instead of {format_seconds(before)}"
    note = f"{times}, best of {tried}: {signature(job.group)}"
    return LockEntry(title(job.group), best.choice, note)


def format_seconds(seconds: float) -> str:
    """Format a time.

    >>> format_seconds(0.0125), format_seconds(3.21e-5), format_seconds(4e-8)
    ('12.5 ms', '32.1 us', '40 ns')
    """
    units = {"s": 1.0, "ms": 1e3, "us": 1e6}
    unit = next((unit for unit, scale in units.items() if seconds * scale >= 1), "")
    return f"{seconds * units[unit]:.3g} {unit}" if unit else f"{seconds / NANOSECOND:.0f} ns"
