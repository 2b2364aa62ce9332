"""Implement the callbacks of C++ extensions: arithmetic by name, properties of tensors, their memory, launches.

Arithmetic is recorded like any other, so that an extension which only computes with tensors is fused with what stands
around it. As soon as it takes a pointer it sees the machine's order of things: everything that it has asked for is
computed before, and at once from then on; memory that it was handed stays where it is.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet
from zlib import crc32

from .. import functional
from ..errors import ArgumentError, InPlaceError, TraceError
from ..functions import creation
from ..ir.dtype import DType
from ..ir.graph import Value
from ..language.tensors import memory_of, note_write
from ..lazy.evaluation import compute
from ..lazy.exclusive_memory import own_memory, placeholder_value
from ..lazy.handle import Handle, handle_on, is_tracing, state
from ..lazy.layout import in_memory_order
from ..nn import functional as layers
from ..runtime.device import Device, device
from ..tensor import Tensor
from . import values
from .values import object_at


class Frame:
    """One call of a function of an extension."""

    def __init__(self, name: str, arguments: list[Any]) -> None:
        self.name = name
        self.arguments = arguments
        self.given = {id(x.base().storage) for x in arguments}
        self.made: WeakSet[Any] = WeakSet()
        """Recorded results that are not computed yet."""
        self.handed: dict[int, tuple[Any, Any]] = {}
        """Storages whose memory C++ has a pointer to, with that memory."""
        self.sums: dict[int, tuple[Any, int, Callable[[], Value | None]]] = {}
        """Arguments whose memory C++ has a pointer to, with a checksum of their bytes and their value before."""
        self.launched: set[Device] = set()
        self.copies: dict[int, Any] = {}
        """Tensors with a copy in another memory order for C++, with the tensors on that copy."""

    def in_memory_order(self, x: Any) -> Any:
        """Return a tensor laid out in memory according to its strides."""
        if x._strides is None:
            return x
        if id(x) not in self.copies:
            made = in_memory_order(x)
            if id(x.base().storage) in self.given:
                self.given.add(id(made.base().storage))
            self.copies[id(x)] = x, made
        return self.copies[id(x)][1]

    def open(self) -> None:
        """Compute recorded results before C++ gets a pointer, and from then on at once."""
        for x in list(self.made):
            compute(x)
        self.made.clear()


class Now(threading.local):
    """The active calls of this thread, innermost last, and a pending error."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.error: BaseException | None = None
        self.kept: list[Any] = []


now = Now()
launcher: list[Callable[[Any, Frame], bool]] = []
"""Launches kernels (`kernels.py`); returns whether C++ must run the threads itself."""


@contextmanager
def frame(name: str, arguments: list[Any]) -> Iterator[Frame]:
    """Run C++ within the block, and check at its end which arguments it changed."""
    made = Frame(name, arguments)
    now.frames.append(made)
    try:
        yield made
    finally:
        now.frames.pop()
        now.kept = []
        for place in made.launched:
            place.synchronize()
    for x, sum, before in made.sums.values():
        if _sum_of(x) != sum:
            written(x, name, before)


def written(x: Any, name: str, before: Callable[[], Value | None]) -> None:
    """Record that C++ wrote to an argument, for the check of values saved for gradients."""
    if x.base().storage.owned is None:
        raise InPlaceError(
            f"{name} wrote to an argument of shape {list(x.shape)} through its pointer, and others need the elements "
            "that it had: give it a copy, x.clone(), or let it write to a tensor that it makes (torch::empty_like)"
        )
    note_write(name, x, before)


def raise_waiting() -> None:
    """Raise the pending error of a callback."""
    error, now.error = now.error, None
    if error is not None:
        raise error


def _guarded(fn: Callable[..., None]) -> Callable[..., int]:
    def safe(*arguments: Any) -> int:
        try:
            fn(*arguments)
            return 0
        except BaseException as error:
            now.error = error
            return 1

    return safe


# --- arithmetic ----------------------------------------------------------------------------------


def _made(builder: Callable[..., Any]) -> Callable[..., Any]:
    def make(sizes: list[int], dtype: DType | None, place: Device | None, tracked: bool, *value: Any) -> Any:
        return builder(sizes, *value, dtype=dtype, device=place, requires_grad=tracked)

    return make


SPECIAL: dict[str, Callable[..., Any]] = {
    **{
        f"make {name}": _made(getattr(functional, name)) for name in ("empty", "zeros", "ones", "rand", "randn", "full")
    },
    "make arange": lambda start, end, step, dtype, place: creation.arange(start, end, step, dtype=dtype, device=place),
    "make eye": lambda n, dtype, place: creation.eye(n, dtype=dtype, device=place),
    "make tensor": lambda data, dtype, place, usual: creation.tensor(data, dtype=dtype or usual, device=place),
    "to options": lambda x, dtype, place: x.to(dtype=dtype or x.dtype, device=place or x.device),
    "item": lambda x: x.item(),
    "str": str,
    "slice": lambda x, axis=0, start=None, end=None, step=1: x[(slice(None),) * axis + (slice(start, end, step),)],
    "operator add": lambda x, y: x + y,
    "operator sub": lambda x, y: x - y,
    "operator mul": lambda x, y: x * y,
    "operator div": lambda x, y: x / y,
    "operator eq": lambda x, y: x == y,
    "operator ne": lambda x, y: x != y,
    "operator lt": lambda x, y: x < y,
    "operator le": lambda x, y: x <= y,
    "operator gt": lambda x, y: x > y,
    "operator ge": lambda x, y: x >= y,
}
"""Names with another meaning in C++ than in Python."""


def function(name: str, arguments: list[Any]) -> Callable[..., Any]:
    """Look up a name: a special form, a method, a function of tensors, one of `nn.functional`."""
    found = SPECIAL.get(name)
    if found is None and arguments and isinstance(arguments[0], Handle):
        found = getattr(Tensor, name, None)
    found = found or getattr(functional, name, None) or getattr(layers, name, None)
    if found is None or name.startswith("__"):
        raise ArgumentError(
            f"torch::{name}: tilegrad has no function of that name, neither of tensors nor of nn.functional"
        )
    return found


def _call(name: bytes, count: int, arguments: Any, result: Any) -> None:
    given = [values.get(arguments[n]) for n in range(count)]
    word = name.decode()
    made = function(word, given)(*given)
    _bind(word, given, made)
    kept: list[Any] = []
    values.put(result[0], made, kept)
    now.kept = kept  # until C++ has taken references of its own, before it calls again


def _bind(name: str, given: list[Any], made: Any) -> None:
    """Keep a result recorded, or compute it at once if C++ reads memory."""
    if not now.frames:
        return
    current = now.frames[-1]
    for x in made if isinstance(made, list | tuple) else [made]:
        if not isinstance(x, Handle):
            continue
        if not current.handed:
            current.made.add(x)
        elif not x._moves:
            compute(x)
    if current.handed and name.endswith("_") and given and isinstance(given[0], Handle):
        _kept_in_place(given[0], current)


def _kept_in_place(x: Any, current: Frame) -> None:
    """Copy the result of an in-place change to the memory that C++ has."""
    base = x.base()
    known = current.handed.get(id(base.storage))
    if known is None:
        return
    whole = base.current()
    target = known[1]
    if whole.buffer is None:
        compute(handle_on(whole))
    if whole.buffer.owner is not target:
        place = device(whole.type.device)
        place.overwrite(target, whole.buffer)
        base.own(target)


# --- what a tensor is ----------------------------------------------------------------------------


def _describe(address: int, meta: Any) -> None:
    x = object_at(address)
    found = meta[0]
    shape = x.shape
    if len(shape) > values.MAX_AXES:
        raise ArgumentError(f"a tensor of {len(shape)} axes: C++ extensions take up to {values.MAX_AXES}")
    if not all(isinstance(extent, int) for extent in shape):
        raise TraceError(
            f"a C++ extension asks for the extents of a tensor of shape {list(shape)}, which are not known yet"
        )
    found.axes, found.numel, found.dtype = len(shape), x.numel(), values.NUMBERS[x.dtype]
    found.device = values.number_of(x._value.type.device)
    found.requires_grad, found.contiguous, found.offset = x.requires_grad, x.is_contiguous(), x.storage_offset()
    found.sizes[: len(shape)] = shape
    found.strides[: len(shape)] = x.stride()


def _data(address: int, result: Any) -> None:
    x = object_at(address)
    if is_tracing():
        name = now.frames[-1].name if now.frames else "a C++ function"
        raise TraceError(
            f"{name} asks for the pointer of a tensor while a function is traced (jit, vmap), and its elements are not "
            "known yet: call it outside, or compute with tensors alone (torch::mm, ...)"
        )
    watching, state.trace = state.trace, None  # what is computed now for its elements is no operation of C++'s
    try:
        result[0] = pointer(x)
    finally:
        state.trace = watching


def pointer(x: Any) -> int:
    """Return the address of the first element, for C++ to read and write."""
    if not now.frames:
        made = in_memory_order(x)
        if made is not x:
            x.__dict__["in_order"] = made  # the address is good as long as the tensor is
        return int(memory_of(made).window().address)
    current = now.frames[-1]
    x = current.in_memory_order(x)
    current.open()
    base = x.base()
    identity = id(base.storage)
    if identity not in current.handed:
        memory_of(x)
        whole = base.standing()
        history = whole.tracked and not whole.provenance.is_leaf  # a computed tensor is not written in place
        before = placeholder_value if history and identity in current.given else own_memory(x)
        if identity in current.given:
            place = device(x._value.type.device)
            if place.kind != "cuda" or getattr(place, "simulated", False):
                current.sums[id(x)] = (x, _sum_of(x), before)
        current.handed[identity] = (base.storage, memory_of(x).buffer)
    found = memory_of(x)
    place = device(x._value.type.device)
    if place.kind == "cuda":
        place.synchronize()
    return int(found.buffer.address) + found.offset * found.itemsize


def _sum_of(x: Any) -> int:
    """Return a checksum of memory."""
    buffer = memory_of(x).buffer
    return crc32((ctypes.c_char * buffer.bytes).from_address(buffer.address))


# --- kernels -------------------------------------------------------------------------------------


def _launch(launch: Any, emulate: Any) -> None:
    current = now.frames[-1] if now.frames else Frame("a C++ function", [])
    emulate[0] = bool(launcher[0](launch[0], current))


def _synchronize() -> None:
    for place in now.frames[-1].launched if now.frames else ():
        place.synchronize()


_callbacks = (
    values.CALL(_guarded(_call)),
    values.DESCRIBE(_guarded(_describe)),
    values.DATA(_guarded(_data)),
    values.LAUNCH(_guarded(_launch)),
    values.SYNCHRONIZE(_guarded(_synchronize)),
)
table = values.Host(values.VERSION, *_callbacks, values.HOLD, values.DROP)
"""Callbacks that every extension is given."""
