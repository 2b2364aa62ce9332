"""Runs for debugging and profiling: every kernel timed, or checked by the interpreter before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import KernelError
from ...ir.dtype import DType
from ...runtime import events
from .driver import CopyCall, Driver, KernelCall
from .plan import PlannedCall
from .queues import Queue

if TYPE_CHECKING:
    from .device import CudaDevice

WATCHED = ("synchronous", "checked")
"""Settings of TILEGRAD_CUDA that wait for every kernel."""
SUBMISSION_NS, MAX_DELAY_NS = 8_000, 20_000_000
"""Nanoseconds in which the host submits a launch and an event, at most; longest time for which a GPU waits for it."""
CALIBRATIONS = 5
"""Measurements of the cost of an event pair, of which the median counts."""


def profile_steps(device: CudaDevice, queue: Queue, launches: events.Launches, steps: Sequence[PlannedCall]) -> None:
    """Run the steps one after the other and emit the GPU time of each, by events.

    The GPU waits until the host has submitted all: otherwise short kernels would be timed with gaps in which the host
    submits. The measured cost of an event pair is subtracted.
    """
    with device.launch_timer.not_recorded() if device.launch_timer is not None else nullcontext():
        _profile_by_events(device, queue, launches, steps)


def _profile_by_events(
    device: CudaDevice, queue: Queue, launches: events.Launches, steps: Sequence[PlannedCall]
) -> None:
    driver = device.driver
    cost = event_pair_cost(device, queue)
    marks = [driver.new_event(True) for _ in range(len(steps) + 1)]
    driver.await_stream(queue.handle)
    start = events.now()
    delay = min(MAX_DELAY_NS, SUBMISSION_NS * (len(steps) + 1))
    delayed = driver.delay(delay, queue.handle)
    driver.record(marks[0], queue.handle)
    for step, mark in zip(steps, marks[1:], strict=True):
        driver.start(step.call, queue.handle)
        driver.record(mark, queue.handle)
    stop = events.now()
    driver.await_event(marks[-1])
    elapsed = [round(driver.elapsed(marks[0], mark) * 1e6) for mark in marks]
    times = stamps_of(elapsed, cost, events.now() - elapsed[-1] if delayed else start)
    overhead = delayed * delay + cost * len(steps)
    reason = f" ({device.timing_by_events})" if device.timing_by_events else ""
    clock = f"events, one launch after the other, where graphs overlap them{reason}"
    events.emit_run(events.Run(launches, start, stop, times if device.runs else (), (), overhead, None, clock))
    for mark in marks:
        driver.end_event(mark)


def event_pair_cost(device: CudaDevice, queue: Queue) -> int:
    """Measure the nanoseconds that an event before and one after a kernel add to its time.

    One and two kernels are timed that do nothing: the second one adds its own time only.
    """
    if device.event_cost is None:
        driver = device.driver
        found = [0]
        if driver.delay(0, queue.handle):
            found = [
                2 * _time_of_delays(driver, queue, 1) - _time_of_delays(driver, queue, 2) for _ in range(CALIBRATIONS)
            ]
        device.event_cost = max(0, sorted(found)[len(found) // 2])
    return device.event_cost


def _time_of_delays(driver: Driver, queue: Queue, count: int) -> int:
    """Time kernels that do nothing, in nanoseconds."""
    marks = [driver.new_event(True) for _ in range(2)]
    driver.delay(SUBMISSION_NS * (count + 2), queue.handle)
    driver.record(marks[0], queue.handle)
    for _ in range(count):
        driver.delay(0, queue.handle)
    driver.record(marks[1], queue.handle)
    driver.await_event(marks[1])
    found = round(driver.elapsed(*marks) * 1e6)
    for mark in marks:
        driver.end_event(mark)
    return found


def stamps_of(elapsed: Sequence[int], cost: int, start: int) -> list[int]:
    """Turn the times of events into time stamps, without the cost of the events; they increase strictly, since events
    have a resolution of half a microsecond.

    >>> stamps_of([0, 10_000, 10_500, 40_500], 1_000, 100)
    [100, 9100, 9101, 38101]
    """
    found = [start]
    for before, after in pairwise(elapsed):
        found.append(found[-1] + max(1, after - before - cost))
    return found


def launches_of(device: CudaDevice, name: str, steps: Sequence[PlannedCall], executable: Any = None) -> events.Launches:
    """Describe the launches of a program to profiles."""
    return events.Launches(name, device.name, [_launched(step, n) for n, step in enumerate(steps, 1)], executable)


def _launched(step: PlannedCall, number: int) -> events.Launched:
    if isinstance(step.call, CopyCall):
        return events.Launched("copy", step.origin.removeprefix("to "), number, step.bytes, step.operations)
    return events.Launched("launch", step.call.name, number, step.bytes, step.operations)


def check_accesses(device: CudaDevice, queue: Queue, step: PlannedCall) -> None:
    """Interpret a launch on a copy of its memory first, with all checks; raise KernelError for an invalid access."""
    from ..reference.tile import run

    call, launch = step.call, step.launch
    if launch is None or not isinstance(call, KernelCall):
        return
    parameters = launch.kernel.parameters
    known: dict[int, np.ndarray] = {}
    arguments: list[Any] = []
    for parameter, word, bytes in zip(parameters, call.slots, step.sizes, strict=False):
        if not parameter.pointer:
            arguments.append(decode_argument(word, parameter.dtype))
            continue
        if word not in known:
            known[word] = _download(device, queue, word, bytes)
        arguments.append(known[word].view(parameter.dtype.numpy))
    extents = tuple(call.slots[len(parameters) : len(parameters) + 3])
    try:
        run(launch.kernel, arguments, extents, checked=True)
    except KernelError as problem:
        given = ", ".join(f"{p.name} is {a}" for p, a in zip(parameters, launch.arguments, strict=True) if p.pointer)
        raise KernelError(
            f"{problem}\n(on {device.name}, where {given}; of {step.origin or 'no known line'})"
        ) from None


def decode_argument(word: int, dtype: DType) -> Any:
    """Decode a kernel argument from 8 bytes.

    >>> from ...ir.dtype import float32, int32
    >>> decode_argument(2**32 - 1, int32), decode_argument(0x3F800000, float32)
    (-1, 1.0)
    """
    return np.frombuffer(word.to_bytes(8, "little"), dtype.numpy)[0].item()


def _download(device: CudaDevice, queue: Queue, address: int, bytes: int) -> np.ndarray:
    """Copy GPU memory to the host."""
    array = np.zeros(bytes, np.uint8)
    if bytes:
        device.staging.download(int(array.__array_interface__["data"][0]), address, bytes, queue)
    return array
