"""What tilegrad asks of a CUDA driver.

Three answer: the driver of this machine (`native.py`), one that only counts (`null.py`), and the one of the tests,
which keeps memory in the host's and runs kernels with the reference interpreter. Handles and addresses are integers.
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
    from .build import Built

OLDEST = 12000
"""The first driver that has everything in the table of `native.py`: CUDA 12.0."""
NOT_READY, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 600, 2, 700
LASTING = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""Errors after which nothing works any more in this process."""

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
"""What is asked of a device, by its number in `CUdevice_attribute`."""


class DriverFault(RuntimeFault):
    """A call that the driver refused, or the failure of work that was started before."""

    def __init__(self, code: int, name: str, reason: str, call: str) -> None:
        super().__init__(f"CUDA: {reason} ({name}, {code}), said by {call}")
        self.code = code
        self.reason = reason

    @property
    def lasting(self) -> bool:
        """Whether the device is lost to this process."""
        return self.code in LASTING


class KernelCall:
    """A kernel with its configuration and arguments, which stay in place: a launch only says where they are.

    `slots` are the arguments as words of 8 bytes (a smaller number is in the low bytes).
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
    ) -> None:
        self.name = name
        self.function = function
        self.blocks = blocks
        self.threads = threads
        self.extents = extents or (blocks, 1, 1, threads, 1, 1)
        """Of the grid and of a block, along x, y and z."""
        self.shared = shared
        self.words = (ctypes.c_uint64 * len(values))(*[v & 0xFFFF_FFFF_FFFF_FFFF for v in values])
        self.slots = memoryview(self.words).cast("B").cast("Q")
        start = ctypes.addressof(self.words)
        self._map_bytes = ctypes.create_string_buffer(BYTES * len(maps) + ALIGNED)
        first = -(-ctypes.addressof(self._map_bytes) // ALIGNED) * ALIGNED
        places = [first + BYTES * n for n in range(len(maps))]
        self.maps = tuple(zip(maps, places, strict=True))
        """What the copy engine is told about tensors, and where it stands: to be encoded anew with every address."""
        addresses = [start + 8 * n for n in range(len(values))] + places
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self.native: object = None
        """What else a driver keeps for it."""


class CopyCall:
    """A copy of memory within a device."""

    def __init__(self, bytes: int) -> None:
        self.name = "copy"
        self.bytes = bytes
        self.slots = memoryview(bytearray(16)).cast("Q")
        """Source and target."""
        self.maps: tuple[tuple[TensorMap, int], ...] = ()


class LibraryCall(ABC):
    """Work that a library of NVIDIA's puts on a stream; it can be part of a graph. `slots` are what it is given, and
    last the address of so much `workspace`."""

    name: str
    slots: memoryview
    workspace: int
    maps: tuple[tuple[TensorMap, int], ...] = ()
    adds_up = False
    """Whether the result, where the kernel would put pieces of it, is what the next kernel makes of them."""

    @abstractmethod
    def start(self, driver: Driver, stream: int) -> None: ...


class LibraryProblem(ABC):
    """Something that a library can compute, as it is told of it."""

    @abstractmethod
    def algorithms(self, most: int) -> list[bytes]:
        """How it may be done, as the library thinks: the best first."""

    @abstractmethod
    def call(self, name: str, algorithm: bytes, arguments: int) -> LibraryCall:
        """The call that does it in place of a kernel with so many arguments."""


class OpenLibrary(ABC):
    """A library of NVIDIA's, for one context."""

    name: str
    workspace: int
    """What a call may need at most, in bytes."""
    table: Mapping[str, tuple[Any, ...]]
    """Every function that is used, and what it takes. All return a number, which is 0 if nothing went wrong."""

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
"""What can be part of a graph."""


class Driver(ABC):
    """A driver and its devices. Calls are for the context that the thread has entered."""

    def __init__(self) -> None:
        self.explainers: list[Callable[[DriverFault], TilegradError | None]] = []
        """Devices, which know more about a lasting error than the driver does."""

    version: int
    """1000 times the CUDA version, plus 10 times the minor one."""
    runs = True
    """Whether there is a GPU that carries out what it is given."""

    def built(self, kernel: Kernel, architecture: str) -> Built:
        """A kernel compiled to what `load` takes."""
        from .build import built

        return built(kernel, architecture)

    def explained(self, fault: DriverFault) -> TilegradError:
        """A fault as users are told it."""
        for explain in self.explainers if fault.lasting else ():
            told = explain(fault)
            if told is not None:
                return told
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
        """The primary context, which other libraries in this process share."""

    @abstractmethod
    def share(self, owner: int, reader: int) -> None:
        """Lets a device reach the memory of another directly, if the machine has a way; else copies pass the host."""

    @abstractmethod
    def enter(self, context: int) -> None:
        """What this thread calls from now on is for this context."""

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything on the device."""

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
        """What comes on the stream from now on starts after what came before the event."""

    @abstractmethod
    def await_event(self, event: int) -> None: ...

    @abstractmethod
    def event_done(self, event: int) -> bool: ...

    @abstractmethod
    def elapsed(self, start: int, stop: int) -> float:
        """Milliseconds between two timed events."""

    @abstractmethod
    def mark(self, stream: int, address: int, number: int) -> None:
        """Writes 4 bytes of pinned memory, once what came before on the stream is done."""

    # --- memory --------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, bytes: int, stream: int) -> int: ...

    @abstractmethod
    def free(self, address: int, stream: int) -> None: ...

    @abstractmethod
    def trim(self, number: int) -> None:
        """Gives what is free in the driver's pool back to the system."""

    @abstractmethod
    def allocate_host(self, bytes: int) -> int:
        """Pinned memory of the host: who asks for it keeps it, and uses it again."""

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
        """From the memory of one device to that of another."""

    # --- kernels -------------------------------------------------------------------------------

    @abstractmethod
    def load(self, image: bytes) -> int:
        """A module from a cubin."""

    @abstractmethod
    def function(self, module: int, name: str) -> int: ...

    @abstractmethod
    def allow_shared(self, function: int, bytes: int) -> None:
        """Lets a function have more dynamic shared memory than the 48 KiB that all may have."""

    @abstractmethod
    def encode(self, place: int, map: TensorMap, address: int) -> None:
        """Writes what the copy engine is told about a tensor at an address."""

    @abstractmethod
    def launch(self, call: Call, stream: int) -> None: ...

    def start(self, call: NodeCall | ForeignCall, stream: int) -> None:
        """Launches a kernel or a copy, or calls somebody else's function."""
        if isinstance(call, ForeignCall | LibraryCall):
            call.start(self, stream)
        else:
            self.launch(call, stream)

    def opened(self, name: str) -> OpenLibrary | None:
        """The library of this name (`libraries.py`), for the context that the thread has entered, if it is here."""
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
        """Gives a node the arguments that the call has now."""

    @abstractmethod
    def launch_graph(self, executable: int, stream: int) -> None: ...

    @abstractmethod
    def end_graph(self, graph: int, executable: int) -> None: ...
