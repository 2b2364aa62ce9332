"""Turn recorded events into records with times, nesting, own time and source lines.

Records of one host thread nest: a step holds ranges, these hold runs of programs, these hold launches (of devices that
work while the host waits; launches of other devices have a lane of their own). The own time of a record excludes that
of its parts, so that own times add up to the time that the outermost records cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..runtime import events
from .attribution import UNKNOWN, LaunchOrigin, sources_of
from .count import Work
from .recorder import Noted, Range, Recorder, Sample

DEVICE_WORK = ("launch", "copy", "fill")
"""Kinds of records that a device works for."""


class TimelineRecord:
    """One thing that happened. Times are nanoseconds of the monotonic clock."""

    def __init__(
        self, kind: str, name: str, device: str, lane: str, start: int, stop: int, *, timed: bool = True,
        source: LaunchOrigin = UNKNOWN, bytes: int = 0, origin: str = "", stack: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.kind = kind
        self.name = name
        self.device = device
        self.lane = lane
        """The host thread or the device that it occupied."""
        self.start = start
        self.stop = stop
        self.timed = timed
        """Whether its times were measured."""
        self.source = source
        self.bytes = source.work.bytes if source.work is not None else bytes
        self.origin = origin
        self.stack = stack
        self.parent: TimelineRecord | None = None
        self.parts = 0
        """The time of what it holds."""
        self.run: TimelineRecord | None = None
        """The run that started a launch."""
        self.clock = ""
        """The source of its times, where a device has several."""
        self.workers: tuple[tuple[int, int, int], ...] = ()
        """Each worker thread that took part, with the beginning and the end of its work."""

    @property
    def nanoseconds(self) -> int:
        return self.stop - self.start

    @property
    def own(self) -> int:
        """Nanoseconds without those of its parts."""
        return self.nanoseconds - self.parts

    @property
    def line(self) -> str:
        """The user's line, if known, with the number of further ones."""
        lines = self.source.lines
        if not lines:
            return self.origin
        return f"{lines[0]}" + (f" +{len(lines) - 1}" if len(lines) > 1 else "")

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the enclosing records, outermost first, and its own."""
        above = self.parent or (self.run if self.run is not self else None)
        return (*(above.path if above is not None else self.stack), self.name)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {self.nanoseconds / 1e3:.1f} us on {self.lane}>"


class Timeline(NamedTuple):
    """All records of a profile, those of a lane in order, with the memory that was live meanwhile."""

    records: list[TimelineRecord]
    samples: list[Sample]
    began: int
    ended: int
    left_out: int = 0
    cost: int = 0

    def of(self, *kinds: str) -> list[TimelineRecord]:
        """List the records of some kinds."""
        return [r for r in self.records if r.kind in kinds]

    @property
    def launches(self) -> list[TimelineRecord]:
        return self.of(*DEVICE_WORK)

    def busy(self, device: str) -> int:
        """Nanoseconds in which a device worked."""
        return covered((r.start, r.stop) for r in self.launches if r.device == device and r.timed)

    def overlap(self, device: str) -> int:
        """Nanoseconds in which a device and the host both worked: the host in programs, copies and loading."""
        own = [(r.start, r.stop) for r in self.launches if r.device == device and r.timed]
        host = [(r.start, r.stop) for r in self.of("run", "load", "compile") if r.lane != device]
        if is_host(device):
            return 0
        return covered(own) + covered(host) - covered([*own, *host])

    def gaps(self, device: str) -> list[tuple[int, int]]:
        """List the times between launches in which a device was idle, the longest first."""
        spans = sorted((r.start, r.stop) for r in self.launches if r.device == device and r.timed)
        found, end = [], 0
        for start, stop in spans:
            if end and start > end:
                found.append((end, start))
            end = max(end, stop)
        return sorted(found, key=lambda gap: gap[0] - gap[1])


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Measure the union of spans.

    >>> covered([(0, 4), (2, 6), (10, 11)])
    7
    """
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def timeline(recorder: Recorder) -> Timeline:
    """Build the records of all that was recorded."""
    sources: dict[events.Launches, list[LaunchOrigin]] = {}
    records = [r for noted in recorder.noted for r in _records(noted, recorder, sources)]
    separate(records)
    records.sort(key=lambda r: (r.lane, r.start, -r.stop))
    nest(records)
    return Timeline(records, list(recorder.samples), recorder.began, recorder.ended, recorder.left_out, recorder.cost)


def _records(
    noted: Noted, recorder: Recorder, sources: dict[events.Launches, list[LaunchOrigin]]
) -> Iterator[TimelineRecord]:
    lane = recorder.lanes[noted.thread]
    match noted.what:
        case events.Run() as run:
            yield from _of_run(run, lane, _sources(run, recorder, sources), noted.stack)
        case Range(kind, name, start, stop, device, shapes, runs):
            source = LaunchOrigin((), _work(runs, recorder, sources), shapes)
            yield TimelineRecord(kind, name, device, lane, start, stop, source=source, stack=noted.stack)
        case event:
            name = event.name if event.kind != "copy" else f"copy {event.name}"
            on_device = event.kind in DEVICE_WORK and not is_host(event.device)
            yield TimelineRecord(
                event.kind, name, event.device, event.device if on_device else lane, event.start, event.stop,
                bytes=event.bytes, origin=event.origin, stack=() if on_device else noted.stack,
            )  # fmt: skip


def _work(
    runs: Sequence[events.Run], recorder: Recorder, sources: dict[events.Launches, list[LaunchOrigin]]
) -> Work | None:
    """Sum the work of all launches of some runs; None if it is not known."""
    whole = Work()
    for run in runs:
        for source in _sources(run, recorder, sources):
            if source.work is None:
                return None
            whole = whole.plus(source.work)
    return whole if runs else None


def _sources(
    run: events.Run, recorder: Recorder, known: dict[events.Launches, list[LaunchOrigin]]
) -> list[LaunchOrigin]:
    if run.launches not in known:
        known[run.launches] = sources_of(run.launches, recorder.compiled.get(run.launches))
    return known[run.launches]


def _of_run(
    run: events.Run, lane: str, sources: Sequence[LaunchOrigin], stack: tuple[str, ...]
) -> Iterator[TimelineRecord]:
    """Make the record of a run and those of its launches."""
    plan, stamps = run.launches, run.stamps
    whole = TimelineRecord("run", plan.name, plan.device, lane, run.start, run.stop, stack=stack)
    yield whole
    own_lane = lane if is_host(plan.device) else plan.device
    begun = stamps[0] if stamps else run.start
    for n, (step, source) in enumerate(zip(plan.steps, sources, strict=True)):
        ended = stamps[step.stamp] if stamps else run.start
        stream, timed = "", bool(stamps)
        if run.spans is not None:
            span = run.spans[n]
            timed, (begun, ended, stream) = span is not None, _times(span, run.start, plan.device)
        name = f"copy {step.name}" if step.kind == "copy" and not step.name.startswith("copy ") else step.name
        record = TimelineRecord(
            step.kind, name, plan.device, stream or own_lane, begun, ended, timed=timed, source=source, bytes=step.bytes
        )
        record.run, record.clock = whole, run.clock
        record.workers = tuple(_workers(run, plan.steps[n - 1].stamp if n else 0, step.stamp))
        yield record
        begun = ended


def _times(span: events.LaunchSpan | None, start: int, device: str) -> tuple[int, int, str]:
    """Return the times of a launch and its lane; where they are missing, the start of its run."""
    if span is None:
        return start, start, ""
    return span.start, span.stop, f"{device} stream {span.stream}"


def _workers(run: events.Run, before: int, stamp: int) -> Iterator[tuple[int, int, int]]:
    """List the workers that took part in the segments after one stamp up to another."""
    segments = len(run.stamps) - 1
    if not run.workers or segments < 1:
        return
    for worker in range(len(run.workers) // (2 * segments)):
        for segment in range(before, stamp):
            at = 2 * (worker * segments + segment)
            began, ended = run.workers[at], run.workers[at + 1]
            if began >= run.stamps[0]:
                yield worker, began, ended


def is_host(device: str) -> bool:
    """Test whether the host waits for each launch of a device."""
    return not device.startswith("cuda")


def separate(records: Iterable[TimelineRecord]) -> None:
    """Move work of a GPU that overlaps other work of its lane to further lanes: none is part of the other."""
    ends: dict[str, list[int]] = {}
    work = [r for r in records if r.timed and r.kind in DEVICE_WORK and not is_host(r.device)]
    for record in sorted(work, key=lambda r: (r.start, r.stop)):
        lanes = ends.setdefault(record.lane, [])
        n = next((n for n, end in enumerate(lanes) if end <= record.start), len(lanes))
        if n == len(lanes):
            lanes.append(0)
        lanes[n] = record.stop
        if n:
            record.lane = f"{record.lane} ({n + 1})"


def nest(records: Iterable[TimelineRecord]) -> None:
    """Find what each record is part of; records are sorted by lane and start, longer ones first."""
    open_: list[TimelineRecord] = []
    for record in records:
        while open_ and (open_[-1].lane != record.lane or open_[-1].stop < record.stop):
            open_.pop()
        if open_:
            record.parent = open_[-1]
            record.parent.parts += record.nanoseconds
        open_.append(record)
