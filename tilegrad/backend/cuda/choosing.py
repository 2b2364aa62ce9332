"""Choose between a generated kernel and a library call for a matrix product or a convolution.

Both are timed once, alternately, on random numbers, after their results are compared. The choice is cached on disk.
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
from ...ir.contraction import SumOfParts
from ...ir.dtype import bfloat16, float16, float32
from ...ir.node import Structure
from ...runtime import events
from ...runtime.cache import key, shared, sources
from . import libraries
from .convolutions import ConvolutionProblem, convolution_of
from .driver import KernelCall, LibraryCall, NodeCall, OpenLibrary
from .libraries import CUBLASLT, CUDNN, InstalledLibrary, are_allowed, is_enabled
from .plan import CompiledLaunch
from .products import ProductProblem, product_of

if TYPE_CHECKING:
    from .device import CudaDevice
    from .memory import CudaBuffer

MIN_OPERATIONS = 1e9
"""Operations from which on a library is tried: on smaller problems there is little to gain."""
MAX_TIME_RATIO = 0.99
"""Largest ratio of the library's time to the kernel's at which the library is chosen."""
MIN_SAVING_US = 0.3
"""Microseconds that the library must save besides: its launch costs the host more, and so do new addresses in a graph.
"""
MAX_RETIMED_RATIO = 2.0
"""Ratio of times above which an algorithm is not timed again."""
MAX_ALGORITHMS, ROUNDS, ROUND_US, MAX_CALLS_PER_ROUND = 6, 5, 600.0, 30
"""Algorithms of a library that are tried; rounds per side, microseconds of a round, and most calls in it."""
SAMPLE_BYTES = 1 << 20
"""Bytes of random numbers that operands repeat, and of results that are compared."""
DTYPE_TOLERANCES = {bfloat16: 2e-2, float16: 4e-3, float32: 1e-4}
PRECISION_TOLERANCES = {"highest": 0.0, "high": 4e-3, "medium": 4e-2}


class LibraryChoice(NamedTuple):
    """Times of both sides in microseconds; `algorithm` is the library's, empty if the kernel is faster."""

    algorithm: bytes
    kernel_us: float
    library_us: float


Task: TypeAlias = ProductProblem | ConvolutionProblem


def _non_overlapping_convolution(computed: Structure | None) -> ConvolutionProblem | None:
    """Return the convolution that a description stands for, if its rows do not overlap, as cuDNN requires."""
    found = convolution_of(computed)
    return found if found is not None and (found.of_weights or not found.overlaps) else None


PROBLEMS: dict[str, Callable[[Structure | None], Task | None]] = {
    CUBLASLT.name: product_of,
    CUDNN.name: _non_overlapping_convolution,
}
"""The problem that each library solves in place of a kernel, from what the kernel computes."""
KERNEL_CHOSEN = LibraryChoice(b"", 0.0, 0.0)


class LibraryChoices:
    """The choices of one device."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.made: dict[tuple[str, Task], LibraryChoice] = {}
        self.absent: set[str] = set()
        """Libraries found to be missing."""
        self._lock = RLock()

    def substitute(self, launched: CompiledLaunch, after: CompiledLaunch | None = None) -> LibraryCall | None:
        """Return the library call that is faster than a kernel, or than a split-K kernel and its sum, if any."""
        if len(self.absent) == len(PROBLEMS) or not are_allowed() or settings().cuda == "checked":
            return None
        for name, problem_of in PROBLEMS.items():
            task = problem_of(launched[0].computes) if name not in self.absent and is_enabled(name) else None
            if task is None or task.operations < MIN_OPERATIONS:
                continue
            whole = _whole_task(task, after)
            if whole is None or after is None:
                return self._call(name, [launched], task)
            call = self._call(name, [launched, after], whole)
            if call is not None:
                call.sums_parts = True
            return call
        return None

    def _call(self, name: str, kernels: Sequence[CompiledLaunch], task: Task) -> LibraryCall | None:
        driver = self.device.driver
        with self.device.entered(), self._lock:
            found = libraries.cublaslt() if name == CUBLASLT.name else libraries.cudnn()
            if found is None or found.unusable_reason(driver.version):
                self.absent.add(name)
                return None
            choice = self._choice(found, kernels, task)
            library = driver.open_library(name) if choice.algorithm else None
            if library is None:
                return None
            kernel = kernels[0][0]
            return library.problem(task).call(kernel.name, choice.algorithm, len(kernel.parameters))

    def _choice(self, found: InstalledLibrary, kernels: Sequence[CompiledLaunch], task: Task) -> LibraryChoice:
        """Return the known choice, from memory, disk, or a trial; opens the library only for a trial."""
        device, kernel = self.device, kernels[0][0]
        known = (kernel.digest(), task)
        if known not in self.made:
            store, limits = shared("choices"), device.properties
            who = (sources("backend/cuda"), found.name, *found.version, limits.name, limits.driver_version)
            name = key("library", *map(str, who), kernel.digest(), repr(task))
            choice = _unpacked(store.read(name))
            if choice is None:
                library = device.driver.open_library(found.name)
                if library is None:
                    self.absent.add(found.name)
                    return KERNEL_CHOSEN
                try:
                    with events.timed("compile", f"choice of {kernel.name}", device.name):
                        choice = _LibraryTrial(device, library, kernels, task).choice()
                except TilegradError:  # out of memory
                    if device.broken:
                        raise
                    return KERNEL_CHOSEN
                store.write(name, _packed(choice))
            self.made[known] = choice
        return self.made[known]


def _whole_task(task: Task, after: CompiledLaunch | None) -> ConvolutionProblem | None:
    """Return the convolution that a split-K kernel and the sum after it compute together, if they do."""
    if after is None or not isinstance(task, ConvolutionProblem):
        return None
    added = after[0].computes
    return task.whole(added) if isinstance(added, SumOfParts) else None


class _LibraryTrial:
    """Runs a kernel and a library on the same memory."""

    def __init__(self, device: CudaDevice, library: OpenLibrary, kernels: Sequence[CompiledLaunch], task: Task) -> None:
        self.device, self.library, self.task = device, library, task
        self.queue, (self.kernel, *_) = device.queue, kernels[0]
        self.count = len(self.kernel.parameters)
        types, elements = [p.dtype for p in self.kernel.parameters], task.elements()
        sizes = [*(elements[n] * types[n].bytes for n in range(self.count)), library.workspace]
        made = task.made.argument
        self.final = made if len(kernels) == 1 else len(sizes)
        """Index of the buffer with the kernels' result."""
        sizes += [sizes[made]] * (len(kernels) - 1)
        self.buffers: list[CudaBuffer] = [device.memory.take(self.queue, n) for n in sizes]
        places = (range(self.count), (made, self.final))
        self.ours = [self._compiled_launch(kernel, at) for kernel, at in zip(kernels, places, strict=False)]
        for n in range(self.count):
            if n != made:
                self._fill(self.buffers[n], types[n].numpy, n)

    def _compiled_launch(self, launched: CompiledLaunch, buffers: Sequence[int]) -> KernelCall:
        _, function, extents = launched
        addresses = [self.buffers[n].address for n in buffers]
        call = function.call(self.device.properties, addresses, extents)
        for map, place in call.maps:
            self.device.driver.encode(place, map, addresses[map.parameter])
        return call

    def choice(self) -> LibraryChoice:
        """Return the faster side whose result is right."""
        kernel_us = self._timed(self.ours)
        wanted = self._result(self.final)
        best, how = float("inf"), b""
        try:
            problem = self.library.problem(self.task)
            for algorithm in problem.algorithms(MAX_ALGORITHMS):
                call = problem.call(self.kernel.name, algorithm, self.count)
                for n in range(self.count + 1):
                    call.slots[n] = self.buffers[n].address
                call.start(self.device.driver, self.queue.handle)
                if self._agrees(wanted):
                    taken = self._timed([call], MAX_RETIMED_RATIO * kernel_us)
                    best, how = min((best, how), (taken, algorithm))
        except TilegradError:  # unsupported by the library
            if self.device.broken:
                raise
            return LibraryChoice(b"", kernel_us, best)
        kernel_us = min(kernel_us, self._timed(self.ours))
        return LibraryChoice(how if best <= MAX_TIME_RATIO * kernel_us - MIN_SAVING_US else b"", kernel_us, best)

    def _fill(self, buffer: CudaBuffer, dtype: np.dtype, seed: int) -> None:
        """Fill a buffer with repeated random numbers; the first of the left operand is NaN, which must propagate."""
        size = min(buffer.bytes, SAMPLE_BYTES)
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

    def _timed(self, calls: Sequence[NodeCall], retime_limit: float = float("inf")) -> float:
        """Return the GPU time of calls in microseconds, repeated in one graph to hide the host's launch cost.

        Calls slower than `retime_limit` are timed once.
        """
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
        if found <= retime_limit:
            found = burst(max(1, min(MAX_CALLS_PER_ROUND, int(ROUND_US / max(1.0, found)))), ROUNDS + 1)
        self.device.timed_events += marks
        return found

    def _result(self, at: int) -> np.ndarray:
        """Return the beginning and the end of a result."""
        made, buffer = self.task.made, self.buffers[at]
        whole = min(buffer.bytes, self.task.results * made.dtype.bytes)
        size = min(SAMPLE_BYTES, whole) // made.dtype.bytes
        parts = [np.empty(size, made.dtype.numpy) for _ in range(2)]
        for part, at in zip(parts, (0, whole - size * made.dtype.bytes), strict=True):
            self.device.staging.download(int(part.ctypes.data), buffer.address + at, part.nbytes, self.queue)
        return np.concatenate(parts).astype(np.float32)

    def _agrees(self, wanted: np.ndarray) -> bool:
        found, task = self._result(self.task.made.argument), self.task
        allowed = max(
            DTYPE_TOLERANCES[task.made.dtype], DTYPE_TOLERANCES[task.x.dtype], PRECISION_TOLERANCES[task.precision]
        )
        scale = float(np.nanmax(np.abs(wanted), initial=1e-30))
        return bool(np.allclose(found, wanted, rtol=allowed, atol=allowed * scale / 8, equal_nan=True))


def _packed(choice: LibraryChoice) -> bytes:
    return json.dumps([choice.algorithm.hex(), choice.kernel_us, choice.library_us]).encode()


def _unpacked(data: bytes | None) -> LibraryChoice | None:
    try:
        algorithm, kernel_us, library_us = json.loads(data or b"")
        return LibraryChoice(bytes.fromhex(algorithm), kernel_us, library_us)
    except ValueError:
        return None
