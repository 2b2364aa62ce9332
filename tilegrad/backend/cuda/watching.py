"""Runs that are watched: every kernel timed, or checked by the interpreter before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import KernelError
from ...ir.dtype import DType
from ...runtime import events
from .driver import CopyCall, KernelCall
from .plan import Step
from .queues import Queue

if TYPE_CHECKING:
    from .device import CudaDevice

WATCHED = ("synchronous", "checked")
"""Settings of TILEGRAD_CUDA under which every kernel is waited for."""


def profiled(device: CudaDevice, queue: Queue, name: str, steps: Sequence[Step]) -> None:
    """Runs the steps one after the other, and tells those who listen how long the GPU took for each."""
    driver = device.driver
    marks = [driver.new_event(True) for _ in range(len(steps) + 1)]
    driver.await_stream(queue.handle)
    start = events.now()
    driver.record(marks[0], queue.handle)
    for step, mark in zip(steps, marks[1:], strict=True):
        driver.start(step.call, queue.handle)
        driver.record(mark, queue.handle)
    driver.await_event(marks[-1])
    times = [start + round(driver.elapsed(marks[0], mark) * 1e6) for mark in marks]
    for step, begin, end in zip(steps, times, times[1:], strict=False):
        kind: events.Kind = "copy" if isinstance(step.call, CopyCall) else "launch"
        label = step.call.name if kind == "launch" else step.origin.removeprefix("to ")
        events.emit(kind, label, device.name, begin, max(end, begin + 1), step.bytes, step.operations)
    events.emit("run", name, device.name, start, max(times[-1], start + 1))
    for mark in marks:
        driver.end_event(mark)


def check_accesses(device: CudaDevice, queue: Queue, step: Step) -> None:
    """KernelError, naming the index and the tensor, if the kernel would touch what it must not.

    The interpreter runs the launch on a copy of its memory first, with all its checks.
    """
    from ..reference.tile import run

    call, launch = step.call, step.launch
    if launch is None or not isinstance(call, KernelCall):
        return
    parameters = launch.kernel.parameters
    known: dict[int, np.ndarray] = {}
    arguments: list[Any] = []
    for parameter, word, bytes in zip(parameters, call.slots, step.sizes, strict=False):
        if not parameter.pointer:
            arguments.append(number(word, parameter.dtype))
            continue
        if word not in known:
            known[word] = _fetched(device, queue, word, bytes)
        arguments.append(known[word].view(parameter.dtype.numpy))
    extents = tuple(call.slots[len(parameters) : len(parameters) + 3])
    try:
        run(launch.kernel, arguments, extents, checked=True)
    except KernelError as problem:
        given = ", ".join(f"{p.name} is {a}" for p, a in zip(parameters, launch.arguments, strict=True) if p.pointer)
        raise KernelError(
            f"{problem}\n(on {device.name}, where {given}; of {step.origin or 'no known line'})"
        ) from None


def number(word: int, dtype: DType) -> Any:
    """The number that a kernel finds in 8 bytes.

    >>> from ...ir.dtype import float32, int32
    >>> number(2**32 - 1, int32), number(0x3F800000, float32)
    (-1, 1.0)
    """
    return np.frombuffer(word.to_bytes(8, "little"), dtype.numpy)[0].item()


def _fetched(device: CudaDevice, queue: Queue, address: int, bytes: int) -> np.ndarray:
    """A copy of memory of the GPU."""
    array = np.zeros(bytes, np.uint8)
    if bytes:
        device.staging.download(int(array.__array_interface__["data"][0]), address, bytes, queue)
    return array
