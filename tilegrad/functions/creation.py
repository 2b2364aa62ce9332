"""Create tensors from data, and tensors of zeros, ones, ranges and the like."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..config import settings
from ..deferred import part
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import DType, bool_, float64, from_numpy_dtype, int64, uint64
from ..ir.size import Dim
from ..lazy.handle import Handle, read_outside, state, view, wrap
from ..lazy.layout import MemoryFormat, formatted, lay
from ..ops import creation as ops
from ..ops.broadcasting import fill
from ..ops.movement import inverse, permute
from ..runtime.device import Device, device
from .declared import publish
from .pointwise import named
from .promotion import Number, constant, get_default_dtype, held, kind_of, number_dtype
from .views import in_one_piece, sizes_of

if TYPE_CHECKING:
    from ..tensor import Tensor

DeviceLike: TypeAlias = "Device | str | int | None"


def _default_device() -> str:
    return settings().device


def place(name: DeviceLike) -> str:
    """Return the name of a device: the default one if none is given; a number names a GPU."""
    if name is None:
        if state.trace is not None:
            read_outside(_default_device)
        name = _default_device()
    elif isinstance(name, int):
        name = f"cuda:{name}"
    elif not isinstance(name, (str, Device)):
        raise ArgumentError(f"device is {kind_of(name)}, not a name such as 'cpu' or 'cuda:0', or a device")
    return device(name).name if not isinstance(name, Device) else name.name


PYTHONS_TYPES: dict[Any, DType] = {float: float64, int: int64, builtins.bool: bool_}
"""Dtypes of Python's number types, as in PyTorch."""


def typed(dtype: Any) -> DType | None:
    """Return a dtype as it was given, or None."""
    if dtype is None or isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in PYTHONS_TYPES:
        return PYTHONS_TYPES[dtype]
    raise DTypeError(f"a dtype is wanted, such as tilegrad.float32, not {dtype!r} ({type(dtype).__name__})")


# --- from data ---------------------------------------------------------------------------------


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Create a tensor with a copy of a number, nested lists of numbers, or an array."""
    if isinstance(data, Handle):
        copy: Tensor = data.detach().clone()  # type: ignore[attr-defined]
        made: Tensor = copy.to(device=device, dtype=dtype)
    else:
        find = None if dtype is not None or state.trace is not None else part("lazy.listed_numbers", "listed")
        found: Tensor | None = None if find is None else find(data, get_default_dtype(), place(device))
        made = from_array(_array(data, typed(dtype)), place(device)) if found is None else found
    return _asked(made.pin_memory() if pin_memory else made, requires_grad)


def _array(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """Convert data to an array, in the dtype that PyTorch would choose if none is given."""
    if isinstance(data, (list, tuple)) and any(isinstance(x, Handle) for x in data):
        data = [x.tolist() if isinstance(x, Handle) else x for x in data]  # type: ignore[attr-defined]
    typed = isinstance(data, (np.ndarray, np.generic))
    array = _numbers(data, dtype is uint64 and not typed)
    if dtype is None and not typed:
        dtype = _inferred(data, array)
    if dtype is not None:
        if not typed:
            _check_range(array, dtype)
        with np.errstate(all="ignore"):
            return array.astype(dtype.numpy)
    if from_numpy_dtype(array.dtype) is None:
        raise DTypeError(f"tensor: there is no dtype for numpy's {array.dtype}; convert the array first")
    return array


def _numbers(data: Any, is_unsigned: bool) -> np.ndarray[Any, Any]:
    """Convert data to an array of the dtype that numpy finds; refuse what is not made of real numbers."""
    try:
        array = np.asarray(data)
        if is_unsigned and array.dtype.kind == "f" and array.min(initial=0) >= 0:
            array = np.asarray(data, np.uint64)  # numpy finds no type for 1 beside 2**64 - 1
    except ValueError as problem:
        raise ShapeError(f"tensor: the nested lists are not all of one length ({problem})") from None
    if array.dtype == object or array.dtype.kind in "USM":
        raise ArgumentError(f"tensor takes numbers, nested lists of them, and arrays, not {kind_of(data)}")
    if array.dtype.kind == "c":
        raise DTypeError("tensor: complex numbers are not supported; keep real and imaginary parts in two tensors")
    return array


def _inferred(data: Any, array: np.ndarray[Any, Any]) -> DType:
    """Return the dtype that PyTorch would choose for Python numbers."""
    kind = array.dtype.kind
    if kind == "f" and isinstance(data, (list, tuple)) and (inside := _typed_inside(data)):
        return inside
    return bool_ if kind == "b" else int64 if kind in "iu" and array.size else get_default_dtype()


def _check_range(array: np.ndarray[Any, Any], dtype: DType) -> None:
    """Raise for a Python number outside the range of an integer dtype; as in PyTorch, -1 wraps to the largest unsigned
    number.
    """
    if dtype.kind not in ("int", "uint") or array.dtype.kind not in "iuf" or not array.size:
        return
    least = dtype.min if dtype.kind == "int" else -dtype.max
    for number in (array.min(), array.max()):
        if np.isfinite(number) and not least <= int(number) <= dtype.max:
            raise DTypeError(
                f"tensor: {int(number)} does not fit in {dtype.name}, which holds {dtype.min} to {dtype.max}; "
                "give a wider dtype"
            )


def _typed_inside(data: Any) -> DType | None:
    """Return the dtype of numpy arrays within a list."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return from_numpy_dtype(data.dtype) if isinstance(data, (np.ndarray, np.generic)) else None


def from_array(array: np.ndarray[Any, Any], name: str, share: bool = False) -> Tensor:
    """Create a tensor on a device from an array, sharing its memory if that is asked for and possible."""
    dtype = from_numpy_dtype(array.dtype.newbyteorder("="))
    assert dtype is not None
    dense = np.ascontiguousarray(array, dtype.numpy).reshape(array.shape)
    return wrap(held(dense, dtype, name, share and np.may_share_memory(dense, array)))


def _asked(x: Tensor, requires_grad: bool) -> Tensor:
    return x.requires_grad_() if requires_grad else x


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Convert data to a tensor; a tensor is returned as it is, anything else is copied.

    Computations are made later than they are written, and must not see what is written to an array between. A tensor on
    the memory of an array is `from_numpy(array)`.
    """
    if isinstance(data, Handle):
        return data.to(device=device, dtype=dtype)  # type: ignore[attr-defined,no-any-return]
    return tensor(data, dtype=dtype, device=device)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Convert data to a tensor: on its own memory if `copy` is true, on that of an array if it is False."""
    if copy:
        made = tensor(obj, dtype=dtype, device=device)
    elif copy is False and isinstance(obj, np.ndarray):
        made = from_numpy(obj).to(device=device, dtype=dtype)
    else:
        made = as_tensor(obj, dtype, device)
    return _asked(made, requires_grad)


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """Create a tensor that shares the memory of an array and sees later writes to it.

    Operations compute with what the array holds when they are called. An in-place operation gives the tensor memory of
    its own, and leaves the array as it is. `tensor(array)` copies.
    """
    if not isinstance(ndarray, np.ndarray):
        raise ArgumentError(f"from_numpy takes a numpy array, not {kind_of(ndarray)}; use tilegrad.tensor(...)")
    from ..lazy.foreign_memory import share_memory  # loads the compiler

    array = _array(ndarray, None)
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    if array.flags.c_contiguous or not array.transpose(order).flags.c_contiguous:
        order = list(range(array.ndim))
    made = from_array(array.transpose(order), "cpu", share=True)
    if (memory := made._value.buffer).shared:
        share_memory(memory)
    return made if order == sorted(order) else view(made, partial(permute, axes=inverse(tuple(order))))


def from_dlpack(ext_tensor: Any, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """Create a tensor that shares the memory of another library's tensor, or a copy of it."""
    if hasattr(ext_tensor, "__dlpack_device__") and ext_tensor.__dlpack_device__()[0] != 1:
        raise ArgumentError("from_dlpack takes tensors in the memory of the CPU; copy it there first")
    array = np.from_dlpack(ext_tensor)
    return (tensor(array) if copy else from_numpy(array)).to(device=device)


def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Create a tensor without dimensions from a number."""
    return tensor(s, dtype=dtype or get_default_dtype(), device=device, requires_grad=requires_grad)


# --- of one number -----------------------------------------------------------------------------


def new_shape(size: Any, op: str) -> tuple[Any, ...]:
    """Check and return the shape of a new tensor."""
    shape = sizes_of(size, op)
    if builtins.any(isinstance(extent, int) and extent < 0 for extent in shape):
        raise ShapeError(f"{op}: {list(shape)} has a negative size")
    return shape


def _filled(
    size: Sequence[Any], number: Number, dtype: DType | None, device: DeviceLike, requires_grad: bool
) -> Tensor:
    made = typed(dtype) or get_default_dtype()
    shape = new_shape(size, "size")
    one: Any = constant(number, made, place(device))
    return _asked(wrap(fill(one.value, shape, made, one.type.device)), requires_grad)


@in_one_piece("size")
def zeros(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Create a tensor of zeros."""
    return _filled(size, 0, dtype, device, requires_grad)


@in_one_piece("size")
def ones(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Create a tensor of ones."""
    return _filled(size, 1, dtype, device, requires_grad)


@in_one_piece("size")
def empty(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Create a tensor with unspecified elements (they are zeros)."""
    return arbitrary(_filled(size, 0, dtype, device, requires_grad))


def arbitrary(x: Tensor) -> Tensor:
    """Mark the elements as unspecified: a checked kernel must not read them before it has written them."""
    x._value.note().is_uninitialised = True
    return x


def full(
    size: Sequence[Dim],
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create a tensor filled with one number."""
    if isinstance(fill_value, Handle):
        return _asked(fill_value.to(device=device, dtype=dtype).expand(size).clone(), requires_grad)
    return _filled((size,), fill_value, dtype or number_dtype(fill_value), device, requires_grad)


def _like(x: Tensor, dtype: DType | None, device: DeviceLike) -> dict[str, Any]:
    return {"dtype": dtype or x.value.dtype, "device": device or x.value.device}


def _of_number(name: str, number: Number, doc: str) -> Callable[..., Tensor]:
    def make(
        input: Tensor,
        *,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        options: dict[str, Any] = {"requires_grad": requires_grad, "memory_format": memory_format}
        made = full_like(input, number, dtype=dtype, device=device, **options)
        return arbitrary(made) if name == "empty_like" else made

    return named(make, name, doc)


zeros_like = _of_number("zeros_like", 0, "Create zeros of the shape, dtype and device of another tensor.")
ones_like = _of_number("ones_like", 1, "Create ones of the shape, dtype and device of another tensor.")
empty_like = _of_number(
    "empty_like", 0, "Create a tensor with unspecified elements, of the shape, dtype and device of another."
)


def full_like(
    input: Tensor,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Create a tensor filled with one number, of the shape, dtype, device and strides of another."""
    made = _filled((input.value.shape,), fill_value, **_like(input, dtype, device), requires_grad=requires_grad)
    return lay(made, formatted(input, memory_format, "full_like"))


# --- rows of numbers ---------------------------------------------------------------------------


def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create start, start + step, ... below `end`; one number is the end, and 0 the start."""
    first, last = (0, start) if end is None else (start, end)
    given: tuple[Any, ...] = (first, last, step)
    numbers: list[Any] = [x.item() if hasattr(x, "item") else x for x in given]
    if not builtins.all(math.isfinite(x) for x in numbers if isinstance(x, float)):
        raise ArgumentError(f"arange: {', '.join(map(str, numbers))}: the numbers must be finite")
    whole = builtins.all(isinstance(x, int) for x in numbers)
    made = typed(dtype) or (int64 if whole else get_default_dtype())
    low, high, distance = [int(x) for x in numbers] if made is int64 else numbers
    return _asked(wrap(ops.arange(low, high, distance, made, place(device))), requires_grad)


def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create `steps` evenly spaced numbers from start to end, both included."""
    made = typed(dtype) or get_default_dtype()
    first, last = _ends(start, end, made)
    return _asked(wrap(ops.linspace(first, last, steps, made, place(device))), requires_grad)


def _ends(start: Number, end: Number, dtype: DType) -> tuple[float, float]:
    """Return the ends of a range; whole numbers stay integers, as in PyTorch."""
    return (float(int(start)), float(int(end))) if dtype.is_integer else (float(start), float(end))


def logspace(
    start: Number,
    end: Number,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create `base` raised to evenly spaced exponents from start to end."""
    made = typed(dtype) or get_default_dtype()
    first, last = _ends(start, end, made) if steps != 1 else (float(start), float(end))  # as in PyTorch
    return _asked(wrap(ops.logspace(first, last, steps, base, made, place(device))), requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Create a matrix with ones on the diagonal and zeros elsewhere."""
    if n < 0 or (m is not None and m < 0):
        raise ShapeError(
            f"eye: {n if m is None else (n, m)} is negative; a matrix has as many rows and columns, or none"
        )
    return _asked(wrap(ops.eye(n, m, typed(dtype) or get_default_dtype(), place(device))), requires_grad)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """Return the row and column indices on and below a diagonal."""
    return _places(ones(row, col, dtype=bool_, device=device).tril(offset), dtype)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """Return the row and column indices on and above a diagonal."""
    return _places(ones(row, col, dtype=bool_, device=device).triu(offset), dtype)


def _places(triangle: Tensor, dtype: DType | None) -> Tensor:
    from .selecting import nonzero

    return nonzero(triangle).transpose(0, 1).to(dtype=dtype)  # type: ignore[union-attr]


publish(globals(), internal=("place", "typed", "from_array", "new_shape", "arbitrary"))
