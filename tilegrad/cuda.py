"""Define `tg.cuda`: NVIDIA GPUs with PyTorch's names: devices, memory, streams, events.

Everything here works on a machine without a GPU too: `is_available()` is False there, and what needs one raises an
error that says why there is none. Streams need no synchronisation by the user: memory records its writers and readers,
so that work on one stream waits for work on another exactly if they share memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from .backend import cuda as backend
from .backend.shortage import format_bytes, largest_tensors
from .errors import ArgumentError, DeviceError
from .errors import OutOfMemoryError as OutOfMemoryError
from .lazy.timing import finish, time_with
from .random import manual_seed as manual_seed
from .runtime.device import Device, choose
from .runtime.device import device as named

if TYPE_CHECKING:
    from .backend.cuda.device import CudaDevice
    from .backend.cuda.properties import GpuProperties
    from .backend.cuda.queues import Queue

Which: TypeAlias = "Device | str | int | None"
"""A GPU: itself, its name, its number, or (None) the thread's current one."""


def inline(source: Any, signature: Any, **options: Any) -> Any:
    """Make a function from CUDA C++, compiled by NVRTC: see `tilegrad.foreign.gpu.cuda_inline` for the options.

    The source is the body of a kernel, or `__global__` kernels, with the arguments that the signature names; `grid`,
    `block` and `shared` are the launch configuration. Without a GPU it is compiled, and `launch(...)` checks the
    launch.
    """
    from .foreign.gpu import cuda_inline

    return cuda_inline(source, signature, **options)


# --- devices -----------------------------------------------------------------------------------


def device_count() -> int:
    """Return the number of GPUs."""
    return len(backend.devices())


def is_available() -> bool:
    """Whether there is a GPU."""
    return device_count() > 0


def current_device() -> int:
    """Return the number of the thread's current GPU."""
    return _gpu(None).number


def get_device_properties(device: Which = None) -> GpuProperties:
    """Return the properties of a GPU: name, total_memory, multi_processor_count, and so on."""
    return _gpu(device).properties


def get_device_name(device: Which = None) -> str:
    """Return the product name of a GPU."""
    return _gpu(device).properties.name


def get_device_capability(device: Which = None) -> tuple[int, int]:
    """Return the compute capability, such as (9, 0)."""
    found = _gpu(device).properties
    return found.major, found.minor


def is_bf16_supported() -> bool:
    """Whether the current GPU computes with bfloat16."""
    return is_available() and get_device_capability() >= (8, 0)


def set_device(device: Which) -> None:
    """Set the thread's current GPU."""
    choose("cuda", _gpu(device))


@contextmanager
def device(which: Which) -> Iterator[None]:
    """Set the thread's current GPU within the block."""
    before = choose("cuda", _gpu(which))
    try:
        yield
    finally:
        choose("cuda", before)


def synchronize(device: Which = None) -> None:
    """Compute all recorded work, including dropped results, and wait for the GPU."""
    place = _gpu(device)
    finish()
    place.synchronize()


# --- memory ------------------------------------------------------------------------------------


def memory_allocated(device: Which = None) -> int:
    """Return the bytes that tensors hold."""
    return _place(device).statistics.live


def max_memory_allocated(device: Which = None) -> int:
    """Return the peak bytes of tensors and temporaries since the last `reset_peak_memory_stats`."""
    return _place(device).statistics.peak


def memory_reserved(device: Which = None) -> int:
    """Return the bytes reserved from the driver: held by tensors, and pooled for later ones."""
    return _place(device).statistics.held


def max_memory_reserved(device: Which = None) -> int:
    """Return the peak bytes reserved from the driver since the last `reset_peak_memory_stats`."""
    return _place(device).statistics.held_peak


def memory_stats(device: Which = None) -> dict[str, int]:
    """Return statistics of a GPU's memory, with PyTorch's names."""
    found = _place(device).statistics
    return {
        "allocated_bytes.all.current": found.live,
        "allocated_bytes.all.peak": found.peak,
        "reserved_bytes.all.current": found.held,
        "reserved_bytes.all.peak": found.held_peak,
        "num_device_alloc": found.allocations,
    }


def memory_summary(device: Which = None, abbreviated: bool = False) -> str:
    """List the owners of a GPU's memory by kind, the largest with shape, dtype and the user's line."""
    place = _place(device)
    found = place.statistics
    head = (
        f"{format_bytes(found.live)} allocated (peak {format_bytes(found.peak)}), {format_bytes(found.held)} reserved "
        f"(peak {format_bytes(found.held_peak)}) on {place.name}, by {found.allocations:,} allocations"
    )
    return head if abbreviated else "\n".join([head, *largest_tensors(place.name)])


def reset_peak_memory_stats(device: Which = None) -> None:
    """Reset the peaks of `max_memory_allocated` and `max_memory_reserved`."""
    _place(device).reset_peaks()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def mem_get_info(device: Which = None) -> tuple[int, int]:
    """Return the free and total bytes of a GPU, as its driver reports them."""
    gpu = _gpu(device)
    gpu.start()
    with gpu.entered():
        return gpu.driver.memory_info()


def empty_cache() -> None:
    """Release pooled memory to the system."""
    for gpu in backend.devices():
        gpu.trim()


# --- streams and events ------------------------------------------------------------------------


class Stream:
    """A queue of work that runs in order, concurrently with other streams."""

    def __init__(self, device: Which = None, priority: int = 0) -> None:
        gpu = _gpu(device)
        gpu.start()
        with gpu.entered():
            self._queue: Queue = gpu.new_queue(priority)

    @property
    def device(self) -> Device:
        """The GPU of the stream."""
        return self._queue.device

    @property
    def priority(self) -> int:
        """Priority; lower numbers go first."""
        return self._queue.priority

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return self._queue.handle

    def synchronize(self) -> None:
        """Wait until everything on the stream is done."""
        finish()
        gpu = self._queue.device
        with gpu.entered():
            gpu.driver.await_stream(self._queue.handle)
        gpu.index_faults.look()

    def query(self) -> bool:
        """Whether everything on the stream is done."""
        with self._queue.device.entered():
            return self._queue.device.driver.stream_done(self._queue.handle)

    def wait_stream(self, stream: Stream) -> None:
        """Make later work wait for the present work of another stream."""
        self.wait_event(stream.record_event())  # also for what others than tilegrad have put there

    def wait_event(self, event: Event) -> None:
        """Make later work wait for an event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event after the present work."""
        made = event or Event()
        made.record(self)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._queue is self._queue

    def __hash__(self) -> int:
        return hash(self._queue)

    def __repr__(self) -> str:
        return f"<tilegrad.cuda.Stream device={self.device.name} cuda_stream={self.cuda_stream:#x}>"


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Run this thread's work on a stream within the block, with "cuda" as its GPU. None: no change."""
    from .backend.cuda.queues import on_queue

    if stream is None:
        yield
        return
    if not isinstance(stream, Stream):
        raise ArgumentError(f"cuda.stream takes a tilegrad.cuda.Stream, not {type(stream).__name__}")
    chosen = choose("cuda", stream._queue.device)
    try:
        with on_queue(stream._queue):
            yield
    finally:
        choose("cuda", chosen)


def set_stream(stream: Stream) -> None:
    """Run this thread's work on a stream from now on, with "cuda" as its GPU."""
    from .backend.cuda.queues import here

    choose("cuda", stream._queue.device)
    here.queues[stream._queue.device] = stream._queue


def current_stream(device: Which = None) -> Stream:
    """Return the thread's current stream."""
    return _stream_of(_gpu(device).queue)


def default_stream(device: Which = None) -> Stream:
    """Return the default stream of a GPU."""
    gpu = _gpu(device)
    gpu.start()
    return _stream_of(gpu.default)


def _stream_of(queue: Queue) -> Stream:
    made: Stream = object.__new__(Stream)
    made._queue = queue
    return made


class Event:
    """A point in the work of a stream."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise ArgumentError("cuda.Event: events of several processes are not supported; leave interprocess=False")
        self.timed = enable_timing
        self._handle = 0
        self._gpu: CudaDevice | None = None
        if enable_timing:
            time_with(self)

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after the work recorded so far."""
        queue = (stream or current_stream())._queue
        finish()
        gpu = queue.device
        with gpu.entered():
            if self._gpu is not gpu:
                self._end()
                self._handle, self._gpu = gpu.event(self.timed), gpu
            gpu.driver.record(self._handle, queue.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of the stream wait for the event."""
        queue = (stream or current_stream())._queue
        if self._gpu is not None:
            with queue.device.entered():
                queue.device.driver.stream_waits(queue.handle, self._handle)

    def query(self) -> bool:
        """Whether it has happened; an event that was never recorded has."""
        if self._gpu is None:
            return True
        with self._gpu.entered():
            return self._gpu.driver.event_done(self._handle)

    def synchronize(self) -> None:
        """Wait until it has happened."""
        if self._gpu is not None:
            with self._gpu.entered():
                self._gpu.driver.await_event(self._handle)
            self._gpu.index_faults.look()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the time from this event to a later one, in milliseconds of the GPU."""
        if not (self.timed and end_event.timed):
            raise ArgumentError("elapsed_time: make both events with enable_timing=True")
        if self._gpu is None or end_event._gpu is None:
            raise ArgumentError("elapsed_time: both events must have been recorded")
        end_event.synchronize()
        with self._gpu.entered():
            return self._gpu.driver.elapsed(self._handle, end_event._handle)

    def _end(self) -> None:
        if self._gpu is not None:
            (self._gpu.timed_events if self.timed else self._gpu.events).append(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_gpu", None) is not None:
            self._end()


def manual_seed_all(seed: int) -> Any:
    """Seed the random generators of all devices, as `manual_seed` does."""
    return manual_seed(seed)


def _place(which: Which) -> Device:
    """Resolve a device whose memory is looked at: a GPU, or the device that takes its place."""
    return which if isinstance(which, Device) else _gpu(which)


def _gpu(which: Which) -> CudaDevice:
    """Resolve a GPU, or raise DeviceError."""
    found = named("cuda" if which is None else f"cuda:{which}" if isinstance(which, int) else which)
    if found.kind != "cuda":
        raise DeviceError(f"{found.name} is not a GPU; name one, as in 'cuda:0' or 0")
    return found  # type: ignore[return-value]
