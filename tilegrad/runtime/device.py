"""Define devices: they own memory and run programs.

To add one, write a folder `tilegrad/backend/<kind>` whose `__init__.py` has `devices() -> list[Device]`, or call
`register` with an object. A device that has `allocate`, `from_host`, `to_host` and `compile` runs whole programs: the
default `load` gives an executor that interprets their steps. A device with a faster executor overrides `load`.
"""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import DeviceError
from ..ir.dtype import DType, bfloat16, uint8
from ..ir.precision import PRECISIONS, Precision
from .buffer import DeviceBuffer, Usage
from .singletons import lock

if TYPE_CHECKING:
    from ..ir.program import Launch, Program
    from ..ir.size import Dim
    from ..ir.tile import Kernel
    from .executable import CompiledKernel, Executable
    from .target_model import TargetModel


owner_tables: list[Callable[[str], list[str]]] = []
"""Functions that list the owners of a device's memory by purpose, for errors: the layers above register theirs."""


LaunchListener: TypeAlias = "Callable[[Launch, Mapping[str, Dim], int], None]"
"""Receives a launch of a program that is being made, the bytes of its buffers, and the number of launches left."""


class Statistics(NamedTuple):
    """Memory statistics of a device, in bytes: live buffers (now, peak), reserved from the system (now, peak), and the
    number of allocations.
    """

    live: int
    peak: int
    held: int
    allocations: int
    held_peak: int = 0


class Device(ABC):
    """A device on which tensors live. There is one object for each: `device("cpu") is device("cpu")`."""

    low: DType = bfloat16
    """Default element type of products in mixed precision."""
    runs = True
    """Whether kernels are executed, so that times are meaningful."""
    shows_source = False
    """Whether `source` is readable, as a stage that `explain` prints."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.usage = Usage()

    def __reduce__(self) -> Any:
        return device, (self.name,)

    @property
    def kind(self) -> str:
        """The name without its number: `cuda` for `cuda:1`."""
        return self.name.partition(":")[0]

    @property
    def type(self) -> str:
        """PyTorch's name for `kind`."""
        return self.kind

    @property
    def index(self) -> int | None:
        """Its number among devices of its kind; None if the name has no number."""
        number = self.name.partition(":")[2]
        return int(number) if number else None

    @abstractmethod
    def allocate(self, bytes: int) -> DeviceBuffer:
        """Allocate uninitialised memory."""

    def maker(self, bytes: int) -> Callable[[], DeviceBuffer]:
        """Return a function that allocates buffers of a fixed size, as fast as the device can."""
        return partial(self.allocate, bytes)

    @abstractmethod
    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        """Copy an array to a new buffer, in row-major order."""

    @abstractmethod
    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        """Copy the elements of a buffer to a new array."""

    def address_space(self, dtype: DType) -> memoryview | None:
        """Return the address space as elements, by address // dtype.bytes; None if the host cannot access them."""
        return None

    def view(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray | None:
        """Return an array *on* the memory of a buffer, which it keeps alive; None if the host cannot access it."""
        return None

    def adopt(self, array: np.ndarray) -> DeviceBuffer | None:
        """Return a buffer on the memory of an array, which it keeps alive; None if the device cannot access it."""
        return None

    def address(self, buffer: DeviceBuffer) -> int:
        """Return the address of a buffer, for functions in machine code."""
        if isinstance(buffer.memory, np.ndarray):
            return int(buffer.memory.ctypes.data)
        raise DeviceError(f"{self.name} runs no foreign functions")

    def copy(self, source: DeviceBuffer) -> DeviceBuffer:
        """Copy a buffer of any device to a new buffer on this one."""
        return self.from_host(source.device.to_host(source, uint8, (source.bytes,)))

    def number_from(self, source: DeviceBuffer) -> DeviceBuffer:
        """Copy a number from a buffer of another device to a read-only buffer of this one."""
        return self.copy(source)

    def page_locked(self, source: DeviceBuffer) -> DeviceBuffer | None:
        """Copy a CPU buffer to page-locked memory for asynchronous transfers; None if the device does not need it."""
        return None

    def deliver(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy a buffer of this device into a CPU buffer."""
        array = self.to_host(source, uint8, (source.bytes,))
        target.device.overwrite(target, target.device.from_host(array))

    def overwrite(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        """Copy a buffer of this device into another."""
        array = self.to_host(source, uint8, (source.bytes,))
        np.frombuffer(target.memory, np.uint8)[: source.bytes] = array

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Compile a kernel to a function."""
        raise DeviceError(f"{self.name} does not run kernels")

    def compiling(self) -> AbstractContextManager[LaunchListener | None]:
        """Return a context in which the kernels of a program may be compiled while the program is still being made: it
        gives the function to call with each launch.
        """
        return nullcontext()

    def load(self, program: Program, constant_inputs: Set[str] = frozenset()) -> Executable:
        """Compile a program for this device; `constant_inputs` seldom change between calls (`Executable.hoisted`)."""
        from .executor import StepExecutable

        return StepExecutable(self, program)

    def synchronize(self) -> None:  # noqa: B027 - most devices have finished when they return
        """Wait until all work started here is done."""

    def begin_profile(self) -> None:  # noqa: B027 - most devices time launches as they run
        """Prepare to time launches for a profile that has begun to listen."""

    def deliver_times(self) -> None:  # noqa: B027
        """Complete the times of all runs that were reported without."""

    def end_profile(self) -> None:  # noqa: B027
        """Time no more launches, unless another profile listens."""

    def source(self, kernel: Kernel) -> str:
        """Return the readable source that the backend generates for a kernel: LLVM IR, CUDA C++."""
        return ""

    def assembly(self, kernel: Kernel) -> str:
        """Return the disassembly of a kernel."""
        return ""

    def trim(self) -> None:  # noqa: B027 - most devices keep none
        """Release pooled memory to the system."""

    @property
    def statistics(self) -> Statistics:
        usage = self.usage
        return Statistics(usage.live, usage.peak, usage.live, usage.allocations, usage.peak)

    @property
    def live_bytes(self) -> int:
        """Bytes of the memory in use."""
        return self.statistics.live

    def reset_peaks(self) -> None:
        """Reset the peaks of the statistics to the current usage."""
        self.usage.reset_peak()

    @property
    def everything(self) -> DeviceBuffer | None:
        """Return a buffer of the whole address space, for pointers made from addresses; None if it has none."""
        return None

    @property
    def ready_kernels(self) -> Any:
        """Return kernels that take sizes and strides as data (`first_tier/group_step.py`); None if there are none."""
        return None

    @property
    def machine(self) -> str:
        """Describe the hardware for which measured times are valid."""
        return self.name

    @cached_property
    def target(self) -> TargetModel:
        """The target model of the scheduler for this device."""
        from .target_model import TargetModel

        return TargetModel()

    @property
    def products(self) -> Mapping[Precision, str]:
        """The arithmetic of float32 products at each precision: at least as precise as requested."""
        return dict.fromkeys(PRECISIONS, "float32")

    def arithmetic(self, kernel: Kernel) -> list[str]:
        """Describe the arithmetic used for a kernel's reduced-precision products."""
        from ..ir.tile_access import precisions

        return [f'input_precision="{word}": {self.products[word]} on {self.name}' for word in precisions(kernel)]

    @property
    def limits(self) -> Mapping[str, Any]:
        """Return the limits of the hardware, measured or published: bytes and operations per second, caches, units."""
        return {}

    def __repr__(self) -> str:
        return f"<device {self.name}>"

    def __str__(self) -> str:
        return self.name


_devices: dict[str, Device] = {}
_kinds: set[str] = set()
"""Device kinds that have been enumerated."""
_lock = lock()
_backends = f"{__package__.rpartition('.')[0]}.backend"  # by name: it stands below us and finds itself


def register(device: Device) -> Device:
    """Register a device by its name, replacing an earlier one."""
    with _lock:
        _devices[device.name] = device
    return device


def device(name: str | Device, index: int | None = None) -> Device:
    """Look up a device by name; `cuda` is the thread's current device, by default `cuda:0`."""
    found = _devices.get(name) if index is None else None  # type: ignore[arg-type]
    if found is not None:
        return found
    if isinstance(name, Device):
        return name
    return _searched(name) if index is None else device(f"{name}:{index}")


class _Chosen(threading.local):
    """The current device of each kind, per thread."""

    def __init__(self) -> None:
        self.of_kind: dict[str, Device] = {}


_chosen = _Chosen()


def choose(kind: str, device: Device | None) -> Device | None:
    """Set the thread's current device of a kind (None: the first); return the previous one."""
    before = _chosen.of_kind.pop(kind, None)
    if device is not None:
        _chosen.of_kind[kind] = device
    return before


def devices() -> list[Device]:
    """List all devices of this machine, the CPU first."""
    for kind in importlib.import_module(_backends).kinds():
        _add_kind(kind)
    return sorted(_devices.values(), key=lambda d: (d.name != "cpu", d.name))


def known_devices() -> list[Device]:
    """List the devices that have been looked up."""
    return list(_devices.values())


def _searched(name: str) -> Device:
    kind = name.partition(":")[0]
    if kind in importlib.import_module(_backends).kinds():
        _add_kind(kind)
    found = _chosen.of_kind.get(name) or _devices.get(name) or _devices.get(f"{name}:0")
    if found is None:
        known_names = ", ".join(d.name for d in devices())
        why = _why_none(kind)
        raise DeviceError(f"there is no device {name!r} here{why}. This machine has: {known_names}")
    return found


def _why_none(kind: str) -> str:
    if kind not in importlib.import_module(_backends).kinds():
        return ""
    absence = getattr(importlib.import_module(f"{_backends}.{kind}"), "absence", str)()
    return f": {absence}" if absence else ""


def _add_kind(kind: str) -> None:
    with _lock:
        if kind in _kinds:
            return
        for new in importlib.import_module(f"{_backends}.{kind}").devices():
            _devices.setdefault(new.name, new)
        _kinds.add(kind)
