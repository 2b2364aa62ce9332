"""The memory of tensors that a kernel works on, and what becomes of those that it writes.

A kernel writes where the tensor is, as PyTorch's do. Whatever was recorded before and not yet computed must go on
seeing the old elements, so memory that anybody else holds is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import ref

from ..errors import GradientError, InPlaceError, KernelLaunchError, TraceError
from ..ir.graph import Value
from ..ir.tile import Parameter
from ..ir.tile_access import Accesses
from ..lazy.evaluation import in_memory
from ..lazy.handle import NEVER, Handle, handle_on, is_tracing, mode
from ..lazy.layout import layout
from ..lazy.realize import realize
from ..lazy.storage import one_writer
from ..runtime.alone import alone
from ..runtime.buffer import Buffer
from ..runtime.device import device
from ..transforms import depends_on_a_stand_in


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
        return self.buffer.lend(self.offset * self.itemsize) if self.offset else self.buffer


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
    if is_tracing() and any(isinstance(x, Handle) for x in given):
        raise TraceError(
            f"kernel {name} is launched while a function is traced, and would run now, once, on placeholders. Launch "
            "it outside of jit and vmap"
        )


def memory_of(x: Any) -> Memory:
    """The memory of a tensor, which is computed first; of a view, that of its base. Not to be kept: it may be memory
    that the tensor owns."""
    type = x._value.type
    if not x._moves:
        return Memory(_elements(x), 0, int(type.count), type.dtype.bytes)
    buffer = _elements(x)
    found: Any = layout(x)
    shape: Any = type.shape
    span = 1 + sum((n - 1) * s for n, s in zip(shape, found.strides, strict=True)) if 0 not in shape else 0
    return Memory(buffer, int(found.offset), span, type.dtype.bytes, shape, found.strides)


def _elements(x: Any) -> Buffer:
    """The memory of all of a storage."""
    owned = None if x._base is None else x._base.storage.owned
    if owned is not None:
        return owned  # type: ignore[no-any-return]
    return in_memory(handle_on(x.base().current()) if x._moves else x).buffer  # type: ignore[no-any-return]


def prepare_write(name: str, parameter: str, x: Any) -> Callable[[], Value | None]:
    """Gives a tensor memory of its own, unless it has; the value that it had, if somebody still has that."""
    base = x.base()
    if mode.enabled and not base.hidden and base.is_tracked():
        raise InPlaceError(
            f"kernel {name} writes to `{parameter}`, which gradients flow through: a kernel has no derivative. Launch "
            "it within `with tilegrad.no_grad():`, or on x.detach()"
        )
    return own(x)


def no_value() -> None:
    """Stands for a value that nobody has any more."""


def own(x: Any) -> Callable[[], Value | None]:
    """Gives the storage of a tensor memory that it alone knows, and that nobody reads: the value from before, if
    somebody still has it."""
    base = x.base()
    if base.storage.free() is not None:
        return no_value
    before, memory = ref(base.current()), None
    if base.storage.owned is None and not base.is_tracked():
        memory = _taken_over(x, base)
    if memory is None:
        value = in_memory(handle_on(base.current()))
        memory = device(value.type.device).copy(value.buffer)
    _give(x, memory)
    return before


def _give(x: Any, memory: Buffer) -> None:
    base = x.base()
    base.own(memory)
    if not x._moves:
        x._value, x._seen = base.value, NEVER


def _taken_over(x: Any, base: Any) -> Buffer | None:
    """The memory of a value that nobody else has, if nobody else has that either.

    Whether somebody has a value is seen by letting go of it.
    """
    value = base.current()
    apart = value.copied()
    before, whole, held = ref(value), base.storage.value, x._value
    base.value = apart
    base.storage.value = apart if whole is value else whole
    x._value = apart if held is value else held
    del value, whole, held
    kept = before()
    if kept is not None:  # somebody will want these elements
        base.value = kept
        base.storage.value = kept if base.storage.value is apart else base.storage.value
        x._value = kept if x._value is apart else x._value
        return None
    if apart.buffer is None:
        realize([apart])
    return alone(apart.__dict__)


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


def note_write(name: str, x: Any, before: Callable[[], Value | None], severs: bool = False) -> None:
    """The elements of a tensor have changed in its own memory: views and saved values are told."""
    base, old = x.base(), before()
    base.wrote(name)
    whole = base.storage.value.__dict__
    whole.pop("severed", None)
    if severs:
        whole["severed"] = name
    if old is not None and not base.hidden and "common" not in old.__dict__:
        old.__dict__["changed"] = base.storage.change
    if x.stands_for is not None:
        x.stands_for.write(x.own_value(), name)


def take(x: Any) -> None:
    """Gives a tensor whose elements do not matter memory as it is found: zeros would be written for nothing."""
    value = x.own_value()
    if "arbitrary" in value.__dict__ and value.buffer is None and not x._moves and value.type.count != 0:
        _give(x, device(value.type.device).allocate(int(value.type.bytes)))


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
