"""A GPU: its memory, queues, kernels, and explanations of failures."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from ...config import settings
from ...errors import DeviceError, RuntimeFault, TilegradError
from ...ir.dtype import DType, float16
from ...ir.precision import Precision
from ...ir.program import Program
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.buffer import DeviceBuffer
from ...runtime.device import Device, Statistics, known_devices
from ...runtime.executable import CompiledKernel, Executable
from ...runtime.index_faults import BYTES, IndexFaults
from ...runtime.singletons import lock
from ...runtime.target_model import TargetModel
from .choosing import LibraryChoices
from .code.hardware import TENSOR_CORE_CAPABILITY
from .driver import Driver, DriverFault
from .functions import LoadedKernels
from .launch_times import LaunchTimer, timer_of
from .memory import AllMemory, CudaBuffer, DeviceMemory, Tally
from .properties import properties
from .queues import Queue, here
from .reports import blame, clean_sass, summary
from .staging import PinnedBuffer, PinnedMemory, Staging

MAX_QUEUES = 32
"""Most streams of a device; streams requested beyond that are reused."""
MAX_CACHED_SCALAR_BYTES = 8
"""Largest size, in bytes, of host constants cached on the GPU."""
MAX_CACHED_SCALARS = 1024
"""Most host constants cached on the GPU."""


class CudaDevice(Device):
    """One GPU. Work is asynchronous, on the queue that the thread has chosen."""

    low = float16
    shows_source = True

    def __init__(self, driver: Driver, number: int) -> None:
        super().__init__(f"cuda:{number}")
        self.usage: Tally = Tally()
        self.driver = driver
        self.runs = driver.runs
        self.number = number
        self.properties = properties(driver, number)
        self.event_cost: int | None = None
        """Nanoseconds that events add to the time of a kernel; None until they are measured."""
        self.launch_timer: LaunchTimer | None = None
        """Times launches by the GPU's own records while a profile listens."""
        self.timing_by_events = ""
        """Why events time the launches of the profile that listens."""
        self.broken = ""
        """Why the device is unusable; empty if it works."""
        self._lock = lock()
        self._started = False
        self._cached_scalars: dict[bytes, CudaBuffer] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Create the context and what every program needs, on first use."""
        with self._lock:
            if self._started:
                return
            if self.broken:
                raise DeviceError(self.broken)
            self.context = self.driver.context(self.number)
            self._started = True
            for other in known_devices():
                if isinstance(other, CudaDevice) and other is not self and other._started:
                    self.driver.share(self.number, other.number)
                    self.driver.share(other.number, self.number)
            self._enter()
            self.events: list[int] = []
            self.timed_events: list[int] = []
            self.graphs_ended: list[tuple[int, int]] = []
            self._words = self.driver.allocate_host(4 * MAX_QUEUES)
            self.index_faults = IndexFaults(self.driver.allocate_host(BYTES))
            self.index_faults.words[0] = 0
            self.memory = DeviceMemory(self)
            self.staging = Staging(self)
            self.pinned = PinnedMemory(self)
            self.functions = LoadedKernels(self)
            self.choices = LibraryChoices(self)
            self.queues: list[Queue] = []
            self.default = self.new_queue()
            self.driver.explainers.append(self.explained)

    def _forked(self) -> None:
        self.broken = (
            f"{self.name} was asked for before this process was forked, and a fork cannot use it: start processes with "
            "multiprocessing.get_context('spawn')"
        )

    # --- contexts and queues -------------------------------------------------------------------

    def _enter(self) -> None:
        if self.broken:
            raise DeviceError(self.broken)
        self.driver.enter(self.context)
        here.device = self

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the thread's current device within the block."""
        before = here.device
        if before is not self or self.broken:
            if not self._started:
                self.start()
            self._enter()
        yield
        if before is not None and before is not self:
            before._enter()

    @property
    def queue(self) -> Queue:
        """The current thread's queue; enters the device."""
        if here.device is not self or self.broken:
            if not self._started:
                self.start()
            self._enter()
        return here.queues.get(self) or self.default

    def new_queue(self, priority: int = 0) -> Queue:
        """Create a queue; beyond MOST_QUEUES, return an existing one."""
        with self._lock:
            used = len(self.queues)
            if used == MAX_QUEUES:
                self.queues.append(self.queues.pop(1))
                return self.queues[-1]
            word = self._words + 4 * used
            made = Queue(self, self.driver.new_stream(priority), word, priority)
            self.driver.mark(made.handle, word, 0)
            self.queues.append(made)
            return made

    def event(self, timed: bool = False) -> int:
        """Return an unused event."""
        try:
            return self.timed_events.pop() if timed else self.events.pop()
        except IndexError:
            return self.driver.new_event(timed)

    def used(self, event: int) -> None:
        """Recycle an event whose waits have been submitted."""
        self.events.append(event)

    def synchronize(self) -> None:
        if self._started:
            with self.entered():
                self.driver.synchronize()
                while self.graphs_ended:
                    self.driver.end_graph(*self.graphs_ended.pop())
            self.index_faults.look()

    def begin_profile(self) -> None:
        self.timing_by_events = ""
        if self._started and not self.broken and self.runs:
            with self.entered():
                timer_of(self, self.queue)

    def deliver_times(self) -> None:
        if self.launch_timer is not None and not self.broken:
            places = [d for d in known_devices() if isinstance(d, CudaDevice) and d.driver is self.driver]
            for place in places:
                place.synchronize()
            self.launch_timer.deliver({place.number: place.name for place in places})

    def end_profile(self) -> None:
        if self.launch_timer is not None and not events.accept_later_times():
            self.launch_timer.end()
            self.launch_timer = None

    # --- memory --------------------------------------------------------------------------------

    @property
    def everything(self) -> CudaBuffer:
        return AllMemory(self, self.queue)

    def allocate(self, bytes: int) -> CudaBuffer:
        queue = self.queue
        return self.memory.take(queue, bytes)

    def from_host(self, array: np.ndarray) -> CudaBuffer:
        dense = np.ascontiguousarray(array)
        buffer = self.allocate(dense.nbytes)
        self.staging.upload(buffer.address, int(dense.__array_interface__["data"][0]), dense.nbytes, buffer.queue)
        return self._mark_written(buffer)

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        buffer = buffer.owner
        assert isinstance(buffer, CudaBuffer)
        array = np.empty(shape, dtype.numpy)
        if array.nbytes:
            queue = self.queue
            queue.reads(buffer)
            self.staging.download(int(array.__array_interface__["data"][0]), buffer.address, array.nbytes, queue)
            self.index_faults.look()
        return array

    def deliver(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        source = source.owner
        assert isinstance(source, CudaBuffer)
        queue = self.queue
        queue.reads(source)
        self.staging.download(target.address, source.address, source.bytes, queue)
        self.index_faults.look()

    def copy(self, source: DeviceBuffer) -> DeviceBuffer:
        source = source.owner
        match source:
            case CudaBuffer():
                target = self.allocate(source.bytes)
                self._copy_buffer(target, source)
                return self._mark_written(target)
            case DeviceBuffer(address=address) if source.device.kind == "cpu" and address:
                target = self.allocate(source.bytes)
                if isinstance(source, PinnedBuffer):
                    self.driver.to_device(target.address, address, source.bytes, target.queue.handle)
                    source.read_by(target.queue)
                else:
                    self.staging.upload(target.address, address, source.bytes, target.queue)
                return self._mark_written(target)
            case _:
                return super().copy(source)

    def number_from(self, source: DeviceBuffer) -> DeviceBuffer:
        """Return a read-only copy of a host scalar, cached by its contents."""
        if source.bytes > MAX_CACHED_SCALAR_BYTES or source.device.kind != "cpu":
            return self.copy(source)
        queue = self.queue
        contents = bytes((queue.device.number,)) + _contents(source)
        found = self._cached_scalars.get(contents)
        if found is None:
            if len(self._cached_scalars) >= MAX_CACHED_SCALARS:
                self._cached_scalars.clear()
            found = self.copy(source)  # type: ignore[assignment]
            self._cached_scalars[contents] = found  # type: ignore[assignment]
        return found  # type: ignore[return-value]

    def overwrite(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        target, source = target.owner, source.owner
        assert isinstance(target, CudaBuffer)
        assert isinstance(source, CudaBuffer)
        self.queue.writes(target)
        self._copy_buffer(target, source)
        self._mark_written(target)

    def _copy_buffer(self, target: CudaBuffer, source: CudaBuffer) -> None:
        queue, other = self.queue, source.device
        queue.reads(source)
        if not source.bytes:
            return
        if other is self:
            self.driver.copy(target.address, source.address, source.bytes, queue.handle)
        else:
            assert isinstance(other, CudaDevice)
            self.driver.copy_between(
                target.address, self.context, source.address, other.context, source.bytes, queue.handle
            )

    def _mark_written(self, buffer: CudaBuffer) -> CudaBuffer:
        """Record that a copy to a buffer was submitted."""
        buffer.written = buffer.queue.count_submitted()
        return buffer

    def page_locked(self, source: DeviceBuffer) -> DeviceBuffer | None:
        if source.device.kind != "cpu" or isinstance(source.owner, PinnedBuffer):
            return None
        with self.entered():
            made = self.pinned.take(source.device, source.bytes)
        source.device.overwrite(made, source)
        return made

    def trim(self) -> None:
        if self._started:
            with self.entered():
                self._cached_scalars.clear()
                self.memory.empty()

    @property
    def statistics(self) -> Statistics:
        usage = self.usage
        if not self._started:
            return Statistics(0, 0, 0, 0)
        arenas = sum(queue.arena.blocks.bytes for queue in self.queues if queue.arena is not None)
        numbers = sum(buffer.blocks.bytes for buffer in self._cached_scalars.values())
        memory = self.memory
        return Statistics(usage.live - arenas - numbers, usage.peak, memory.held, memory.fetched, memory.held_peak)

    def reset_peaks(self) -> None:
        self.usage.reset_peak()
        if self._started:
            self.memory.held_peak = self.memory.held

    # --- programs ------------------------------------------------------------------------------

    def compile(self, kernel: Kernel) -> CompiledKernel:
        from .launcher import CudaLauncher

        return CudaLauncher(self, kernel)

    def load(self, program: Program, constant_inputs: Set[str] = frozenset()) -> Executable:
        from .executable import CudaExecutable

        return CudaExecutable(self, program, constant_inputs)

    def source(self, kernel: Kernel) -> str:
        """Return the CUDA C++ of a kernel, headed by the compiler's report."""
        made = self.driver.build(kernel, self.properties.architecture)
        return f"// {summary(made, self.properties)}\n{made.source}"

    def assembly(self, kernel: Kernel) -> str:
        """Return SASS if there is a disassembler (nvdisasm or cuobjdump), else PTX if there is a compiler."""
        made = self.driver.build(kernel, self.properties.architecture)
        if not made.image:
            return ""
        return f"// {summary(made, self.properties)}\n{clean_sass(made.sass) or made.ptx}"

    @property
    def machine(self) -> str:
        return self.properties.name

    @cached_property
    def target(self) -> TargetModel:
        from .costs import gpu_model

        return gpu_model(self.properties.multi_processor_count, self.properties.shared_memory_per_block_optin)

    @property
    def products(self) -> Mapping[Precision, str]:
        if self.properties.capability < TENSOR_CORE_CAPABILITY:
            return super().products
        return {"highest": "float32", "high": "tf32", "medium": "bfloat16"}

    @property
    def limits(self) -> Mapping[str, Any]:
        found = self.properties
        return {
            "source": "published peak",
            "model": found.name,
            "memory_bytes": found.total_memory,
            "units": found.multi_processor_count,
            "read": found.memory_bandwidth,
            "copy": found.memory_bandwidth,
            "triad": found.memory_bandwidth,
            "fma": 2.0 * 128 * found.multi_processor_count * found.clock_rate * 1e3,
            "products": found.product_rates,
        }

    # --- failures ------------------------------------------------------------------------------

    def explained(self, fault: DriverFault) -> TilegradError | None:
        """Explain an asynchronous failure: name the kernels that may have caused it."""
        if here.device is not self:
            return None
        if self.broken:
            return DeviceError(self.broken)
        text = f"{self.name} failed: {fault.reason}{blame([queue.suspects() for queue in self.queues])}"
        if settings().cuda != "checked":
            text += (
                ". Run it again with TILEGRAD_CUDA=synchronous to stop at the kernel that fails, or with "
                "TILEGRAD_CUDA=checked to be told the index and the tensor (slow)"
            )
        self.broken = f"{text}. After this the device cannot be used any more in this process"
        return RuntimeFault(self.broken)


def _contents(source: DeviceBuffer) -> bytes:
    return ctypes.string_at(source.address, source.bytes)
