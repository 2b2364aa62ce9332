"""Make small tensors of Python's numbers at once, without numpy: an array of it takes longer to make than to fill."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ..ir.dtype import DType, bool_, int64
from ..ir.location import current_location
from ..ir.node import amend
from .elements import element_access
from .handle import shared

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_LISTED_NUMBERS = 64
"""Numbers of a list up to which it is converted by Python; numpy is faster for more."""
_FLOATS = frozenset((float,)), frozenset((float, int))


def listed(data: Any, default: DType, name: str) -> Tensor | None:
    """Return a tensor of a number or a list of numbers in the dtype that PyTorch chooses, given that of floats; None
    where there is more to consider.
    """
    kind = data.__class__
    numbers = data if kind is list or kind is tuple else (data,)
    if not 0 < len(numbers) <= MAX_LISTED_NUMBERS:
        return None
    kinds = {x.__class__ for x in numbers}
    dtype = default if kinds in _FLOATS else int64 if kinds == {int} else bool_ if kinds == {bool} else None
    access = None if dtype is None else element_access(dtype, name)
    if access is None:
        return None
    try:
        elements = memoryview(bytes(numbers)).cast("?") if dtype is bool_ else array(access.space.format, numbers)
    except OverflowError:
        return None
    value = access.filled((len(numbers),) if numbers is data else (), elements)
    amend(value, location=current_location())
    return shared(value)
