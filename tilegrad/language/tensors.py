"""The memory of tensors that a kernel works on, and what becomes of those that it writes.

A kernel writes where the tensor is, as PyTorch's do. Whatever was recorded before and not yet computed must go on
seeing the old elements, so memory that anybody else holds is copied first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..errors import GradientError, InPlaceError, KernelLaunchError, TraceError
from ..ir.graph import Input, Value
from ..ir.tile import Parameter
from ..ir.tile_access import Accesses
from ..lazy import storage as sharing
from ..lazy.evaluation import compute
from ..lazy.handle import Handle, handle_on, mode, one_writer, state
from ..lazy.layout import layout
from ..runtime.buffer import Buffer
from ..runtime.device import device
from ..transforms import depends_on_a_stand_in


class Window(Buffer):
    """The memory of another buffer from some byte on; what a device notes about that, it notes here."""

    __slots__ = ("whole",)
    own: ClassVar[frozenset[str]] = frozenset({"address", "bytes", "device", "memory", "whole"})

    def __init__(self, whole: Buffer, offset: int) -> None:
        self.device, self.whole = whole.device, whole
        self.bytes, self.address = whole.bytes - offset, whole.address + offset
        self.memory = whole.memory[offset:] if isinstance(whole.memory, np.ndarray) else whole.memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self if name in self.own else self.whole, name, value)

    def __del__(self) -> None:
        pass  # nothing of its own


class Memory(NamedTuple):
    """Where the elements of a tensor are: `extent` elements of a buffer from `offset` on."""

    buffer: Buffer
    offset: int
    extent: int
    itemsize: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    """Of a view: its elements may lie apart, or in one place."""

    @property
    def address(self) -> tuple[int, int]:
        return id(self.buffer), self.offset

    def joined(self, other: Memory) -> Memory:
        """The memory of two tensors that begin at one place."""
        longer = max(self, other, key=lambda memory: memory.extent)
        return self if other == self else longer._replace(shape=(), strides=None)

    def window(self) -> Buffer:
        return Window(self.buffer, self.offset * self.itemsize) if self.offset else self.buffer


def all_memory(place: str) -> Buffer:
    """The memory of a device from address 0 on, for pointers that are made of addresses."""
    found = device(place)
    if found.everything is None:
        raise KernelLaunchError(f"a pointer is made of an address (tl.pointer_type), and the device {place} has none")
    return found.everything


def refuse_addresses(name: str, hidden: Sequence[Parameter], where: str) -> None:
    """For what must know which tensors a kernel works on."""
    if hidden:
        raise KernelLaunchError(
            f"kernel {name} makes pointers of addresses (tl.pointer_type), and {where} it must be known which tensors "
            "it reads and writes: give it the tensors themselves, several of them as a tuple"
        )


def refuse_tracing(name: str, given: Sequence[Any]) -> None:
    """For kernels that run when they are launched, and are not recorded: a traced function would lose them."""
    if state.trace is not None and any(isinstance(x, Handle) for x in given):
        raise TraceError(
            f"kernel {name} is launched while a function is traced, and would run now, once, on placeholders. Launch "
            "it outside of jit and vmap"
        )


def memory_of(x: Any) -> Memory:
    """The memory of a tensor, which is computed first; of a view, that of its base."""
    value = x._value
    if not x._moves:
        compute(x)
        return Memory(x.value.buffer, 0, int(value.type.count), value.type.dtype.bytes)
    base = x.base()
    whole = base.current()
    if whole.buffer is None:
        compute(handle_on(whole))
    found: Any = layout(x)
    shape: Any = value.shape
    span = 1 + sum((n - 1) * s for n, s in zip(shape, found.strides, strict=True)) if 0 not in shape else 0
    return Memory(whole.buffer, int(found.offset), span, value.type.dtype.bytes, shape, found.strides)


def prepare_write(name: str, parameter: str, x: Any) -> Value:
    """Gives a tensor memory of its own, unless it has; the value that it had."""
    base = x.base()
    whole = base.current()
    if mode.enabled and not base.hidden and whole.tracked:
        raise InPlaceError(
            f"kernel {name} writes to `{parameter}`, which gradients flow through: a kernel has no derivative. Launch "
            "it within `with tilegrad.no_grad():`, or on x.detach()"
        )
    memory_of(x)
    del whole  # who refers to it is counted
    return own(base)


def own(base: Any) -> Value:
    """A storage gets memory that nobody else reads: a copy, if somebody does. The value that it had."""
    whole = base.current()
    holders = {id(v) for v in (base.value, base.storage.value)}
    if len(holders) == 1 and "shares" not in whole.__dict__ and _alone(whole, base):
        return whole  # type: ignore[no-any-return]
    fresh = Input(whole.type)
    fresh.hold(device(whole.type.device).copy(whole.buffer))
    new = sharing.replaced(whole, fresh)
    new.hold(fresh.buffer)
    base.value = base.storage.value = new
    base.storage.changes += 1
    base.seen = base.storage.changes
    return whole  # type: ignore[no-any-return]


def _alone(value: Any, base: Any) -> bool:
    """Whether only the tensor's handle and its storage refer to a value, and only the value to its memory."""
    legitimate = 2  # base.value, base.storage.value
    handles = 1  # the tensor's own _value
    here = 3  # `whole` of the caller, the parameter, and the argument of getrefcount
    return sys.getrefcount(value) <= legitimate + handles + here and sys.getrefcount(value.buffer) <= 2


def severed(name: str, call: Any, found: Accesses) -> bool:
    """Whether a launch reads what gradients flow through, and stores floats: they do not flow on. What `grad` and its
    like differentiate by is refused."""
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


def note_write(name: str, x: Any, before: Value, severs: bool = False) -> None:
    """The elements of a tensor have changed: views and saved values are told."""
    base = x.base()
    whole = base.current()
    new = Input(whole.type)
    new.hold(whole.buffer)
    part = sharing.replaced(whole, new) if whole.tracked else new
    if severs:
        part.__dict__["severed"] = name
    if part is not new:
        part.hold(whole.buffer)
    base.write(part, name, part)
    if not base.hidden and "common" not in before.__dict__:
        before.__dict__["changed"] = base.storage.change


def take(x: Any) -> None:
    """Gives a tensor whose elements do not matter memory as it is found: zeros would be written for nothing."""
    value = x.own_value()
    if "arbitrary" in value.__dict__ and value.buffer is None and not x._moves and value.type.count != 0:
        value.hold(device(value.type.device).allocate(int(value.type.bytes)))


@contextmanager
def written(
    name: str,
    parameters: Sequence[Parameter],
    given: Sequence[Any],
    stored: frozenset[str],
    loaded: frozenset[str] | None = None,
    severs: bool = False,
) -> Iterator[None]:
    """Around a launch that writes to some of its tensors. (`loaded`: which it reads; None: who knows.)"""
    tensors = [(p.name, x) for p, x in zip(parameters, given, strict=True) if isinstance(x, Handle)]
    if loaded is not None:
        read = {id(x.base().storage) for n, x in tensors if n in loaded}
        for n, x in tensors:
            if n in stored and id(x.base().storage) not in read:
                take(x)
    changed = {id(x.base().storage): (n, x) for n, x in tensors if n in stored}.values()
    with one_writer:
        before = {id(x): prepare_write(name, n, x) for n, x in changed}
        yield
        for _, x in changed:
            note_write(name, x, before[id(x)], severs)


def unwritten(call: Any) -> frozenset[str]:
    """The parameters whose tensors were made by `empty`, and never written or read since."""
    pairs = [(p.name, x) for p, x in zip(call.parameters, call.given, strict=True) if isinstance(x, Handle)]
    return frozenset(n for n, x in pairs if "arbitrary" in (x.base().current() if x._moves else x.own_value()).__dict__)


def refuse_overlap(name: str, memories: Sequence[tuple[str, Memory]], stored: frozenset[str]) -> None:
    """Two tensors on one memory, of which one is written, must be the same."""
    for n, (first, x) in enumerate(memories):
        for second, y in memories[n + 1 :]:
            apart = x.buffer is not y.buffer or x.offset + x.extent <= y.offset or y.offset + y.extent <= x.offset
            if apart or x.offset == y.offset or not {first, second} & stored:
                continue
            raise KernelLaunchError(
                f"kernel {name}: `{first}` and `{second}` overlap in memory, begin at different elements, and one of "
                "them is written: give the kernel one tensor and an offset, or a copy (x.clone())"
            )
