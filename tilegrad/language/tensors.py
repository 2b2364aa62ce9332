"""Prepare the memory of tensors that a kernel reads or writes in place.

Values recorded earlier and not yet computed must see the old elements, so memory that anyone else holds is copied
before the kernel writes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..errors import GradientError, InPlaceError, KernelLaunchError, TraceError
from ..ir.graph import Value
from ..ir.tile import TileParameter
from ..ir.tile_access import Accesses
from ..lazy.evaluation import in_memory
from ..lazy.exclusive_memory import give_memory, own_memory
from ..lazy.handle import Handle, handle_on, is_tracing, mode
from ..lazy.layout import layout
from ..lazy.storage import one_writer
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..transforms import depends_on_a_stand_in


class TensorMemory(NamedTuple):
    """The memory of a tensor argument: `extent` elements of a buffer, starting at `offset`."""

    buffer: DeviceBuffer
    offset: int
    extent: int
    itemsize: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    """Strides of a view; None for contiguous memory."""

    @property
    def address(self) -> tuple[int, int]:
        return id(self.buffer), self.offset

    def joined(self, other: TensorMemory) -> TensorMemory:
        """Merge the memory of two tensors that start at the same address."""
        longer = max(self, other, key=lambda memory: memory.extent)
        return self if other == self else longer._replace(shape=(), strides=None)

    def window(self) -> DeviceBuffer:
        return self.buffer.lend(self.offset * self.itemsize) if self.offset else self.buffer


def all_memory(place: str) -> DeviceBuffer:
    """Return the whole memory of a device from address 0, for pointers made of addresses."""
    found = device(place)
    if found.everything is None:
        raise KernelLaunchError(f"a pointer is made of an address (tl.pointer_type), and the device {place} has none")
    return found.everything


def refuse_addresses(name: str, hidden: Sequence[TileParameter], where: str) -> None:
    """Refuse integer addresses where the set of tensors that a kernel accesses must be known."""
    if hidden:
        raise KernelLaunchError(
            f"kernel {name} makes pointers of addresses (tl.pointer_type), and {where} it must be known which tensors "
            "it reads and writes: give it the tensors themselves, several of them as a tuple"
        )


def refuse_tracing(name: str, given: Sequence[Any]) -> None:
    """Refuse to trace kernels that run at launch and cannot be recorded."""
    if is_tracing() and any(isinstance(x, Handle) for x in given):
        raise TraceError(
            f"kernel {name} is launched while a function is traced, and would run now, once, on placeholders. Launch "
            "it outside of jit and vmap"
        )


def memory_of(x: Any) -> TensorMemory:
    """Return the memory of a tensor, computing the tensor first; of a view, that of its base. Do not keep the result:
    the tensor may own the memory.
    """
    type = x._value.type
    if not x._moves:
        return TensorMemory(_elements(x), 0, int(type.count), type.dtype.bytes)
    buffer = _elements(x)
    found: Any = layout(x)
    shape: Any = type.shape
    span = 1 + sum((n - 1) * s for n, s in zip(shape, found.strides, strict=True)) if 0 not in shape else 0
    return TensorMemory(buffer, int(found.offset), span, type.dtype.bytes, shape, found.strides)


def _elements(x: Any) -> DeviceBuffer:
    """Return the memory of a whole storage."""
    owned = None if x._base is None else x._base.storage.owned
    if owned is not None:
        return owned  # type: ignore[no-any-return]
    return in_memory(handle_on(x.base().current()) if x._moves else x).buffer  # type: ignore[no-any-return]


def prepare_write(name: str, parameter: str, x: Any) -> Callable[[], Value | None]:
    """Make a tensor's memory exclusive before a write; copy its old value if anyone still holds it."""
    base = x.base()
    if mode.enabled and not base.hidden and base.is_tracked():
        raise InPlaceError(
            f"kernel {name} writes to `{parameter}`, which gradients flow through: a kernel has no derivative. Launch "
            "it within `with tilegrad.no_grad():`, or on x.detach()"
        )
    return own_memory(x)


def stops_gradients(name: str, call: Any, found: Accesses) -> bool:
    """Whether a launch reads tensors with gradients and stores floats, so that gradients stop here. Refused for the
    variables that `grad` and the like differentiate by.
    """
    tensors = [(p, x) for p, x in zip(call.parameters, call.given, strict=True) if isinstance(x, Handle) and p.pointer]
    read = [(p.name, x) for p, x in tensors if p.name in found.loaded and x._value.tracked]
    if not read or not any(p.name in found.stored and p.dtype.is_float for p, x in tensors):
        return False
    for parameter, x in read if mode.differentiated else ():
        if depends_on_a_stand_in(x.value):
            raise GradientError(
                f"{mode.differentiated}: kernel {name} reads `{parameter}`, which is differentiated by, and a kernel "
                "has no derivative: give it one with tilegrad.op, or in a tilegrad.autograd.Function; or launch it on "
                "x.detach(), if none is wanted"
            )
    return True


def note_write(name: str, x: Any, before: Callable[[], Value | None], severs: bool = False) -> None:
    """Note that a tensor's elements changed in place; notify views and saved values."""
    base, old = x.base(), before()
    base.wrote(name)
    if severs or base.storage.value.provenance.severed:
        base.storage.value.note().severed = name if severs else ""
    if old is not None and not base.hidden and not old.provenance.is_interned:
        old.note().change = base.storage.change
    if x.stands_for is not None:
        x.stands_for.write(x.own_value(), name)


def allocate(x: Any) -> None:
    """Allocate uninitialised memory for a tensor whose elements do not matter, instead of filling it with zeros."""
    value = x.own_value()
    if value.provenance.is_uninitialised and value.buffer is None and not x._moves and value.type.count != 0:
        give_memory(x, device(value.type.device).allocate(int(value.type.bytes)))


@contextmanager
def writing(
    name: str,
    parameters: Sequence[TileParameter],
    given: Sequence[Any],
    stored: frozenset[str],
    loaded: frozenset[str] | None = None,
    severs: bool = False,
) -> Iterator[None]:
    """Wrap a launch that writes to tensors; `loaded` are those it reads, None if unknown."""
    tensors = [(p.name, x) for p, x in zip(parameters, given, strict=True) if isinstance(x, Handle)]
    if loaded is not None:
        read = {id(x.base().storage) for n, x in tensors if n in loaded}
        for n, x in tensors:
            if n in stored and id(x.base().storage) not in read:
                allocate(x)
    changed = {id(x.base().storage): (n, x) for n, x in tensors if n in stored}.values()
    with one_writer:
        before = {id(x): prepare_write(name, n, x) for n, x in changed}
        yield
        for _, x in changed:
            note_write(name, x, before[id(x)], severs)


def unwritten(call: Any) -> frozenset[str]:
    """Return the parameters whose tensors were made by `empty` and never accessed since."""
    pairs = [(p.name, x) for p, x in zip(call.parameters, call.given, strict=True) if isinstance(x, Handle)]
    values = [(n, x.base().current() if x._moves else x.own_value()) for n, x in pairs]
    return frozenset(n for n, value in values if value.provenance.is_uninitialised)


def refuse_overlap(name: str, memories: Sequence[tuple[str, TensorMemory]], stored: frozenset[str]) -> None:
    """Refuse two different tensors that overlap in memory if the kernel writes one of them."""
    for n, (first, x) in enumerate(memories):
        for second, y in memories[n + 1 :]:
            own_copy = x.buffer is not y.buffer or x.offset + x.extent <= y.offset or y.offset + y.extent <= x.offset
            if own_copy or x.offset == y.offset or not {first, second} & stored:
                continue
            raise KernelLaunchError(
                f"kernel {name}: `{first}` and `{second}` overlap in memory, begin at different elements, and one of "
                "them is written: give the kernel one tensor and an offset, or a copy (x.clone())"
            )
