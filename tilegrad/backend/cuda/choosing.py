"""Who computes a matrix product or a convolution: the kernel that was generated, or a library that is on the machine.

Both are timed once, in turns, on random numbers; what comes out is compared first. What was found is kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import median
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ...config import settings
from ...errors import TilegradError
from ...ir.dtype import bfloat16, float16, float32
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared, sources
from . import libraries
from .convolutions import Convolution, convolution_of
from .driver import KernelCall, LibraryCall, OpenLibrary
from .functions import Function
from .libraries import CUBLASLT, CUDNN, Library, allowed
from .products import Product, product_of

if TYPE_CHECKING:
    from .device import CudaDevice
    from .memory import CudaBuffer

LEAST = 1e9
"""Operations from which on a library is tried: what takes some microseconds is not worth the look."""
BETTER = 0.99
"""A library is taken if it needs at most so much of the kernel's time,"""
DEARER = 1.5
"""and saves so many microseconds besides: to start it takes the host longer, and so do other addresses in a graph."""
ALGORITHMS, ROUNDS, BURST = 6, 5, 600.0
"""Of a library; turns of each side, of so many microseconds."""
SAMPLE = 1 << 20
"""Bytes of random numbers that operands repeat, and of results that are compared."""
CLOSE = {bfloat16: 2e-2, float16: 4e-3, float32: 1e-4}
LESS_CLOSE = {"highest": 0.0, "high": 4e-3, "medium": 4e-2}


class Choice(NamedTuple):
    """Microseconds of both sides; `algorithm`: how the library does it, empty if it is not taken."""

    algorithm: bytes
    ours: float
    theirs: float


Task: TypeAlias = Product | Convolution
ASKED: dict[str, Callable[[Kernel, Sequence[int]], Task | None]] = {
    CUBLASLT.name: product_of,
    CUDNN.name: convolution_of,
}
"""What libraries are asked for."""
NOT_TAKEN = Choice(b"", 0.0, 0.0)


class Choices:
    """Those of one device."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.made: dict[tuple[str, Task], Choice] = {}
        self.absent: set[str] = set()
        """The libraries that are not here, as is known once they were looked for."""
        self._lock = RLock()

    def instead(self, kernel: Kernel, function: Function, extents: Sequence[int]) -> LibraryCall | None:
        """The call of a library that is faster than the kernel on this grid, if there is one."""
        if len(self.absent) == len(ASKED) or not allowed() or settings().cuda == "checked":
            return None
        for name, recognised in ASKED.items():
            task = recognised(kernel, extents) if name not in self.absent else None
            if task is not None and task.operations >= LEAST:
                return self._call(name, kernel, function, tuple(extents), task)
        return None

    def _call(
        self, name: str, kernel: Kernel, function: Function, extents: tuple[int, ...], task: Task
    ) -> LibraryCall | None:
        driver = self.device.driver
        with self.device.entered(), self._lock:
            found = libraries.cublaslt() if name == CUBLASLT.name else libraries.cudnn()
            if found is None or found.unfit(driver.version):
                self.absent.add(name)
                return None
            choice = self._choice(found, kernel, function, extents, task)
            library = driver.opened(name) if choice.algorithm else None
            if library is None:
                return None
            return library.problem(task).call(kernel.name, choice.algorithm, len(kernel.parameters))

    def _choice(
        self, found: Library, kernel: Kernel, function: Function, extents: tuple[int, ...], task: Task
    ) -> Choice:
        """What is known of it; a library is opened when nothing is, for that takes its time."""
        device, known = self.device, (kernel.digest(), task)
        if known not in self.made:
            store, limits = shared("choices"), device.properties
            who = (sources("backend/cuda"), found.name, *found.version, limits.name, limits.driver_version)
            name = key("library", *map(str, who), kernel.digest(), repr(task))
            choice = _unpacked(store.read(name))
            if choice is None:
                library = device.driver.opened(found.name)
                if library is None:
                    self.absent.add(found.name)
                    return NOT_TAKEN
                try:
                    with events.timed("compile", f"choice of {kernel.name}", device.name):
                        choice = _Trial(device, library, kernel, function, extents, task).choice()
                except TilegradError:  # there is no memory for it now
                    if device.broken:
                        raise
                    return NOT_TAKEN
                store.write(name, _packed(choice))
            self.made[known] = choice
        return self.made[known]


class _Trial:
    """Both sides at work on the same memory."""

    def __init__(
        self,
        device: CudaDevice,
        library: OpenLibrary,
        kernel: Kernel,
        function: Function,
        extents: tuple[int, ...],
        task: Task,
    ) -> None:
        self.device, self.library, self.kernel, self.task = device, library, kernel, task
        self.queue = device.queue
        count = len(kernel.parameters)
        types, elements = [p.dtype for p in kernel.parameters], task.elements()
        sizes = [*(elements[n] * types[n].bytes for n in range(count)), library.workspace]
        self.buffers: list[CudaBuffer] = [device.memory.take(self.queue, n) for n in sizes]
        grid = (*extents, 1, 1, 1)[:3]
        values = [*(b.address for b in self.buffers[:count]), *grid]
        blocks = grid[0] * grid[1] * grid[2]
        self.ours = KernelCall(
            kernel.name, function.handle, blocks, function.threads, function.shared, values, function.maps
        )
        for map, place in self.ours.maps:
            device.driver.encode(place, map, values[map.parameter])
        for n in range(count):
            if n != task.made.argument:
                self._fill(self.buffers[n], types[n].numpy, n)

    def choice(self) -> Choice:
        """Who is faster, and right."""
        ours = self._timed(lambda: self.device.driver.launch(self.ours, self.queue.handle))
        wanted = self._result()
        best, how = float("inf"), b""
        try:
            problem = self.library.problem(self.task)
            for algorithm in problem.algorithms(ALGORITHMS):
                call = problem.call(self.kernel.name, algorithm, len(self.kernel.parameters))
                for n, buffer in enumerate(self.buffers):
                    call.slots[n] = buffer.address
                call.start(self.device.driver, self.queue.handle)
                if self._agrees(wanted):
                    taken = self._timed(lambda call=call: call.start(self.device.driver, self.queue.handle))  # type: ignore[misc]
                    best, how = min((best, how), (taken, algorithm))
        except TilegradError:  # what it cannot do, it is not asked for
            if self.device.broken:
                raise
            return Choice(b"", ours, best)
        ours = min(ours, self._timed(lambda: self.device.driver.launch(self.ours, self.queue.handle)))
        return Choice(how if best <= BETTER * ours - DEARER else b"", ours, best)

    def _fill(self, buffer: CudaBuffer, dtype: np.dtype, seed: int) -> None:
        """Random numbers, the same megabyte again and again; the first is NaN, which must not get lost."""
        size = min(buffer.bytes, SAMPLE)
        numbers = np.random.default_rng(seed).standard_normal(size // dtype.itemsize, np.float32).astype(dtype)
        driver, stream, done = self.device.driver, self.queue.handle, numbers.nbytes
        self.device.staging.upload(buffer.address, int(numbers.ctypes.data), done, self.queue)
        while done < buffer.bytes:
            more = min(done, buffer.bytes - done)
            driver.copy(buffer.address + done, buffer.address, more, stream)
            done += more
        if seed == self.task.given[0].argument:
            numbers[:1] = np.nan
            self.device.staging.upload(buffer.address, int(numbers.ctypes.data), dtype.itemsize, self.queue)

    def _timed(self, start: Callable[[], None]) -> float:
        """Microseconds."""
        driver, stream = self.device.driver, self.queue.handle
        marks = [self.device.event(timed=True) for _ in range(2)]

        def burst(count: int) -> float:
            driver.record(marks[0], stream)
            for _ in range(count):
                start()
            driver.record(marks[1], stream)
            driver.await_event(marks[1])
            return 1e3 * driver.elapsed(marks[0], marks[1]) / count

        start()
        count = max(1, min(100, int(BURST / max(1.0, burst(2)))))
        found = median(burst(count) for _ in range(ROUNDS))
        self.device.timed_events += marks
        return found

    def _result(self) -> np.ndarray:
        """The beginning and the end of what was made."""
        out = self.task.made
        buffer = self.buffers[out.argument]
        size = min(SAMPLE, buffer.bytes) // out.dtype.bytes
        parts = [np.empty(size, out.dtype.numpy) for _ in range(2)]
        for part, at in zip(parts, (0, buffer.bytes - size * out.dtype.bytes), strict=True):
            self.device.staging.download(int(part.ctypes.data), buffer.address + at, part.nbytes, self.queue)
        return np.concatenate(parts).astype(np.float32)

    def _agrees(self, wanted: np.ndarray) -> bool:
        found, task = self._result(), self.task
        allowed = max(CLOSE[task.made.dtype], CLOSE[task.x.dtype], LESS_CLOSE[task.precision])
        scale = float(np.nanmax(np.abs(wanted), initial=1e-30))
        return bool(np.allclose(found, wanted, rtol=allowed, atol=allowed * scale / 8, equal_nan=True))


def _packed(choice: Choice) -> bytes:
    return json.dumps([choice.algorithm.hex(), choice.ours, choice.theirs]).encode()


def _unpacked(data: bytes | None) -> Choice | None:
    try:
        algorithm, ours, theirs = json.loads(data or b"")
        return Choice(bytes.fromhex(algorithm), ours, theirs)
    except ValueError:
        return None
