"""The interface to a CUDA driver.

It has three implementations: the driver of this machine (`native.py`), one that runs nothing (`null.py`), and one for
tests, which keeps memory on the host and runs kernels in the reference interpreter. Handles and addresses are integers.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import RuntimeFault, TilegradError
from .outside import ForeignCall
from .tensor_map import ALIGNED, BYTES, TensorMap

if TYPE_CHECKING:
    from ...ir.tile import Kernel
    from .build import CudaBinary
    from .launch_times import LaunchTimer

MIN_DRIVER_VERSION = 12000
"""Oldest driver with all functions in the table of `native.py`: CUDA 12.0."""
NOT_READY, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 600, 2, 700
STICKY_ERRORS = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""Sticky errors, after which the process cannot use the device."""

ATTRIBUTES = {
    "threads": 1,
    "grid": 5,
    "shared": 8,
    "warp": 10,
    "registers": 12,
    "clock": 13,
    "multiprocessors": 16,
    "memory_clock": 36,
    "bus": 37,
    "l2": 38,
    "threads_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_multiprocessor": 81,
    "registers_multiprocessor": 82,
    "shared_optin": 97,
    "blocks_multiprocessor": 106,
    "pools": 115,
}
"""Device attributes that are queried, by their number in `CUdevice_attribute`."""


def cuda_major(version: int) -> int:
    """Return the major number of a CUDA version, which is 1000 * major + 10 * minor."""
    return version // 1000


class DriverFault(RuntimeFault):
    """An error returned by the driver, possibly caused by work submitted earlier."""

    def __init__(self, code: int, name: str, reason: str, call: str) -> None:
        super().__init__(f"CUDA: {reason} ({name}, {code}), said by {call}")
        self.code = code
        self.reason = reason

    @property
    def sticky(self) -> bool:
        """Whether the device is lost to this process."""
        return self.code in STICKY_ERRORS


class KernelCall:
    """A kernel with its launch configuration and arguments, at fixed addresses.

    `slots` are the arguments as words of 8 bytes (smaller numbers in the low bytes).
    """

    def __init__(
        self,
        name: str,
        function: int,
        blocks: int,
        threads: int,
        shared: int,
        values: Sequence[int],
        maps: Sequence[TensorMap] = (),
        extents: tuple[int, ...] = (),
        symbol: str = "",
    ) -> None:
        self.name = name
        self.symbol = symbol
        """Name of the function in its module, by which tools of NVIDIA know it; empty if it is not known."""
        self.function = function
        self.blocks = blocks
        self.threads = threads
        self.extents = extents or (blocks, 1, 1, threads, 1, 1)
        """Dimensions of the grid and of a block, along x, y and z."""
        self.shared = shared
        self.words = (ctypes.c_uint64 * len(values))(*[v & 0xFFFF_FFFF_FFFF_FFFF for v in values])
        self.slots = memoryview(self.words).cast("B").cast("Q")
        start = ctypes.addressof(self.words)
        self._map_bytes = ctypes.create_string_buffer(BYTES * len(maps) + ALIGNED)
        first = -(-ctypes.addressof(self._map_bytes) // ALIGNED) * ALIGNED
        places = [first + BYTES * n for n in range(len(maps))]
        self.maps = tuple(zip(maps, places, strict=True))
        """Tensor maps and their addresses: encoded again whenever the tensor's address changes."""
        addresses = [start + 8 * n for n in range(len(values))] + places
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self.native: object = None
        """The driver's own data."""


class CopyCall:
    """A copy of memory within a device."""

    def __init__(self, bytes: int) -> None:
        self.name = "copy"
        self.bytes = bytes
        self.slots = memoryview(bytearray(16)).cast("Q")
        """Source and target addresses."""
        self.maps: tuple[tuple[TensorMap, int], ...] = ()


class LibraryCall(ABC):
    """Work that an NVIDIA library submits to a stream or graph; `slots` are its arguments and the workspace."""

    name: str
    slots: memoryview
    workspace: int
    maps: tuple[tuple[TensorMap, int], ...] = ()
    sums_parts = False
    """Whether the call also does the work of the next kernel, which sums split-K parts."""

    @abstractmethod
    def start(self, driver: Driver, stream: int) -> None: ...


class LibraryProblem(ABC):
    """A problem described to a library."""

    @abstractmethod
    def algorithms(self, most: int) -> list[bytes]:
        """Return the library's proposed algorithms, best first."""

    @abstractmethod
    def call(self, name: str, algorithm: bytes, arguments: int) -> LibraryCall:
        """Return the call that replaces a kernel with this many arguments."""


class OpenLibrary(ABC):
    """An NVIDIA library in one CUDA context."""

    name: str
    workspace: int
    """Largest workspace of a call, in bytes."""
    table: Mapping[str, tuple[Any, ...]]
    """Argument types of each function; all return a status, 0 for success."""

    def __init__(self, library: Any) -> None:
        self.library = library
        for name, arguments in self.table.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeFault(f"{self.name}: {name} answers {status}: TILEGRAD_LIBRARIES=off does without the library")

    @abstractmethod
    def problem(self, task: Any) -> LibraryProblem: ...


Call = KernelCall | CopyCall
NodeCall = Call | LibraryCall
"""A node of a graph."""


class Driver(ABC):
    """A driver and its devices. Calls apply to the context that the thread has entered."""

    def __init__(self) -> None:
        self.explainers: list[Callable[[DriverFault], TilegradError | None]] = []
        """Callbacks of devices that explain sticky errors."""

    version: int
    """CUDA version: 1000 * major + 10 * minor."""
    runs = True
    """Whether a GPU executes the work."""

    def build(self, kernel: Kernel, architecture: str) -> CudaBinary:
        """Compile a kernel to what `load` takes."""
        from .build import build_kernel

        return build_kernel(kernel, architecture)

    def explained(self, fault: DriverFault) -> TilegradError:
        """Return the error to raise for a fault."""
        for explain in self.explainers if fault.sticky else ():
            error = explain(fault)
            if error is not None:
                return error
        return fault

    # --- devices -------------------------------------------------------------------------------

    @abstractmethod
    def device_count(self) -> int: ...

    @abstractmethod
    def device_name(self, number: int) -> str: ...

    @abstractmethod
    def attribute(self, number: int, attribute: str) -> int: ...

    @abstractmethod
    def total_memory(self, number: int) -> int: ...

    @abstractmethod
    def context(self, number: int) -> int:
        """Return the primary context, which other libraries in the process share."""

    @abstractmethod
    def share(self, owner: int, reader: int) -> None:
        """Enable direct access to another device's memory if possible; otherwise copies go through the host."""

    @abstractmethod
    def enter(self, context: int) -> None:
        """Make a context current for this thread."""

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Return free and total bytes."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work on the device."""

    # --- streams and events --------------------------------------------------------------------

    @abstractmethod
    def new_stream(self, priority: int) -> int: ...

    @abstractmethod
    def await_stream(self, stream: int) -> None: ...

    @abstractmethod
    def stream_done(self, stream: int) -> bool: ...

    @abstractmethod
    def new_event(self, timed: bool) -> int: ...

    @abstractmethod
    def end_event(self, event: int) -> None: ...

    @abstractmethod
    def record(self, event: int, stream: int) -> None: ...

    @abstractmethod
    def stream_waits(self, stream: int, event: int) -> None:
        """Let work submitted to the stream from now on wait for an event."""

    @abstractmethod
    def await_event(self, event: int) -> None: ...

    @abstractmethod
    def event_done(self, event: int) -> bool: ...

    @abstractmethod
    def elapsed(self, start: int, stop: int) -> float:
        """Return the milliseconds between two timed events."""

    def delay_call(self, nanoseconds: int) -> KernelCall | None:
        """Return the launch of a kernel that takes this long; None if the driver has none."""
        return None

    def delay(self, nanoseconds: int, stream: int) -> bool:
        """Keep a stream busy, so that the host submits ahead of it; False if the driver cannot."""
        call = self.delay_call(nanoseconds)
        if call is not None:
            self.launch(call, stream)
        return call is not None

    def launch_timer(self) -> LaunchTimer | None:
        """Return what times launches by the GPU's own records, None without any; DeviceError if it is refused."""
        return None

    @abstractmethod
    def mark(self, stream: int, address: int, number: int) -> None:
        """Write 4 bytes of pinned memory when the preceding work of the stream is done."""

    # --- memory --------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, bytes: int, stream: int) -> int: ...

    @abstractmethod
    def free(self, address: int, stream: int) -> None: ...

    @abstractmethod
    def trim(self, number: int) -> None:
        """Return free memory of the driver's pool to the system."""

    @abstractmethod
    def allocate_host(self, bytes: int) -> int:
        """Allocate pinned host memory, which is never freed: the caller reuses it."""

    @abstractmethod
    def to_device(self, target: int, source: int, bytes: int, stream: int) -> None: ...

    @abstractmethod
    def to_host(self, target: int, source: int, bytes: int, stream: int) -> None: ...

    @abstractmethod
    def copy(self, target: int, source: int, bytes: int, stream: int) -> None: ...

    @abstractmethod
    def copy_between(
        self, target: int, target_context: int, source: int, source_context: int, bytes: int, stream: int
    ) -> None:
        """Copy from one device's memory to another's."""

    # --- kernels -------------------------------------------------------------------------------

    @abstractmethod
    def load(self, image: bytes) -> int:
        """Load a module from a cubin."""

    @abstractmethod
    def function(self, module: int, name: str) -> int: ...

    @abstractmethod
    def allow_shared(self, function: int, bytes: int) -> None:
        """Allow a function more dynamic shared memory than the default 48 KiB."""

    @abstractmethod
    def encode(self, place: int, map: TensorMap, address: int) -> None:
        """Encode a tensor map for a tensor's address."""

    @abstractmethod
    def launch(self, call: Call, stream: int) -> None: ...

    def start(self, call: NodeCall | ForeignCall, stream: int) -> None:
        """Launch a kernel or a copy, or call an external function."""
        if isinstance(call, ForeignCall | LibraryCall):
            call.start(self, stream)
        else:
            self.launch(call, stream)

    def open_library(self, name: str) -> OpenLibrary | None:
        """Return a library (`libraries.py`) for the current context, or None."""
        return None

    # --- graphs --------------------------------------------------------------------------------

    @abstractmethod
    def new_graph(self) -> int: ...

    @abstractmethod
    def add_node(self, graph: int, call: NodeCall, after: Sequence[int], context: int) -> int: ...

    @abstractmethod
    def instantiate(self, graph: int) -> int: ...

    @abstractmethod
    def renew_node(self, executable: int, node: int, call: NodeCall, context: int) -> None:
        """Update a node with the current arguments of its call."""

    @abstractmethod
    def launch_graph(self, executable: int, stream: int) -> None: ...

    @abstractmethod
    def end_graph(self, graph: int, executable: int) -> None: ...
