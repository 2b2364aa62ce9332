"""Launch users' kernels one by one.

A launch with a known grid and known numbers reuses its call and only patches addresses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from ...config import settings
from ...errors import RuntimeFault
from ...ir.dtype import DType
from ...ir.program import Launch
from ...ir.tile import Kernel
from ...ir.tile_access import accesses
from ...ir.tile_checker import check
from ...runtime import events
from ...runtime.buffer import DeviceBuffer
from .driver import KernelCall
from .launch_times import timer_of
from .memory import CudaBuffer
from .plan import PlannedCall
from .queues import DIRECT_RUNS, MARK_INTERVAL, QueuedWork
from .watching import WATCHED, check_accesses, launches_of, profile_steps

if TYPE_CHECKING:
    from .device import CudaDevice

MAX_CALLS = 256
"""Most prepared calls that a launcher keeps, by grid and numbers."""


class CudaLauncher:
    """Launches one compiled kernel."""

    def __init__(self, device: CudaDevice, kernel: Kernel) -> None:
        device.start()
        self.device = device
        self.kernel = kernel
        self.function = device.functions.of([kernel])[kernel.digest()]
        self.work = QueuedWork(kernel.name, ((kernel.name, kernel.origin),))
        found = accesses(kernel, check(kernel))
        pointers = [p.name for p in kernel.parameters if p.pointer]
        self.stored = [n for n, name in enumerate(pointers) if name in found.stored]
        self.calls: OrderedDict[tuple[tuple[int, ...], ...], KernelCall] = OrderedDict()
        names = tuple([p.name if p.pointer else 0 for p in kernel.parameters])
        self.launch = Launch(kernel, names, ())
        self.runs = 0
        self._lock = RLock()

    def __call__(self, arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
        """Launch all instances of a grid."""
        parameters = self.kernel.parameters
        if len(arguments) != len(parameters):
            raise RuntimeFault(f"{self.kernel.name} takes {len(parameters)} arguments, not {len(arguments)}")
        if 0 in grid:
            return
        buffers: list[CudaBuffer] = [a for a in arguments if isinstance(a, DeviceBuffer)]  # type: ignore[misc]
        queue = self.device.queue
        for buffer in buffers:
            queue.reads(buffer)
        for n in self.stored:
            queue.writes(buffers[n])
        with self._lock, queue.lock:
            call = self._call(arguments, grid)
            for slot, argument in enumerate(arguments):
                if isinstance(argument, DeviceBuffer):
                    call.slots[slot] = argument.address
            for map, place in call.maps:
                self.device.driver.encode(place, map, call.slots[map.parameter])
            self.runs += 1
            number = submit(self.device, call, self.work, arguments, self.runs, self.launch)
        for n in self.stored:
            buffers[n].written = number

    def _call(self, arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> KernelCall:
        parameters = self.kernel.parameters
        words = [
            0 if isinstance(a, DeviceBuffer) else encode_argument(a, p.dtype)
            for a, p in zip(arguments, parameters, strict=True)
        ]
        key = (grid, tuple(words))
        call = self.calls.get(key)
        if call is None:
            call = self.function.call(self.device.properties, words, grid)
            self.calls[key] = call
            if len(self.calls) > MAX_CALLS:
                self.calls.popitem(last=False)
        return call


def submit(
    device: CudaDevice,
    call: KernelCall,
    work: QueuedWork,
    arguments: Sequence[DeviceBuffer | int],
    runs: int,
    launch: Launch | None = None,
) -> int:
    """Submit one launch to the device's queue, which is locked; return its number. `runs` counts those of the kernel:
    the first ones are marked, and so is every `MARK_INTERVAL`th launch of the queue.
    """
    queue, driver, watched = device.queue, device.driver, settings().cuda
    number = queue.submitted + 1
    marked = runs <= DIRECT_RUNS or number % MARK_INTERVAL == 0
    queue.recent.append((number, work, marked))
    if watched in WATCHED or events.listeners:
        sizes = tuple([a.bytes if isinstance(a, DeviceBuffer) else 0 for a in arguments])
        step = PlannedCall(call, work.kernels[0][1], (), (), sizes, sum(sizes), 0.0, launch)
        if watched == "checked" and launch is not None:
            check_accesses(device, queue, step)
    if events.listeners:
        launches, timer = launches_of(device, work.program, [step]), timer_of(device, queue)
        if timer is not None:
            timer.run(device, queue, launches, [step])
        else:
            profile_steps(device, queue, launches, [step])
    else:
        driver.launch(call, queue.handle)
    if watched in WATCHED:
        driver.await_stream(queue.handle)
    if marked:
        driver.mark(queue.handle, queue.progress, number)
    queue.submitted = number
    return number


def encode_argument(value: float, dtype: DType) -> int:
    """Encode a number as the 8 bytes of an argument.

    >>> from ...ir.dtype import float32, int32
    >>> encode_argument(-1, int32) == 2**32 - 1, hex(encode_argument(1.0, float32))
    (True, '0x3f800000')
    """
    return int.from_bytes(np.asarray(value).astype(dtype.numpy).tobytes(), "little")
