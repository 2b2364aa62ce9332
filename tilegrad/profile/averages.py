"""Aggregate the records of a profile into rows, and compare each row with the limits of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.device import known_devices
from .count import Work
from .limit import launch_seconds, limit_of
from .timeline import Timeline, TimelineRecord


class Average:
    """The records of one key. Times are microseconds, as in PyTorch; None: not measured."""

    def __init__(
        self, key: str, records: Sequence[TimelineRecord], limits: Mapping[str, Mapping[str, Any]] = {}
    ) -> None:
        self.key = key
        self.records = records
        self.count = len(records)
        timed = [r for r in records if r.timed]
        self.timed = len(timed)
        host = [r for r in timed if not r.device.startswith("cuda") or r.kind == "run"]
        device_side = [r for r in timed if r.device.startswith("cuda") and r.kind != "run"]
        self.on_host, self.on_device = bool(host), bool(device_side)
        """Whether times of the host, and of a device, were measured."""
        self.self_cpu_time_total = sum(r.own for r in host) / 1e3
        self.cpu_time_total = sum(r.nanoseconds for r in host if not _within_own(r, key)) / 1e3
        self.self_device_time_total = sum(r.own for r in device_side) / 1e3
        self.device_time_total = sum(r.nanoseconds for r in device_side) / 1e3
        first = records[0] if records else None
        self.kind = first.kind if first else ""
        self.device = first.device if first else ""
        self.input_shapes = [list(shape) for shape in first.source.shapes] if first else []
        self.stack = list(first.path) if first else []
        self.work = _work(records)
        self.bytes = sum(r.bytes for r in records) or None
        self.flops = self.work.operations if self.work is not None else 0
        self.limit = self._limit(limits)

    def _limit(self, limits: Mapping[str, Mapping[str, Any]]) -> tuple[float, str] | None:
        """Return the shortest seconds that the machine allows for all calls together, and what bounds them."""
        known = limits.get(self.device)
        if not known or self.work is None or self.kind not in ("launch", "operation"):
            return None
        found = limit_of(self.work.each(self.count), known)
        return found.seconds * self.count, "launch" if found.seconds < launch_seconds(self.device) else found.bound

    @property
    def self_time(self) -> float:
        """Microseconds of its own, on the host or on a device."""
        return self.self_cpu_time_total + self.self_device_time_total

    @property
    def total_time(self) -> float:
        return self.cpu_time_total + self.device_time_total

    @property
    def cpu_time(self) -> float:
        """Mean of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    @property
    def cuda_time(self) -> float:
        return self.device_time

    @property
    def share_of_limit(self) -> float | None:
        """Ratio of the machine's limit to the measured time; None if either is not known."""
        if self.limit is None or not self.timed or self.timed != self.count or not self.limit[0]:
            return None
        return self.limit[0] / (self.self_time * 1e-6) if self.self_time else None

    @property
    def bound(self) -> str:
        """Bottleneck: memory, cache, arithmetic or launch of a kernel; data, compiler, Python of other rows."""
        if self.limit is not None:
            return self.limit[1]
        return {"load": "data", "compile": "compiler", "step": "Python", "range": "Python", "run": "launch"}.get(
            self.kind, ""
        )

    @property
    def lines(self) -> dict[str, float]:
        """The user's lines with their shares of the row's own time, the largest first."""
        found: dict[str, float] = {}
        for record in self.records:
            for line in record.source.lines:
                found[str(line)] = found.get(str(line), 0.0) + line.share * record.own
            if not record.source.lines and record.origin:
                found[record.origin] = found.get(record.origin, 0.0) + record.own
        whole = sum(found.values())
        return {k: v / whole if whole else 0.0 for k, v in sorted(found.items(), key=lambda kv: -kv[1])}

    @property
    def line(self) -> str:
        """The line with the largest share, with the number of others."""
        lines = list(self.lines)
        return f"{lines[0]}" + (f" +{len(lines) - 1}" if len(lines) > 1 else "") if lines else ""

    @property
    def module(self) -> str:
        """Path of the first module that the row belongs to."""
        return next((r.source.module for r in self.records if r.source.module), "")

    def __repr__(self) -> str:
        return f"<{self.key}: {self.count} calls, {self.self_time:.1f} us>"


def _within_own(record: TimelineRecord, key: str) -> bool:
    """Test whether a record is nested in one of the same name, whose time includes it."""
    above = record.parent
    while above is not None:
        if above.name == record.name and above.kind == record.kind:
            return True
        above = above.parent
    return False


def _work(records: Sequence[TimelineRecord]) -> Work | None:
    whole = Work()
    for record in records:
        if record.source.work is None:
            return None
        whole = whole.plus(record.source.work)
    return whole


SORTS: dict[str, Callable[[Average], float]] = {
    "cpu_time_total": lambda a: a.cpu_time_total,
    "self_cpu_time_total": lambda a: a.self_cpu_time_total,
    "cuda_time_total": lambda a: a.device_time_total,
    "self_cuda_time_total": lambda a: a.self_device_time_total,
    "device_time_total": lambda a: a.device_time_total,
    "self_device_time_total": lambda a: a.self_device_time_total,
    "cpu_time": lambda a: a.cpu_time,
    "cuda_time": lambda a: a.device_time,
    "device_time": lambda a: a.device_time,
    "count": lambda a: a.count,
    "bytes": lambda a: a.bytes or 0,
    "flops": lambda a: a.flops,
}


class Averages(list[Average]):
    """Rows, with the time that all of them cover."""

    def __init__(self, rows: Sequence[Average] = (), whole: Timeline | None = None, notes: Sequence[str] = ()) -> None:
        super().__init__(rows)
        self.timeline = whole
        self.notes = list(notes)
        self.by_shape = False
        """Whether the rows are grouped by the shapes of inputs, which are printed then."""

    def total_average(self) -> Average:
        """Return the sum of all rows as one row."""
        total = Average("Total", [r for row in self for r in row.records])
        total.cpu_time_total = total.self_cpu_time_total  # the parts of others are not counted twice
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100, *, top_level_events_only: bool = False,
              max_name_column_width: int = 55, **_: Any) -> str:  # fmt: skip
        """Format the rows as text: `sort_by` is one of PyTorch's names for times; `row_limit` -1 prints all."""
        from .table import table

        if sort_by is not None and sort_by not in SORTS:
            raise ArgumentError(f"table: sort_by is {sort_by!r}: it is one of {', '.join(SORTS)}")
        if not isinstance(row_limit, int):
            raise ArgumentError(f"table: row_limit is a whole number, -1 for all rows, not {row_limit!r}")
        chosen = [a for a in self if not top_level_events_only or any(r.parent is None for r in a.records)]
        order = SORTS[sort_by] if sort_by else lambda a: a.self_time
        rows = sorted(chosen, key=order, reverse=True)
        return table(rows if row_limit < 0 else rows[:row_limit], self, max_name_column_width)

    def __str__(self) -> str:
        return self.table()


def averages(
    records: Sequence[TimelineRecord], key: Callable[[TimelineRecord], tuple[Any, ...]], whole: Timeline | None = None,
    notes: Sequence[str] = (),
) -> Averages:  # fmt: skip
    """Group records by key, one row for each."""
    found: dict[tuple[Any, ...], list[TimelineRecord]] = {}
    for record in records:
        found.setdefault((record.kind, record.device, *key(record)), []).append(record)
    used = {r.device for r in records if r.kind in ("launch", "operation")}
    limits = {place.name: place.limits for place in known_devices() if place.name in used}
    rows = [Average(own[0].name, own, limits) for own in found.values()]
    return Averages(rows, whole, notes)
