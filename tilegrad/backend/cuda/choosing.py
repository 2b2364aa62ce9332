"""Who computes a matrix product: the kernel that was generated, or a library that is on the machine.

Both are timed once, in turns, on random numbers; what comes out is compared first. What was found is kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import median
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...config import settings
from ...errors import TilegradError
from ...ir.dtype import bfloat16, float16, float32
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared, sources
from .driver import KernelCall, LibraryCall
from .functions import Function
from .libraries import allowed, cublaslt
from .products import Product, product_of

if TYPE_CHECKING:
    from .cublaslt import ProductCall
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


class Choices:
    """Those of one device."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.made: dict[tuple[str, Product], Choice] = {}
        self.absent = False
        """Whether there is no library here, as is known once one was looked for."""
        self._lock = RLock()

    def instead(self, kernel: Kernel, function: Function, extents: Sequence[int]) -> LibraryCall | None:
        """The call of a library that is faster than the kernel on this grid, if there is one."""
        if self.absent or not allowed() or settings().cuda == "checked":
            return None
        product = product_of(kernel, extents)
        if product is None or product.operations < LEAST:
            return None
        with self.device.entered():
            lt = self.device.driver.products()
            if lt is None:
                self.absent = True
                return None
            from .cublaslt import Problem, ProductCall

            with self._lock:
                choice = self._choice(kernel, function, tuple(extents), product)
            if not choice.algorithm:
                return None
            return ProductCall(kernel.name, Problem(lt, product), choice.algorithm, len(kernel.parameters))

    def _choice(self, kernel: Kernel, function: Function, extents: tuple[int, ...], product: Product) -> Choice:
        device, library = self.device, cublaslt()
        assert library is not None
        known = (kernel.digest(), product)
        if known not in self.made:
            store, limits = shared("choices"), device.properties
            who = (sources("backend/cuda"), *library.version, limits.name, limits.driver_version)
            name = key("product", *map(str, who), kernel.digest(), repr(product))
            choice = _unpacked(store.read(name))
            if choice is None:
                try:
                    with events.timed("compile", f"choice of {kernel.name}", device.name):
                        choice = _Trial(device, kernel, function, extents, product).choice()
                except TilegradError:  # there is no memory for it now
                    if device.broken:
                        raise
                    return Choice(b"", 0.0, 0.0)
                store.write(name, _packed(choice))
            self.made[known] = choice
        return self.made[known]


class _Trial:
    """Both sides at work on the same memory."""

    def __init__(
        self, device: CudaDevice, kernel: Kernel, function: Function, extents: tuple[int, ...], product: Product
    ) -> None:
        self.device, self.kernel, self.product = device, kernel, product
        self.queue = device.queue
        self.buffers: list[CudaBuffer] = [device.memory.take(self.queue, n) for n in _sizes(product)]
        count = len(kernel.parameters)
        grid = (*extents, 1, 1, 1)[:3]
        values = [*(b.address for b in self.buffers[:count]), *grid]
        blocks = function.blocks(grid[0] * grid[1] * grid[2], device.properties.multi_processor_count)
        self.ours = KernelCall(
            kernel.name, function.handle, blocks, function.threads, function.shared, values, function.maps
        )
        for map, place in self.ours.maps:
            device.driver.encode(place, map, values[map.parameter])
        given = (product.x, product.y) if product.bias < 0 else (product.x, product.y, product.out)
        places = [product.x.argument, product.y.argument, product.bias]
        for n, matrix in zip(places, given, strict=False):
            self._fill(self.buffers[n], matrix.dtype.numpy, n)

    def choice(self) -> Choice:
        """Who is faster, and right."""
        from .cublaslt import Problem

        lt = self.device.driver.products()
        assert lt is not None
        ours = self._timed(lambda: self.device.driver.launch(self.ours, self.queue.handle))
        wanted = self._result()
        best, how = float("inf"), b""
        try:
            problem = Problem(lt, self.product)
            for algorithm in problem.algorithms(ALGORITHMS):
                call = self._call(problem, algorithm)
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

    def _call(self, problem: object, algorithm: bytes) -> ProductCall:
        from .cublaslt import Problem, ProductCall

        assert isinstance(problem, Problem)
        call = ProductCall(self.kernel.name, problem, algorithm, len(self.kernel.parameters))
        for n, buffer in enumerate(self.buffers):
            call.slots[n] = buffer.address
        return call

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
        if seed == self.product.x.argument:
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
        out = self.product.out
        buffer = self.buffers[out.argument]
        size = min(SAMPLE, buffer.bytes) // out.dtype.bytes
        parts = [np.empty(size, out.dtype.numpy) for _ in range(2)]
        for part, at in zip(parts, (0, buffer.bytes - size * out.dtype.bytes), strict=True):
            self.device.staging.download(int(part.ctypes.data), buffer.address + at, part.nbytes, self.queue)
        return np.concatenate(parts).astype(np.float32)

    def _agrees(self, wanted: np.ndarray) -> bool:
        found, product = self._result(), self.product
        allowed = max(CLOSE[product.out.dtype], CLOSE[product.x.dtype], LESS_CLOSE[product.precision])
        scale = float(np.nanmax(np.abs(wanted), initial=1e-30))
        return bool(np.allclose(found, wanted, rtol=allowed, atol=allowed * scale / 8, equal_nan=True))


def _sizes(product: Product) -> list[int]:
    """The bytes of each argument, and of the workspace."""
    from .cublaslt import WORKSPACE

    m, n, k = product.m, product.n, product.k
    found: dict[int, int] = {}
    for matrix, (lines, columns) in ((product.x, (m, k)), (product.y, (k, n)), (product.out, (m, n))):
        last = (lines - 1) * matrix.line + (columns - 1) * matrix.column + (product.batch - 1) * matrix.apart
        found[matrix.argument] = max(found.get(matrix.argument, 0), (last + 1) * matrix.dtype.bytes)
    if product.bias >= 0:
        found[product.bias] = n * product.out.dtype.bytes
    return [*(found[argument] for argument in range(len(found))), WORKSPACE]


def _packed(choice: Choice) -> bytes:
    return json.dumps([choice.algorithm.hex(), choice.ours, choice.theirs]).encode()


def _unpacked(data: bytes | None) -> Choice | None:
    try:
        algorithm, ours, theirs = json.loads(data or b"")
        return Choice(bytes.fromhex(algorithm), ours, theirs)
    except ValueError:
        return None
