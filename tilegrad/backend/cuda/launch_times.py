"""Time the launches of programs by the GPU's own records, for profiles; by events where there are none.

Programs run as they do without a profile, graphs included. Work is submitted in numbered regions: one for each launch,
or one for a graph, whose records carry the number of their node. When the profile is read, the records are related to
the launches, and what belongs to none (copies of tensors, kernels of other libraries) becomes an event of its own.

CUPTI is trusted after a trial only: kernels of known durations must be found in its records, in their regions and
nodes. Records that contradict themselves or the launches end it: times are missing then, never wrong.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from ...config import settings
from ...errors import DeviceError
from ...runtime import events
from .activity import Activity, ActivityRecorder, UnexpectedRecords
from .driver import KernelCall, LibraryCall
from .plan import PlannedCall
from .queues import Queue

if TYPE_CHECKING:
    from .device import CudaDevice
    from .graphs import ProgramGraph

TRIAL_NS = (20_000, 60_000, 40_000)
"""Durations of the kernels of a trial, in nanoseconds."""
TRIAL_SLACK_NS = 8_000
"""Nanoseconds by which a kernel of a trial may take longer; less than half of the least difference of two."""
MIN_TRIAL_SHARE = 0.9
"""Share of its duration that a kernel of a trial takes at least: the timer by which it waits advances in steps."""
TRIALS = 3
"""Trials of a device: other processes may disturb one."""
FAULT = "CUPTI's records are not what they should be"
CLOCK = "the GPU's own records (CUPTI)"
TIMED_OTHERWISE = 0
"""The region of work whose records are not wanted: events time it."""
CALIBRATIONS = 20
"""Regions that are entered and left to measure what that costs."""


class PendingRegion(NamedTuple):
    """Submitted work whose records are awaited."""

    spans: list[events.LaunchSpan | None]
    """Receives the times of the launches of the run."""
    first: int
    """The index of the first of its launches in the run."""
    steps: Sequence[PlannedCall]
    nodes: Mapping[int, int] | None = None
    """The launch of each node of a graph; None outside of graphs."""


class LaunchTimer:
    """Relates the records of a process's GPUs to the launches of its programs."""

    def __init__(self, cupti: ActivityRecorder) -> None:
        self.cupti = cupti
        self.fault = ""
        """Why the records are not trusted any more."""
        self.node_names: dict[CudaDevice, str] = {}
        """For each device that passed its trial, the field that names the node of a graph; empty: none does."""
        self.region_cost = 0
        """Nanoseconds of the host for a region."""
        self._waiting: dict[int, PendingRegion] = {}
        self._early: list[Activity] = []
        """Records that a trial of another device has found."""
        self._numbers = count(1)
        self._lock = RLock()

    @property
    def is_active(self) -> bool:
        return bool(self.cupti.enabled)

    # --- trial ---------------------------------------------------------------------------------

    def begin(self, device: CudaDevice, queue: Queue) -> None:
        """Begin to record, after a trial of the device; DeviceError if its records cannot be used."""
        with queue.lock, self._lock:  # in this order: whoever submits holds the first
            if self.fault:
                raise DeviceError(self.fault)
            if not self.is_active:
                self._waiting.clear()
                self._early.clear()
                self.cupti.enable()
            if device not in self.node_names:
                for other in self.node_names:
                    other.synchronize()  # a flush loses unfinished records
                for left in reversed(range(TRIALS)):
                    try:
                        self.node_names[device] = self._trial(device, queue)
                        break
                    except DeviceError as problem:
                        if not left:
                            self.end()
                            if isinstance(problem, UnexpectedRecords):
                                self.fault = f"{FAULT}: {problem.args[0]}"
                                raise DeviceError(self.fault) from None
                            raise

    def end(self) -> None:
        """Record no more."""
        with self._lock:
            self._waiting.clear()
            self.cupti.disable()

    def _trial(self, device: CudaDevice, queue: Queue) -> str:
        """Time kernels of known durations, alone and in a graph; return the field that names nodes of graphs."""
        driver = device.driver
        calls = [driver.delay_call(ns) for ns in TRIAL_NS]
        if None in calls:
            raise DeviceError("CUPTI is not tried without a compiler (NVRTC)")
        cost = []
        for _ in range(CALIBRATIONS):
            start = events.now()
            self.cupti.push(next(self._numbers))
            self.cupti.pop()
            cost.append(events.now() - start)
        self.region_cost = round(statistics.median(cost))
        driver.await_stream(queue.handle)
        began = events.now()
        alone, graphed = next(self._numbers), next(self._numbers)
        self.cupti.push(alone)
        for call in calls:
            driver.launch(call, queue.handle)  # type: ignore[arg-type]
        self.cupti.pop()
        graph = driver.new_graph()
        nodes: list[int] = []
        for call in calls:
            nodes.append(driver.add_node(graph, call, nodes[-1:], device.context))  # type: ignore[arg-type]
        executable = driver.instantiate(graph)
        self.cupti.push(graphed)
        driver.launch_graph(executable, queue.handle)
        self.cupti.pop()
        driver.await_stream(queue.handle)
        ended = events.now()
        found = self.cupti.take()
        own, regions = (alone, graphed), self.cupti.regions
        self._early += [a for a in found if regions.get(a.correlation) not in own]
        numbers = [self.cupti.node_number(node) for node in nodes]
        driver.end_graph(graph, executable)
        self._check_trial(device, self._of_region(found, alone), ended - began)
        return _node_field(self._of_region(found, graphed), numbers)

    def _of_region(self, found: Iterable[Activity], region: int) -> list[Activity]:
        return sorted(
            (a for a in found if self.cupti.regions.get(a.correlation) == region), key=lambda a: a.correlation
        )

    def _check_trial(self, device: CudaDevice, found: Sequence[Activity], passed: int) -> None:
        """Compare the records of the kernels with what is known of them."""
        times = [a.stop - a.start for a in found]
        if len(found) != len(TRIAL_NS):
            raise UnexpectedRecords(f"{len(found)} of {len(TRIAL_NS)} kernels of a trial were found again")
        if any(a.name != "delay" or a.device != device.number or a.node for a in found):
            raise UnexpectedRecords(f"the kernels of a trial have other names or devices: {found}")
        if not _close(times) or sum(times) > passed:
            raise UnexpectedRecords(f"kernels of {TRIAL_NS} ns took {times} ns by its records, {passed} ns in all")

    # --- runs ----------------------------------------------------------------------------------

    def can_time(self, device: CudaDevice, steps: Sequence[PlannedCall]) -> bool:
        """Return whether records of a graph with these steps name their launches."""
        return bool(self.node_names.get(device)) and not any(isinstance(s.call, LibraryCall) for s in steps)

    def run(
        self, device: CudaDevice, queue: Queue, launches: events.Launches, steps: Sequence[PlannedCall],
        graph: ProgramGraph | None = None,
    ) -> None:  # fmt: skip
        """Submit the steps of a program, or its graph, and report the run; times follow when they are delivered."""
        spans: list[events.LaunchSpan | None] = [None] * len(steps)
        driver, cupti = device.driver, self.cupti
        start = events.now()
        if graph is not None:
            cupti.push(self._await(PendingRegion(spans, 0, steps, self._nodes_of(device, graph))))
            try:
                driver.launch_graph(graph.executable, queue.handle)
            finally:
                cupti.pop()
        else:
            for n, step in enumerate(steps):
                cupti.push(self._await(PendingRegion(spans, n, (step,))))
                try:
                    driver.start(step.call, queue.handle)
                finally:
                    cupti.pop()
        stop = events.now()
        regions = 1 if graph is not None else len(steps)
        try:
            cupti.relieve()
        except DeviceError as problem:
            self._distrust(problem)
        events.emit_run(events.Run(launches, start, stop, (), (), regions * self.region_cost, spans, CLOCK))

    @contextmanager
    def not_recorded(self) -> Iterator[None]:
        """Leave out the records of what is submitted within the block: events time it."""
        is_active = self.is_active
        if is_active:
            self.cupti.push(TIMED_OTHERWISE)
        try:
            yield
        finally:
            if is_active:
                self.cupti.pop()

    def _await(self, region: PendingRegion) -> int:
        number = next(self._numbers)
        self._waiting[number] = region
        return number

    def _nodes_of(self, device: CudaDevice, graph: ProgramGraph) -> dict[int, int]:
        """Map the numbers of a graph's nodes to its launches; empty if the order of numbers is that of the launches."""
        if self.node_names[device] == "order":
            return {}
        if graph.node_numbers is None:
            graph.node_numbers = {self.cupti.node_number(node): n for n, node in enumerate(graph.nodes)}
        return graph.node_numbers

    # --- records -------------------------------------------------------------------------------

    def deliver(self, known: Mapping[int, str]) -> None:
        """Give the runs their times, and report work outside of them. All submitted work must be done.

        `known` are the names of the devices whose work is reported, by number.
        """
        with self._lock:
            if not self.is_active:
                return
            try:
                outside = self._deliver()
            except DeviceError as problem:
                self._distrust(problem)
                return
        for a in outside:
            if a.device in known:
                kind: Any = a.kind
                events.emit(kind, a.name, known[a.device], a.start, a.stop, a.bytes)

    def _distrust(self, problem: DeviceError) -> None:
        """Use no records any more, for a reason."""
        self.fault = f"{FAULT}: {problem.args[0]}"
        self.end()
        warnings.warn(f"profile: launches have no time: {self.fault}. From now on events time them", stacklevel=3)

    def _deliver(self) -> list[Activity]:
        by_region: dict[int, list[Activity]] = {}
        regions = self.cupti.regions
        outside = []
        early, self._early = self._early, []
        for a in [*early, *self.cupti.take()]:
            number = regions.get(a.correlation, -1)
            if number in self._waiting:
                by_region.setdefault(number, []).append(a)
            elif number != TIMED_OTHERWISE:
                outside.append(a)
        for number, found in by_region.items():
            region = self._waiting.pop(number)
            for n, own in _by_launch(region, found).items():
                region.spans[region.first + n] = events.LaunchSpan(
                    min(a.start for a in own), max(a.stop for a in own), own[0].stream
                )
        regions.clear()
        return outside


def _close(times: Sequence[int]) -> bool:
    """Test whether times are those of the kernels of a trial.

    >>> _close([20_500, 61_000, 40_700]), _close([20_500, 40_700, 61_000])
    (True, False)
    """
    return all(MIN_TRIAL_SHARE * ns <= time <= ns + TRIAL_SLACK_NS for time, ns in zip(times, TRIAL_NS, strict=True))


def _node_field(found: Sequence[Activity], numbers: Sequence[int]) -> str:
    """Return the field of the records of a trial's graph that names the node, or "order" if nodes are numbered in the
    order of the launches; empty if neither can be relied on.
    """
    if len(found) != len(TRIAL_NS):
        return ""
    for field in ("node", "source_node"):
        by_number = {getattr(a, field): a for a in found}
        if all(number in by_number for number in numbers) and len(by_number) == len(found):
            own = [by_number[number] for number in numbers]
            return field if _close([a.stop - a.start for a in own]) else ""
    own = sorted(found, key=lambda a: a.node)
    distinct = len({a.node for a in own}) == len(own)
    return "order" if distinct and _close([a.stop - a.start for a in own]) else ""


def _by_launch(region: PendingRegion, found: Sequence[Activity]) -> dict[int, list[Activity]]:
    """Relate the records of a region to its launches, and check that they fit.

    What a library does within a launch may be several kernels.
    """
    own: dict[int, list[Activity]] = {}
    if region.nodes is None:
        own = {0: list(found)}
    elif region.nodes:
        for a in found:
            n = region.nodes.get(a.node, region.nodes.get(a.source_node, -1))
            if n >= 0:
                own.setdefault(n, []).append(a)
    elif len(found) == len(region.steps):
        own = {n: [a] for n, a in enumerate(sorted(found, key=lambda a: a.node))}
    for n, activities in own.items():
        call = region.steps[n].call
        if isinstance(call, KernelCall) and call.symbol:
            names = {a.name for a in activities if a.kind == "launch"}
            if names != {call.symbol}:
                raise UnexpectedRecords(f"the launch of {call.symbol} has records of {', '.join(sorted(names))}")
    return own


def timer_of(device: CudaDevice, queue: Queue) -> LaunchTimer | None:
    """Return the timer of a device's launches; None if events time them."""
    if not (device.runs and events.accept_later_times()):
        return None
    timer = device.launch_timer
    if timer is not None and timer.is_active:
        return timer
    if device.timing_by_events:
        return None
    if not settings().cupti:
        device.timing_by_events = "TILEGRAD_CUPTI=off"
        return None
    try:
        timer = device.driver.launch_timer()
        if timer is None:
            device.timing_by_events = "CUPTI is not installed"
            return None
        timer.begin(device, queue)
    except DeviceError as refused:
        device.timing_by_events = str(refused.args[0])
        return None
    device.launch_timer = timer
    return timer
