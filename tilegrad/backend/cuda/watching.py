"""Runs for debugging and profiling: every kernel timed, or checked by the interpreter before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import KernelError
from ...ir.dtype import DType
from ...runtime import events
from .driver import CopyCall, KernelCall
from .plan import PlannedCall
from .queues import Queue

if TYPE_CHECKING:
    from .device import CudaDevice

WATCHED = ("synchronous", "checked")
"""Settings of TILEGRAD_CUDA that wait for every kernel."""


def profile_steps(
    device: CudaDevice, queue: Queue, name: str, steps: Sequence[PlannedCall], executable: Any = None
) -> None:
    """Run the steps one after the other and emit the GPU time of each."""
    driver = device.driver
    marks = [driver.new_event(True) for _ in range(len(steps) + 1)]
    driver.await_stream(queue.handle)
    start = events.now()
    driver.record(marks[0], queue.handle)
    for step, mark in zip(steps, marks[1:], strict=True):
        driver.start(step.call, queue.handle)
        driver.record(mark, queue.handle)
    stop = events.now()
    driver.await_event(marks[-1])
    times = [start + round(driver.elapsed(marks[0], mark) * 1e6) for mark in marks]
    launches = events.Launches(
        name, device.name, [_launch_event(step, n) for n, step in enumerate(steps, 1)], executable
    )
    events.emit_run(events.Run(launches, start, stop, _increasing(times) if device.runs else ()))
    for mark in marks:
        driver.end_event(mark)


def _launch_event(step: PlannedCall, number: int) -> events.Launched:
    if isinstance(step.call, CopyCall):
        return events.Launched("copy", step.origin.removeprefix("to "), number, step.bytes, step.operations)
    return events.Launched("launch", step.call.name, number, step.bytes, step.operations)


def _increasing(times: list[int]) -> list[int]:
    """Make times strictly increasing: events of a GPU have a resolution of half a microsecond."""
    for n in range(1, len(times)):
        times[n] = max(times[n], times[n - 1] + 1)
    return times


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
