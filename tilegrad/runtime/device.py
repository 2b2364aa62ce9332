"""Devices: where memory is and programs run.

To add one, write a folder `tilegrad/backend/<kind>` whose `__init__.py` has `devices() -> list[Device]`, or call
`register` with an object. A device that has `allocate`, `from_host`, `to_host` and `compile` runs whole programs:
`load` then gives an executor that walks their steps. A device that can do better has a `load` of its own.
"""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import DeviceError
from ..ir.dtype import DType, bfloat16, uint8
from ..ir.precision import PRECISIONS, Precision
from .buffer import Buffer, Usage
from .once import lock

if TYPE_CHECKING:
    from ..ir.program import Program
    from ..ir.tile import Kernel
    from .executable import CompiledKernel, Executable
    from .target_model import TargetModel


class Statistics(NamedTuple):
    """The memory of a device, in bytes: held by live buffers (now, at most), taken from the system, and how often."""

    live: int
    peak: int
    held: int
    allocations: int


class Device(ABC):
    """A place for tensors. There is one object for each: `device("cpu") is device("cpu")`."""

    low: DType = bfloat16
    """The type of products in mixed precision, where none is named."""
    runs = True
    """Whether kernels are carried out, so that times mean something."""
    shows_source = False
    """Whether `source` is written for people, as one stage that `explain` prints."""

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
        """The same, as PyTorch calls it."""
        return self.kind

    @property
    def index(self) -> int | None:
        """Its number among those of its kind; None where there is one alone, without a number."""
        number = self.name.partition(":")[2]
        return int(number) if number else None

    @abstractmethod
    def allocate(self, bytes: int) -> Buffer:
        """Memory with any contents."""

    def maker(self, bytes: int) -> Callable[[], Buffer]:
        """A function that makes buffers of this size, as fast as the device can."""
        return partial(self.allocate, bytes)

    @abstractmethod
    def from_host(self, array: np.ndarray) -> Buffer:
        """A buffer with the elements of an array, row by row."""

    @abstractmethod
    def to_host(self, buffer: Buffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        """A new array with the elements of a buffer."""

    def view(self, buffer: Buffer, dtype: DType, shape: Sequence[int]) -> np.ndarray | None:
        """An array *on* the memory of a buffer, which it keeps alive; None where the host cannot reach it."""
        return None

    def adopt(self, array: np.ndarray) -> Buffer | None:
        """A buffer on the memory of an array, which it keeps alive; None where this device cannot reach it."""
        return None

    def address(self, buffer: Buffer) -> int:
        """Where a buffer begins, for functions in machine code."""
        if isinstance(buffer.memory, np.ndarray):
            return int(buffer.memory.ctypes.data)
        raise DeviceError(f"{self.name} runs no foreign functions")

    def copy(self, source: Buffer) -> Buffer:
        """A new buffer here with the contents of one of any device."""
        return self.from_host(source.device.to_host(source, uint8, (source.bytes,)))

    def number_from(self, source: Buffer) -> Buffer:
        """The number in a buffer of another device, in one of this device that is only read."""
        return self.copy(source)

    def page_locked(self, source: Buffer) -> Buffer | None:
        """The contents of a CPU buffer in CPU memory from which this device copies while others work; None: no need."""
        return None

    def deliver(self, source: Buffer, target: Buffer) -> None:
        """Puts the contents of a buffer of this device in one of the CPU."""
        array = self.to_host(source, uint8, (source.bytes,))
        target.device.overwrite(target, target.device.from_host(array))

    def overwrite(self, target: Buffer, source: Buffer) -> None:
        """Puts the contents of one buffer of this device in another."""
        array = self.to_host(source, uint8, (source.bytes,))
        np.frombuffer(target.memory, np.uint8)[: source.bytes] = array

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """One kernel as a function."""
        raise DeviceError(f"{self.name} does not run kernels")

    def load(self, program: Program) -> Executable:
        """Compiles a program for this device."""
        from .executor import StepExecutable

        return StepExecutable(self, program)

    def load_for(self, program: Program, steady: Set[str]) -> Executable:
        """The same for calls in which some inputs are what they were the last time: see `Executable.steady`."""
        return self.load(program)

    def synchronize(self) -> None:  # noqa: B027 - most devices have finished when they return
        """Waits until everything that was started here is done."""

    def source(self, kernel: Kernel) -> str:
        """What the backend makes of a kernel before the machine code: LLVM IR, CUDA C++; for people to read."""
        return ""

    def assembly(self, kernel: Kernel) -> str:
        """The machine code of a kernel, in print."""
        return ""

    def trim(self) -> None:  # noqa: B027 - most devices keep none
        """Returns memory that is kept for reuse to the system."""

    @property
    def statistics(self) -> Statistics:
        usage = self.usage
        return Statistics(usage.live, usage.peak, usage.live, usage.allocations)

    @property
    def everything(self) -> Buffer | None:
        """All memory, for pointers that are made of addresses; None where there are no addresses."""
        return None

    @property
    def machine(self) -> str:
        """The hardware in words: what times that were measured here are for."""
        return self.name

    @cached_property
    def target(self) -> TargetModel:
        """How finely work is cut for this device: what the scheduler goes by."""
        from .target_model import TargetModel

        return TargetModel()

    @property
    def products(self) -> Mapping[Precision, str]:
        """In what arithmetic float32 products are made at each precision: at least as exact as the word demands."""
        return dict.fromkeys(PRECISIONS, "float32")

    def arithmetic(self, kernel: Kernel) -> list[str]:
        """What is made of the products of a kernel that need not be float32's, in words."""
        from ..ir.tile_access import precisions

        return [f'input_precision="{word}": {self.products[word]} on {self.name}' for word in precisions(kernel)]

    @property
    def limits(self) -> Mapping[str, Any]:
        """What the hardware can do, as measured: bytes and operations per second, cache sizes, units."""
        return {}

    def __repr__(self) -> str:
        return f"<device {self.name}>"

    def __str__(self) -> str:
        return self.name


_devices: dict[str, Device] = {}
_kinds: set[str] = set()
"""The kinds whose devices are known."""
_lock = lock()
_backends = f"{__package__.rpartition('.')[0]}.backend"  # by name: it stands below us and finds itself


def register(device: Device) -> Device:
    """Makes a device known by its name, in place of any that had it."""
    with _lock:
        _devices[device.name] = device
    return device


def device(name: str | Device, index: int | None = None) -> Device:
    """The device with this name; `cuda` is the one that the thread has chosen, `cuda:0` if it has not."""
    if isinstance(name, Device):
        return name
    if index is not None:
        name = f"{name}:{index}"
    found = _devices.get(name)
    return found if found is not None else _searched(name)


class _Chosen(threading.local):
    """What a thread means by the name of a kind."""

    def __init__(self) -> None:
        self.of_kind: dict[str, Device] = {}


_chosen = _Chosen()


def choose(kind: str, device: Device | None) -> Device | None:
    """From now on this thread means this device by the name of its kind (None: the first); what it meant before."""
    before = _chosen.of_kind.pop(kind, None)
    if device is not None:
        _chosen.of_kind[kind] = device
    return before


def devices() -> list[Device]:
    """All devices of this machine, the CPU first."""
    for kind in importlib.import_module(_backends).kinds():
        _add_kind(kind)
    return sorted(_devices.values(), key=lambda d: (d.name != "cpu", d.name))


def known_devices() -> list[Device]:
    """The devices that somebody has asked for."""
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
    """What a backend has to say about devices that are not there."""
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
