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
from .driver import KernelCall, LibraryCall, NodeCall, OpenLibrary
from .libraries import CUBLASLT, CUDNN, Library, allowed, asked
from .plan import Launched
from .products import Product, product_of
from .split_k_sums import added_by

if TYPE_CHECKING:
    from .device import CudaDevice
    from .memory import CudaBuffer

LEAST = 1e9
"""Operations from which on a library is tried: what takes some microseconds is not worth the look."""
BETTER = 0.99
"""A library is taken if it needs at most so much of the kernel's time,"""
DEARER = 0.3
"""and saves so many microseconds besides: to start it takes the host longer, and so do other addresses in a graph."""
SLOW = 2.0
"""How many times the kernel's time tells enough of an algorithm."""
ALGORITHMS, ROUNDS, BURST, MOST = 6, 5, 600.0, 30
"""Of a library; turns of each side, of about so many microseconds, and of so many calls at most."""
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


def _separate(kernel: Kernel, extents: Sequence[int]) -> Convolution | None:
    """A convolution as cuDNN wants it: of rows that do not overlap."""
    found = convolution_of(kernel, extents)
    return found if found is not None and (found.of_weights or not found.overlaps) else None


ASKED: dict[str, Callable[[Kernel, Sequence[int]], Task | None]] = {CUBLASLT.name: product_of, CUDNN.name: _separate}
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

    def instead(self, launched: Launched, after: Launched | None = None) -> LibraryCall | None:
        """The call of a library that is faster than the kernel on its grid, if there is one; or than that kernel and
        the one after it, if they make a sum in pieces."""
        if len(self.absent) == len(ASKED) or not allowed() or settings().cuda == "checked":
            return None
        kernel, _, extents = launched
        for name, recognised in ASKED.items():
            task = recognised(kernel, extents) if name not in self.absent and asked(name) else None
            if task is None or task.operations < LEAST:
                continue
            added = added_by(after[0], after[2]) if after is not None and isinstance(task, Convolution) else None
            whole = task.whole(added) if added is not None and isinstance(task, Convolution) else None
            if whole is None or after is None:
                return self._call(name, [launched], task)
            call = self._call(name, [launched, after], whole)
            if call is not None:
                call.adds_up = True
            return call
        return None

    def _call(self, name: str, kernels: Sequence[Launched], task: Task) -> LibraryCall | None:
        driver = self.device.driver
        with self.device.entered(), self._lock:
            found = libraries.cublaslt() if name == CUBLASLT.name else libraries.cudnn()
            if found is None or found.unfit(driver.version):
                self.absent.add(name)
                return None
            choice = self._choice(found, kernels, task)
            library = driver.opened(name) if choice.algorithm else None
            if library is None:
                return None
            kernel = kernels[0][0]
            return library.problem(task).call(kernel.name, choice.algorithm, len(kernel.parameters))

    def _choice(self, found: Library, kernels: Sequence[Launched], task: Task) -> Choice:
        """What is known of it; a library is opened when nothing is, for that takes its time."""
        device, kernel = self.device, kernels[0][0]
        known = (kernel.digest(), task)
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
                        choice = _Trial(device, library, kernels, task).choice()
                except TilegradError:  # there is no memory for it now
                    if device.broken:
                        raise
                    return NOT_TAKEN
                store.write(name, _packed(choice))
            self.made[known] = choice
        return self.made[known]


class _Trial:
    """Both sides at work on the same memory."""

    def __init__(self, device: CudaDevice, library: OpenLibrary, kernels: Sequence[Launched], task: Task) -> None:
        self.device, self.library, self.task = device, library, task
        self.queue, (self.kernel, *_) = device.queue, kernels[0]
        self.count = len(self.kernel.parameters)
        types, elements = [p.dtype for p in self.kernel.parameters], task.elements()
        sizes = [*(elements[n] * types[n].bytes for n in range(self.count)), library.workspace]
        made = task.made.argument
        self.final = made if len(kernels) == 1 else len(sizes)
        """The buffer with the result of our kernels."""
        sizes += [sizes[made]] * (len(kernels) - 1)
        self.buffers: list[CudaBuffer] = [device.memory.take(self.queue, n) for n in sizes]
        places = (range(self.count), (made, self.final))
        self.ours = [self._launched(kernel, at) for kernel, at in zip(kernels, places, strict=False)]
        for n in range(self.count):
            if n != made:
                self._fill(self.buffers[n], types[n].numpy, n)

    def _launched(self, launched: Launched, buffers: Sequence[int]) -> KernelCall:
        kernel, function, extents = launched
        grid = (*extents, 1, 1, 1)[:3]
        blocks = function.blocks(grid[0] * grid[1] * grid[2], self.device.properties.multi_processor_count)
        values = [*[self.buffers[n].address for n in buffers], *grid, *function.index_faults]
        call = KernelCall(
            kernel.name, function.handle, blocks, function.threads, function.shared, values, function.maps
        )
        for map, place in call.maps:
            self.device.driver.encode(place, map, values[map.parameter])
        return call

    def choice(self) -> Choice:
        """Who is faster, and right."""
        ours = self._timed(self.ours)
        wanted = self._result(self.final)
        best, how = float("inf"), b""
        try:
            problem = self.library.problem(self.task)
            for algorithm in problem.algorithms(ALGORITHMS):
                call = problem.call(self.kernel.name, algorithm, self.count)
                for n in range(self.count + 1):
                    call.slots[n] = self.buffers[n].address
                call.start(self.device.driver, self.queue.handle)
                if self._agrees(wanted):
                    taken = self._timed([call], SLOW * ours)
                    best, how = min((best, how), (taken, algorithm))
        except TilegradError:  # what it cannot do, it is not asked for
            if self.device.broken:
                raise
            return Choice(b"", ours, best)
        ours = min(ours, self._timed(self.ours))
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

    def _timed(self, calls: Sequence[NodeCall], enough: float = float("inf")) -> float:
        """Microseconds of the GPU, which does it again and again as one graph: the host is slower to start some calls
        than it is to end them. What takes more than `enough` is not looked at twice."""
        driver, stream = self.device.driver, self.queue.handle
        marks = [self.device.event(timed=True) for _ in range(2)]

        def burst(count: int, rounds: int) -> float:
            graph = driver.new_graph()
            last: list[int] = []
            for call in [*calls] * count:
                last = [driver.add_node(graph, call, last, self.device.context)]
            executable = driver.instantiate(graph)
            found = []
            for _ in range(rounds):
                driver.record(marks[0], stream)
                driver.launch_graph(executable, stream)
                driver.record(marks[1], stream)
                driver.await_event(marks[1])
                found.append(1e3 * driver.elapsed(marks[0], marks[1]) / count)
            driver.end_graph(graph, executable)
            return median(found)

        for call in calls:
            driver.start(call, stream)
        found = burst(2, 1)
        if found <= enough:
            found = burst(max(1, min(MOST, int(BURST / max(1.0, found)))), ROUNDS + 1)
        self.device.timed_events += marks
        return found

    def _result(self, at: int) -> np.ndarray:
        """The beginning and the end of what was made in a buffer."""
        made, buffer = self.task.made, self.buffers[at]
        whole = min(buffer.bytes, self.task.results * made.dtype.bytes)
        size = min(SAMPLE, whole) // made.dtype.bytes
        parts = [np.empty(size, made.dtype.numpy) for _ in range(2)]
        for part, at in zip(parts, (0, whole - size * made.dtype.bytes), strict=True):
            self.device.staging.download(int(part.ctypes.data), buffer.address + at, part.nbytes, self.queue)
        return np.concatenate(parts).astype(np.float32)

    def _agrees(self, wanted: np.ndarray) -> bool:
        found, task = self._result(self.task.made.argument), self.task
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
