"""Profile programs as they really run, under PyTorch's names: `tg.profiler`.

    with tg.profiler.profile() as prof:
        for images, labels in loader:
            step(images, labels)
            prof.step()
    print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))

Programs are fused; each launch has its own time and the user's lines that it computes. With `one_by_one=True` each
operation is computed alone instead, as PyTorch's eager mode does it. What was not measured prints as a dash. While no
profile is open nothing is recorded, and nothing costs time.
"""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..lazy import handle, timing
from ..lazy.handle import state
from ..runtime import events
from ..viewer.model import page_of
from ..viewer.page import page
from ..viewer.traces import described
from . import nvtx
from .averages import Average, Averages, averages
from .counters import HardwareCounters, shown
from .difference import Difference, differences
from .files import write_whole
from .flame import folded
from .memory_timeline import write_memory_timeline
from .one_by_one import OneByOne
from .recorder import Range, Recorder
from .roofline import roofline
from .timeline import Timeline, TimelineRecord, is_host, timeline
from .trace import MAX_TRACE_BYTES, trace_text, write_trace


class ProfilerActivity(Enum):
    """A kind of device to profile."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """The action of a schedule in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_open: list[profile] = []


class profile:
    """Records what runs within the block, or between `start()` and `stop()`."""

    one_by_one_by_default = False

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        with_counters: bool = False,
        one_by_one: bool | None = None,
        **others: Any,
    ) -> None:
        for name in others:
            if name not in (
                "experimental_config",
                "execution_trace_observer",
                "acc_events",
                "use_cuda",
                "custom_trace_id_callback",
            ):
                raise ArgumentError(f"profile: there is no option {name!r}")
        self.activities = _activities(activities)
        for name, given in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if given is not None and not callable(given):
                raise ArgumentError(f"profile: {name} is a function, as of tilegrad.profiler.{name}, not {given!r:.60}")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.one_by_one = self.one_by_one_by_default if one_by_one is None else one_by_one
        self.step_num = 0
        self.metadata: dict[str, str] = {}
        self.notes: list[str] = []
        """Lines that each table ends with."""
        self._counters = HardwareCounters() if with_counters else None
        self._recorder = Recorder(with_stack=with_stack, memory=profile_memory)
        self._watch = OneByOne(self._recorder.operation) if self.one_by_one else None
        self._action = ProfilerAction.NONE
        self._running = False
        self._handling = False
        """Whether `on_trace_ready` runs."""
        self._recorded = False
        self._timeline: Timeline | None = None

    # -- when it records

    def start(self) -> profile:
        """Begin to record, as the schedule says."""
        if self._running:
            raise ArgumentError("profile: start() of a profile that runs already")
        if _open:
            raise ArgumentError("profile: another profile is open: stop it first, or use record_function within it")
        if self._watch is not None and state.trace is not None:
            raise ArgumentError("profile: one_by_one=True inside of a traced function")
        _open.append(self)
        self._running = True
        self._before = state.trace
        self._tracked = handle.watching() is not None
        timing.synchronize()  # what was recorded before is no part of the profile
        if self._counters is not None:
            self._counters.start()
        self._begin()
        return self

    def stop(self) -> None:
        """Record no more, and hand the records to `on_trace_ready`."""
        self._refuse_in_handler("stop")
        if not self._running:
            raise ArgumentError("profile: stop() without start()")
        try:
            self._finish_work()
            self._recorder.complete_times()
        finally:
            self._close()
        if self._action in RECORDING and (self.schedule is None or self._recorder.noted):
            self._ready()
        elif not self._recorded and self.schedule is not None:
            warnings.warn(
                f"profile: no step was recorded: the schedule records none of the first {self.step_num + 1}. "
                "Call step() in the loop, or make wait, warmup and skip_first smaller",
                stacklevel=2,
            )

    def _close(self) -> None:
        self._recorder.ended = events.now()
        if self._counters is not None:
            found = self._counters.stop()
            self.notes = [shown(found) if found else self._counters.refused]
            gpus = sorted({launches.device for launches in self._recorder.compiled if not is_host(launches.device)})
            self.notes += [
                f"hardware counters of {gpu}: not read; NVIDIA's `ncu python ...` reads them" for gpu in gpus
            ]
        if not self._tracked:
            timing.end()
        self._recorder.recording = False
        self._recorder.detach()
        if self._watch is not None:
            state.trace = self._before
        self._running = False
        _open.remove(self)

    def __enter__(self) -> profile:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        elif self._running:
            self._close()  # what raised is more important than the profile

    def step(self) -> None:
        """End a step, and begin the next."""
        self._refuse_in_handler("step")
        if not self._running:
            raise ArgumentError("profile: step() outside of the profile: call it within the `with` block")
        self._finish_work()
        if self._action in RECORDING:
            self._recorder.note(Range("step", f"ProfilerStep#{self.step_num}", self._step_began, events.now()))
        ready = self._action is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if ready:
            self._recorder.complete_times()
            self._recorder.ended = events.now()
            self._recorder.recording = False
            self._ready()
        self._begin(ready)

    def _finish_work(self) -> None:
        """Compute and await the pending work of the step, so that it is not counted in the next."""
        if self._action is not ProfilerAction.NONE:
            timing.synchronize()

    def _begin(self, is_new: bool = True) -> None:
        before, self._action = self._action, self._asked()
        recorder = self._recorder
        recording = self._action in RECORDING
        if recording and (before not in RECORDING or is_new):
            if recorder.attached:
                recorder.complete_times()  # what ran before is no part of the profile
            recorder.clear()
            self._timeline = None
        if self._action is ProfilerAction.NONE:
            recorder.detach()
        else:
            recorder.attach()
        recorder.recording = recording
        self._recorded = self._recorded or recording
        if self._watch is not None:
            state.trace = self._watch if self._action is not ProfilerAction.NONE else self._before
        self._step_began = events.now()

    def _asked(self) -> ProfilerAction:
        action = self.schedule(self.step_num) if self.schedule is not None else ProfilerAction.RECORD
        if not isinstance(action, ProfilerAction):
            raise ArgumentError(f"profile: the schedule gives a ProfilerAction for each step, not {action!r:.40}")
        return action

    def _ready(self) -> None:
        if self.on_trace_ready is not None:
            self._handling = True
            try:
                self.on_trace_ready(self)
            finally:
                self._handling = False

    def _refuse_in_handler(self, method: str) -> None:
        if self._handling:
            raise ArgumentError(f"profile: {method}() within on_trace_ready: the profile goes on after it by itself")

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Pause recording, or go on."""
        self._recorder.recording = enable and self._action in RECORDING

    # -- what was recorded

    @property
    def timeline(self) -> Timeline:
        """All records with their times."""
        recorder = self._recorder
        if self._timeline is None or recorder.recording:
            if recorder.recording:
                recorder.complete_times()
                recorder.ended = events.now()
            found = timeline(recorder)
            if ProfilerActivity.CUDA not in self.activities:
                found = found._replace(records=[r for r in found.records if not r.device.startswith("cuda")])
            self._timeline = found
        return self._timeline

    def events(self) -> list[TimelineRecord]:
        """List the records, those of a thread or a device in order of time."""
        return self.timeline.records

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> Averages:
        """Aggregate the records by name and line of the user; with `group_by_input_shape` also by the shapes of the
        inputs, with `group_by_stack_n` by so many of the innermost places.
        """

        def key(r: TimelineRecord) -> tuple[Any, ...]:
            shapes = r.source.shapes if group_by_input_shape else ()
            stack = r.path[-1 - group_by_stack_n : -1] if group_by_stack_n else ()
            return (r.name if r.kind != "step" else "ProfilerStep*", r.line, r.source.module, shapes, stack)

        found = averages(self.timeline.records, key, self.timeline, self.notes)
        found.by_shape = group_by_input_shape
        for row in found:
            if row.kind == "step":
                row.key = "ProfilerStep*"
        return found

    def by_line(self) -> dict[str, float]:
        """Sum the microseconds of launches by line of the user, the largest first; a launch is shared by its lines."""
        return self._shared(str)

    def by_module(self) -> dict[str, float]:
        """Sum the microseconds of launches by path of the module, the largest first."""
        return self._shared(lambda line: line.module)

    def _shared(self, key: Callable[[Any], str]) -> dict[str, float]:
        found: dict[str, float] = {}
        for record in self.timeline.launches:
            for line in record.source.lines:
                found[key(line)] = found.get(key(line), 0.0) + line.share * record.nanoseconds / 1e3
        return dict(sorted(found.items(), key=lambda kv: -kv[1]))

    def total_average(self) -> Average:
        """Return the sum of all rows as one row."""
        return self.key_averages().total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """Format the rows as text."""
        return self.key_averages().table(sort_by, row_limit, **options)

    def diff(self, other: profile | Mapping[str, Any] | str | os.PathLike[str]) -> Difference:
        """Compare with another profile: what got slower or faster, by kernel and line."""
        return differences(other.summary() if isinstance(other, profile) else other, self.summary())

    def summary(self) -> dict[str, Any]:
        """Return the rows as plain data, which `python -m tilegrad compare` reads from a file."""
        from .difference import summary

        return summary(self.timeline)

    def export_chrome_trace(self, path: str | os.PathLike[str], max_bytes: int = MAX_TRACE_BYTES) -> None:
        """Write a trace for chrome://tracing and Perfetto; of a profile that is too large, its slowest steps."""
        write_trace(self.timeline, path, self.metadata, max_bytes, self.summary())

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack with its microseconds, as programs that draw flame graphs read it."""
        if metric not in ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"):
            raise ArgumentError(
                f"export_stacks: metric is {metric!r}: it is self_cpu_time_total or self_cuda_time_total"
            )
        folded(self.timeline, path, "cpu" if metric == "self_cpu_time_total" else "cuda")

    def export_memory_timeline(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        """Write the live bytes over time: `.json`, or `.html` with a picture."""
        if not self._recorder.memory:
            raise ArgumentError("export_memory_timeline: the profile has no memory in it: profile(profile_memory=True)")
        write_memory_timeline(self.timeline, Path(path), device)

    def export_roofline(self, path: str | os.PathLike[str], device: str = "cpu") -> None:
        """Draw the kernels of a device beside its measured limits, as SVG."""
        write_whole(path, roofline(self.key_averages(), device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the viewer's page of it: one HTML file that needs nothing but itself."""
        trace = json.loads(trace_text(self.timeline, self.metadata, MAX_TRACE_BYTES, self.summary()))
        name = Path(path).stem
        write_whole(path, page(page_of(name, traces=[described(name, trace)])))

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text in the trace."""
        self.metadata[key] = value

    add_metadata_json = preset_metadata_json = add_metadata

    def __str__(self) -> str:
        return self.table()


def _activities(given: Iterable[Any] | None) -> frozenset[ProfilerActivity]:
    if given is not None and not isinstance(given, Iterable):
        raise ArgumentError(f"profile: activities are a list of ProfilerActivity, not {given!r:.40}")
    found = frozenset(ProfilerActivity) if given is None else frozenset(given)
    for activity in found:
        if not isinstance(activity, ProfilerActivity):
            raise ArgumentError(f"profile: activities are of ProfilerActivity, not {activity!r:.40}")
    if not found:
        raise ArgumentError("profile: activities is empty: there is nothing to look at")
    return found


def supported_activities() -> set[ProfilerActivity]:
    """List the kinds of devices that can be profiled here."""
    from ..runtime.device import devices

    return {a for a in ProfilerActivity if a.name.lower() in {d.kind for d in devices()}}


class emit_nvtx:
    """Pushes the ranges of `record_function` to NVIDIA's tools within the block."""

    opened = 0

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        emit_nvtx.opened += self.enabled
        return self

    def __exit__(self, *_: object) -> None:
        emit_nvtx.opened -= self.enabled


class record_function(ContextDecorator):
    """Gives what runs within the block, or in a function that it decorates, a name in the profile."""

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"record_function: the name is a text, not {name!r:.40}")
        self.name = name
        self._starts: list[int] = []

    def __enter__(self) -> record_function:
        if emit_nvtx.opened:
            nvtx.range_push(self.name)
        self._starts.append(events.now())
        return self

    def __exit__(self, *_: object) -> None:
        start = self._starts.pop()
        if emit_nvtx.opened:
            nvtx.range_pop()
        if _open:
            _open[-1]._recorder.note(Range("range", self.name, start, events.now()))


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Choose which steps are recorded: after `skip_first`, cycles of `wait` and `warmup` that are not and `active` that
    are, `repeat` times or (0) to the end.

    >>> which = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [which(n).name for n in range(6)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE', 'NONE']
    """
    numbers = (wait, warmup, active, repeat, skip_first, skip_first_wait)
    if not all(isinstance(n, int) for n in numbers) or active < 1 or min(numbers) < 0:
        raise ArgumentError("schedule: active is at least 1, and the others are not negative")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step >= 0 and skip_first_wait:
            step += wait
        number, place = divmod(step, cycle)
        if step < 0 or (repeat and number >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Make a handler that writes each trace to a file of a folder. If it cannot, it warns, and the training goes on."""

    def write(finished: profile) -> None:
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        file = f"{name}.{time.time_ns() // 1_000_000}.pt.trace.json{'.gz' if use_gzip else ''}"
        try:
            os.makedirs(dir_name, exist_ok=True)
            finished.export_chrome_trace(os.path.join(dir_name, file))
        except OSError as problem:
            warnings.warn(f"the trace is not written: {problem}", stacklevel=2)

    return write
