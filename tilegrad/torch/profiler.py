"""`torch.profiler` and `torch.autograd.profiler`: what each operation takes, one at a time.

Within a profile operations are computed one by one, as PyTorch does it, each with its own time (compiling is not
counted). Elsewhere tilegrad fuses them: `tilegrad.explain` shows what is really run, and how long that takes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from typing import Any, NamedTuple

from ..errors import ArgumentError, TraceError
from ..ir.graph import Value, topological
from ..lazy.evaluation import compute
from ..lazy.handle import state
from ..lazy.storage import Storage
from ..ops.broadcasting import fill
from ..runtime import events


class ProfilerActivity(Enum):
    """What is looked at."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class Operation(NamedTuple):
    """One operation, or a part of the program with a name: when it began, and how long it and its parts took, in ns."""

    name: str
    device: str
    start: int
    own: int
    total: int
    shape: tuple[Any, ...] = ()


class OneByOne:
    """Whoever watches the operations of a thread (see `lazy.handle.Trace`): each is computed as soon as it is made."""

    at_once = True

    def __init__(self, record: Callable[[Operation], None]) -> None:
        self.record = record
        self.guards: list[Any] = []
        self.recording = True

    def read(self, tensor: Any) -> Value:
        return tensor.own_value()  # type: ignore[no-any-return]

    def read_whole(self, base: Any) -> Value:
        return base.current()  # type: ignore[no-any-return]

    def made(self, tensor: Any) -> None:
        value = tensor._value
        name = _named(value)
        if not name:
            return
        ran: list[int] = []
        start = events.now()
        state.trace = None
        try:
            with events.listening(lambda e: ran.append(e.stop - e.start) if e.kind == "run" else None):
                compute(tensor)
        except TraceError:
            return  # it stands for nothing outside of a function that is mapped
        finally:
            state.trace = self
        if self.recording and value.buffer is not None:
            took = sum(ran)
            self.record(Operation(name, value.device, start, took, took, tuple(value.shape)))

    def stored(self, tensor: Any, storage: Any) -> None: ...

    def writing(self, tensor: Any, base: Any) -> None: ...

    def gradient_read(self, tensor: Any) -> None: ...

    def gradient_set(self, tensor: Any) -> None: ...

    def reformed(self, tensor: Any, what: str) -> None: ...

    def takes(self, tensor: Any, elements: Any) -> bool:
        return True

    def within(self, op: str) -> AbstractContextManager[None]:
        return nullcontext()

    def making(self, op: str) -> AbstractContextManager[set[Storage]]:
        return nullcontext(set())

    def number(self, read: Callable[[], float], type: Any) -> Value:
        return fill(read(), type.shape, type.dtype, type.device)


def _named(value: Value) -> str:
    """What an operation that is not computed yet is called: its product, if it has one, else what comes last.

    A mere view has no name: nothing is computed for it.
    """
    if value.buffer is not None:
        return ""
    made = [v for v in topological([value], lambda v: v.buffer is not None) if v.buffer is None and v.inputs]
    working = [v for v in made if type(v).__module__.rpartition(".")[2] not in MOVING and type(v).__name__ not in MOVES]
    heavy = [v for v in working if type(v).__module__.rpartition(".")[2] in HEAVY]
    return (heavy or working)[-1].op if working else ""


HEAVY = {"contraction", "convolution", "batched", "attention", "recurrence", "pooling"}
"""Modules of operators next to which a sum or a bias does not count."""
MOVING = {"movement", "creation"}
MOVES = {"Reshape", "Detach", "Expand", "Fill"}


class Average(NamedTuple):
    """The operations of one name."""

    key: str
    count: int  # type: ignore[assignment]
    self_cpu_time_total: float
    """Microseconds."""
    cpu_time_total: float
    self_device_time_total: float = 0.0
    device_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        """Of one, on the average."""
        return self.cpu_time_total / self.count

    @property
    def cuda_time_total(self) -> float:
        """On GPUs."""
        return self.device_time_total


SORTS = {
    "cpu_time_total": lambda a: a.cpu_time_total,
    "self_cpu_time_total": lambda a: a.self_cpu_time_total,
    "cuda_time_total": lambda a: a.device_time_total,
    "self_cuda_time_total": lambda a: a.self_device_time_total,
    "device_time_total": lambda a: a.device_time_total,
    "cpu_time": lambda a: a.cpu_time,
    "count": lambda a: a.count,
}


class Averages(list[Average]):
    """Rows for each name."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **_: Any) -> str:
        """The rows as text: `sort_by` one of PyTorch's names for times; `row_limit` -1 for all."""
        if sort_by is not None and sort_by not in SORTS:
            raise ArgumentError(f"table: sort_by is {sort_by!r}: it is one of {', '.join(SORTS)}")
        rows = sorted(self, key=SORTS[sort_by or "cpu_time_total"], reverse=True)
        shown = rows if row_limit < 0 else rows[:row_limit]
        whole = sum(a.self_cpu_time_total for a in self)
        on_gpu = sum(a.self_device_time_total for a in self)
        width = max([4, *(len(a.key) for a in shown)])
        heads = [
            "Self CPU %",
            "Self CPU",
            "CPU total",
            "CPU time avg",
            *(["CUDA total"] if on_gpu else []),
            "# of Calls",
        ]
        lines = ["  ".join([f"{'Name':<{width}}", *(f"{h:>12}" for h in heads)])]
        rule = "-" * len(lines[0])
        for a in shown:
            share = 100 * a.self_cpu_time_total / whole if whole else 0.0
            cells = [f"{share:.2f}%", *map(_time, (a.self_cpu_time_total, a.cpu_time_total, a.cpu_time))]
            cells += [_time(a.device_time_total)] if on_gpu else []
            lines.append("  ".join([f"{a.key:<{width}}", *(f"{c:>12}" for c in [*cells, str(a.count)])]))
        total = [f"Self CPU time total: {_time(whole)}"] + ([f"CUDA time total: {_time(on_gpu)}"] if on_gpu else [])
        return "\n".join([rule, lines[0], rule, *lines[1:], rule, *total])

    def total_average(self) -> Average:
        """All of them as one row."""
        times: list[Any] = [sum(column) for column in zip(*(a[1:] for a in self), strict=True)]
        return Average("Total", *(times or [0, 0.0, 0.0]))

    def __str__(self) -> str:
        return self.table()


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def _averages(operations: Iterable[Operation]) -> Averages:
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.name, []).append(operation)
    rows = Averages()
    for name, each in found.items():
        parts = [
            sum(getattr(o, kind) for o in each if (o.device == "cpu") is on_cpu) / 1e3
            for on_cpu in (True, False)
            for kind in ("own", "total")
        ]
        rows.append(Average(name, len(each), *parts))
    return rows


_open: list[profile] = []


class profile:  # noqa: N801 - PyTorch's name
    """Records what runs within the block."""

    def __init__(
        self,
        enabled: Any = True,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        **_: Any,
    ) -> None:
        self.enabled = enabled is not False
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.operations: list[Operation] = []
        self._watch = OneByOne(self.operations.append)

    def __enter__(self) -> profile:
        self._before = state.trace
        if self.enabled:
            if state.trace is not None:
                raise ArgumentError("profile: a profile inside another, or inside of a traced function")
            _open.append(self)
            self._begin()
            state.trace = self._watch
        return self

    def __exit__(self, *_: object) -> None:
        if not self.enabled:
            return
        state.trace = self._before
        _open.remove(self)
        if self.schedule is None:
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif self._action is ProfilerAction.RECORD and self.operations and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    start, stop = __enter__, __exit__

    def _begin(self) -> None:
        self._action = self.schedule(self.step_num) if self.schedule else ProfilerAction.RECORD
        self._watch.recording = self._action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        self._step_start = events.now()

    def step(self) -> None:
        """One step is over, the next begins."""
        if self._watch.recording:
            took = events.now() - self._step_start
            self.operations.append(Operation(f"ProfilerStep#{self.step_num}", "cpu", self._step_start, 0, took))
        saved = self._action is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if saved and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        if saved:
            self.operations.clear()
        self._begin()

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Averages:
        """A row for each name."""
        if not group_by_input_shape:
            return _averages(self.operations)
        return _averages(o._replace(name=f"{o.name} {list(o.shape)}") for o in self.operations)

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The rows as text."""
        return self.key_averages().table(sort_by, row_limit, **options)

    def total_average(self) -> Average:
        """All of them as one row."""
        return self.key_averages().total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Writes what chrome://tracing and Perfetto show."""
        begin = min((o.start for o in self.operations), default=0)
        rows = [
            {"name": o.name, "ph": "X", "ts": (o.start - begin) / 1e3, "dur": max(o.total, 1) / 1e3, "pid": os.getpid(),
             "tid": o.device, "cat": "step" if o.name.startswith("ProfilerStep#") else "operation"}
            for o in sorted(self.operations, key=lambda o: (o.start, -o.total))
        ]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"traceEvents": rows, "displayTimeUnit": "ms"}, file)

    def __str__(self) -> str:
        return self.table()


@contextmanager
def record_function(name: str, args: str | None = None) -> Iterator[None]:
    """Within the block what runs has a name, which is a row of the profile."""
    if not _open:
        yield
        return
    current = _open[-1]
    first, start = len(current.operations), events.now()
    yield
    inner = sum(o.own for o in current.operations[first:])
    if current._watch.recording:
        current.operations.append(Operation(name, "cpu", start, 0, inner))


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """Which steps are recorded: after `skip_first`, cycles of `wait` and `warmup` that are not and `active` that are.

    >>> which = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [which(n).name for n in range(6)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE', 'NONE']
    """
    if wait < 0 or warmup < 0 or active < 1 or repeat < 0 or skip_first < 0:
        raise ArgumentError("schedule: active is at least 1, and the others are not negative")

    def action(step: int) -> ProfilerAction:
        cycle, place = divmod(step - skip_first, wait + warmup + active)
        if step < skip_first or (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Writes each trace to a file of a folder."""

    def write(finished: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        finished.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns() // 1_000_000}.pt.trace.json"))

    return write
