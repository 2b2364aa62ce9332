"""Define conversions to other dtypes, devices and memory formats, as methods of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..deferred import part
from ..errors import ArgumentError, DeviceError, DTypeError, GradientError
from ..ir import dtype as dtypes
from ..ir.dtype import DType
from ..ir.graph import Input
from ..lazy.evaluation import array_of, in_memory
from ..lazy.handle import Handle, handle_on, wrap
from ..lazy.layout import (
    MemoryFormat,
    contiguous_format,
    formatted,
    has_format,
    lay,
    layout,
    like,
    preserve_format,
    strides_of,
    suggested,
)
from ..lazy.storage import kept_separate
from ..ops.cast import cast
from ..ops.joint import joint_outputs
from ..ops.movement import inverse
from ..runtime.device import Device, device, devices
from .creation import DeviceLike, place, typed
from .declared import publish
from .pointwise import at_once_or_recorded, named

if TYPE_CHECKING:
    from ..tensor import Tensor


NAMES_OF_DTYPES = frozenset(d.name for d in (*dtypes.DTYPES, *dtypes.FLOAT8))


# --- types and devices -------------------------------------------------------------------------


def to(
    self: Tensor,
    *args: Any,
    dtype: DType | None = None,
    device: DeviceLike = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Convert: x.to(dtype), x.to(device), x.to(device, dtype) or x.to(other)."""
    dtype, device = _target(args, typed(dtype), device)
    moved = self if device is None or place(device) == self.value.device else _moved(self, place(device))
    if dtype is not None and dtype is not moved.value.dtype:
        return lay(at_once_or_recorded(cast(moved.value, dtype)), formatted(self, memory_format, "to"))
    if memory_format is None or memory_format in (preserve_format, suggested(moved)):
        return moved.clone() if copy and moved is self else moved
    return clone(moved, memory_format=memory_format)


def _target(args: tuple[Any, ...], dtype: DType | None, device: DeviceLike) -> tuple[DType | None, DeviceLike]:
    """Return the dtype and the device that positional arguments of `to` name."""
    for given in args:
        if isinstance(given, (DType, type)):
            dtype = typed(given)
        elif isinstance(given, Handle):
            dtype, device = given.value.dtype, given.value.device
        elif isinstance(given, str) and given in NAMES_OF_DTYPES:
            raise DTypeError(f"to: {given!r} is a string; write the dtype itself: x.to(tilegrad.{given})")
        elif isinstance(given, (str, Device)):
            device = given
        elif isinstance(given, bool):
            pass  # non_blocking: copies are awaited when they are read
        elif isinstance(given, int):
            device = given
        elif given is not None:
            raise ArgumentError(f"to: takes a dtype, a device or a tensor, not {type(given).__name__}")
    return dtype, device


def _moved(x: Tensor, name: str) -> Tensor:
    """Copy to another device; gradients are copied back to the device of x."""
    here = in_memory(x)
    value = Input(type(here.type)(here.dtype, here.shape, name))
    value.hold(device(name).copy(here.buffer))
    if not here.tracked:
        return like(value, x)
    home = here.device
    (made,) = joint_outputs([value], [here], lambda upstreams: [_moved(wrap(u), home).value for u in upstreams if u])
    return like(made, x)


def cpu(self: Tensor) -> Tensor:
    """Copy to the memory of the CPU."""
    return to(self, "cpu")


def cuda(
    self: Tensor, device: DeviceLike = None, non_blocking: bool = False, memory_format: MemoryFormat | None = None
) -> Tensor:
    """Copy to the memory of a GPU: the current one of the thread, if none is named."""
    return to(self, device="cuda" if device is None else device, memory_format=memory_format)


def pinned(self: Tensor) -> Tensor:
    """Copy to pinned memory of the CPU, if a device needs it."""
    here = in_memory(self)
    for found in devices():
        made = found.page_locked(here.buffer)
        if made is not None:
            value = Input(here.type)
            value.hold(made)
            return wrap(value)
    return self


def is_pinned(self: Tensor) -> bool:
    """Test whether the tensor is in pinned memory of the CPU."""
    buffer = self.value.buffer
    return buffer is not None and getattr(buffer, "pinned", None) is not None


def as_type(self: Tensor, dtype: DType | None = None) -> Tensor | str:
    """Convert to another dtype; without one, return the name of the dtype."""
    return repr(self.value.dtype) if dtype is None else to(self, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Convert to the dtype and the device of another tensor."""
    return to(self, other)


def _converting(dtype: DType, name: str, note: str = "") -> Callable[..., Tensor]:
    def convert(self: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
        return to(self, dtype, memory_format=memory_format)

    return named(convert, name, f"Convert to {dtype.name}{note}.")


as_float, double = _converting(dtypes.float32, "as_float"), _converting(dtypes.float64, "double")
half, as_bfloat16 = _converting(dtypes.float16, "half"), _converting(dtypes.bfloat16, "as_bfloat16")
long, as_int = _converting(dtypes.int64, "long"), _converting(dtypes.int32, "as_int")
short, char = _converting(dtypes.int16, "short"), _converting(dtypes.int8, "char")
byte = _converting(dtypes.uint8, "byte")
as_bool = _converting(dtypes.bool_, "as_bool", ": nonzero elements are true")


def contiguous(self: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """Return a dense tensor in a memory format: itself if it is one, else a copy."""
    format = memory_format or contiguous_format
    return self if has_format(self, format, "contiguous") else clone(self, memory_format=format)


def clone(self: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """Copy; gradients flow through it. It keeps the strides, unless a memory format is given."""
    strides = formatted(self, memory_format, "clone")
    return lay(wrap(kept_separate(self.value)), strides)


# --- to Python and numpy -----------------------------------------------------------------------


def item(self: Tensor) -> Any:
    """Return the only element as a Python number."""
    at_once = part("lazy.at_once", "number_of") if self._numbers or self._value.buffer is not None else None
    if at_once is not None and (number := at_once(self)) is not None:
        return number
    if self.value.type.count != 1:
        raise ArgumentError(
            f"item: a tensor of shape {list(self.value.shape)} has {self.value.type.count} elements, not one; use "
            "tolist(), or reduce it first, as in x.sum().item()"
        )
    return array_of(self).item()


def tolist(self: Tensor) -> Any:
    """Return the elements as nested lists; a tensor without dimensions as a number."""
    return array_of(self).tolist()


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """Return a read-only numpy array that shares the memory. `force` detaches and copies to the CPU first."""
    x = self.detach().cpu() if force else self
    if x.value.tracked:
        raise GradientError("numpy: the tensor requires gradients, which numpy cannot record; use x.detach().numpy()")
    if x.value.device != "cpu":
        raise DeviceError(f"numpy: the tensor is on {x.value.device}; copy it: x.cpu().numpy()")
    array = _in_stored_order(x).view()
    array.flags.writeable = False
    return array


def _in_stored_order(x: Tensor) -> np.ndarray[Any, Any]:
    """Return an array with the strides of the tensor, on the memory of its base if that is computed."""
    whole = x.base().current() if x._moves and x._strides is None else None
    if whole is None or whole.buffer is None or whole.dtype is not x._value.dtype:
        return _in_order(array_of(x), strides_of(x))
    from .exporting import strided_array

    return strided_array(array_of(handle_on(whole)), x)


def _in_order(array: np.ndarray[Any, Any], strides: Any) -> np.ndarray[Any, Any]:
    """Return a dense array."""
    if strides is None:
        return array
    order = sorted(range(array.ndim), key=lambda axis: -strides[axis])
    return np.ascontiguousarray(array.transpose(order)).transpose(inverse(tuple(order)))


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    array = numpy(self)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def __dlpack__(self: Tensor, **options: Any) -> Any:
    """Export the memory as a DLPack capsule."""
    from .exporting import dlpack_capsule

    return dlpack_capsule(self, options)


def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    return (1, 0)


# --- memory ------------------------------------------------------------------------------------


def stride(self: Tensor, dim: int | None = None) -> Any:
    """Return the strides, in elements, or that of one dimension."""
    strides = layout(self).strides
    return tuple(strides) if dim is None else strides[dim]


def storage_offset(self: Tensor) -> int:
    """Return the offset of the first element in the storage, in elements."""
    return layout(self).offset  # type: ignore[return-value]


def is_contiguous(self: Tensor, memory_format: MemoryFormat = contiguous_format) -> bool:
    """Test whether the elements are dense in the order of a memory format."""
    return has_format(self, memory_format)


def data_ptr(self: Tensor) -> int:
    """Return the address of the first element."""
    from .exporting import address_of

    return address_of(self)


publish(globals(), internal=("pinned", "is_pinned"))
