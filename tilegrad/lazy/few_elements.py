"""Combine tensors of a few elements at once, without recording: as single elements, those in memory (`at_once.py`).

Recording and computing an operation costs more than Python needs for 16 elements. Sums, differences, products and
quotients of float32 elements are correctly rounded, as those of recorded work are: Python computes with more than twice
as many digits. Sums over all elements are rounded once. Who observes programs (a profile, `timing`, `first_nan`, the
compiled tier) has everything recorded.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from math import fsum, prod
from operator import eq, ge, gt, le, lt, ne, truediv
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import settings
from ..ir.dtype import DType, bool_, int64
from ..ir.graph import Value
from ..ir.position import row_major
from ..ops.broadcasting import Fill
from ..runtime import events
from ..runtime.buffer import DeviceBuffer
from .at_once import IN_PLACE, UNPLACED, operand_number, region_of, write
from .elements import ElementAccess, MemoryPart, element_access
from .handle import Handle, result_class, state, watching

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_COMBINED_ELEMENTS = 16
"""Elements up to which Python combines tensors: it takes about 0.05 us for each, recording and computing 10 us."""
MAX_SUMMED_ELEMENTS = 256
"""Elements up to which Python adds them."""

COMPARISONS = frozenset((eq, ne, lt, le, gt, ge))

_new: Any = object.__new__
dense_strides = lru_cache(1024)(row_major)


class FewElements(NamedTuple):
    """A type of tensors of a few elements."""

    access: ElementAccess
    shape: tuple[int, ...]
    elements: int
    """How many there are."""
    format: Any
    """The name of the dtype in arrays of Python."""


@lru_cache(1024)
def few_elements(
    dtype: DType, shape: tuple[Any, ...], name: str, most: int = MAX_COMBINED_ELEMENTS
) -> FewElements | None:
    """Return what is known of tensors with axes and few elements, which can be accessed; None for others.

    >>> from tilegrad.ir.dtype import bfloat16, float32
    >>> few_elements(float32, (4, 4), "cpu").elements
    16
    >>> [few_elements(float32, shape, "cpu") for shape in ((4, 5), (0,), ())], few_elements(bfloat16, (4,), "cpu")
    ([None, None, None], None)
    """
    if not shape or any(extent.__class__ is not int for extent in shape) or not 0 < prod(shape) <= most:
        return None
    access = element_access(dtype, name)
    return None if access is None else FewElements(access, shape, prod(shape), access.space.format)


def is_observed() -> bool:
    """Whether programs are to run for everything."""
    return bool(
        events.listeners or state.inspect is not None or watching() is not None or settings().tier == "compiled"
    )


def combined(fn: Callable[[Any, Any], Any], x: Any, y: Any) -> Tensor | None:
    """Apply an operator of Python's to the elements of two tensors, or of a tensor and a number; None: it is to be
    recorded.
    """
    first = y if not isinstance(x, Handle) or (not x._value.type.shape and isinstance(y, Handle)) else x
    type = first._value.type
    few = few_elements(type.dtype, type.shape, type.device)
    if few is None or type.dtype is bool_ or (fn is truediv and not type.dtype.is_float) or is_observed():
        return None
    a = _elements(x, few)
    b = None if a is None else _elements(y, few)
    return None if a is None or b is None else _made(few, fn, a, b)


def combine_into(op: str, x: Handle, others: Sequence[Any]) -> bool:
    """Store what `combined` computes in its first operand; False if that is to be recorded."""
    fn = IN_PLACE.get(op)
    made = None if fn is None or len(others) != 1 else combined(fn, x, others[0])
    if made is None:
        return False
    own, type = x._value.type, made._value.type
    region = region_of(x) if type.shape == own.shape and type.dtype is own.dtype else None
    return region is not None and write(x, region, region.part, made, op)


def changed(fn: Callable[[Any], Any], x: Handle) -> Tensor | None:
    """Apply an operator of Python's to the elements of a tensor; None: it is to be recorded."""
    type = x._value.type
    few = few_elements(type.dtype, type.shape, type.device)
    if few is None or type.dtype is bool_ or state.trace is not None or is_observed():
        return None
    elements = _elements(x, few)
    return None if elements is None else _made(few, fn, elements)


def total(x: Any, is_mean: bool = False) -> Tensor | None:
    """Return the sum or the mean of the elements; None: it is to be recorded."""
    if not isinstance(x, Handle) or state.trace is not None:
        return None
    type = x._value.type
    is_float = type.dtype.is_float
    few = few_elements(type.dtype, type.shape, type.device, MAX_SUMMED_ELEMENTS)
    own = None if few is None else few.access if is_float else element_access(int64, type.device)
    if few is None or own is None or (is_mean and not is_float) or is_observed():
        return None
    elements = _elements(x, few)
    if elements is None:
        return None
    add = fsum if is_float else sum
    try:
        made = _tensor(own.value(add(elements) / few.elements if is_mean else add(elements)))
    except (ArithmeticError, ValueError):  # infinities of both signs; integers that wrap around
        return None
    made._region = UNPLACED
    return made  # type: ignore[no-any-return]


def _made(few: FewElements, fn: Callable[..., Any], *operands: Iterable[Any]) -> Tensor | None:
    """Return the tensor of what a function gives for each element."""
    try:
        if fn in COMPARISONS:
            truths: Any = element_access(bool_, few.access.name)
            return _tensor(truths.filled(few.shape, memoryview(bytes(map(fn, *operands))).cast("?")))  # type: ignore[no-any-return]
        return _tensor(few.access.filled(few.shape, array(few.format, map(fn, *operands))))  # type: ignore[no-any-return]
    except (ArithmeticError, TypeError):  # a division by zero; integers that wrap around
        return None


def _tensor(value: Value) -> Any:
    made = _new(result_class())
    made._value = value
    return made


def _elements(x: Any, few: FewElements) -> Iterable[Any] | None:
    """Return the elements of an operand in row-major order; a number is repeated. None if they are not in memory, would
    be promoted or broadcast, or lie in another order.
    """
    access = few.access
    if not isinstance(x, Handle) or not x._value.type.shape:
        number = operand_number(x, access)
        return None if number is None else repeat(number)
    type = x._value.type
    if type.shape != few.shape or type.dtype is not access.dtype or type.device != access.name:
        return None
    if x._base is None:
        return _own_elements(x, few)
    region = region_of(x)
    if region is None or region.base.storage.value.provenance.severed:
        return None  # if a gradient is asked for, the error names the kernel that stored the elements
    memory = region.memory()
    return None if memory is None else _placed(few, memory, region.part)


def _own_elements(x: Handle, few: FewElements) -> Iterable[Any] | None:
    """Return the elements of a tensor that shares no storage."""
    value, access = x._value, few.access
    if value.tracked or x._strides is not None or x.stands_for is not None:
        return None
    memory = value.buffer
    if memory is None:
        return repeat(access.rounded(value.value), few.elements) if value.__class__ is Fill else None
    start = memory.address // access.size
    return access.space[start : start + few.elements].tolist()


def _placed(few: FewElements, memory: DeviceBuffer, part: MemoryPart) -> list[Any] | None:
    """Return the elements of a part of memory, if they are in row-major order or have one axis."""
    shape, strides, offset = part
    access = few.access
    start = memory.address // access.size + offset
    if strides == dense_strides(shape):
        return access.space[start : start + few.elements].tolist()
    if len(shape) == 1 and strides[0] > 0:
        return access.space[start : start + few.elements * strides[0] : strides[0]].tolist()
    return None
