"""Tell whether elements are known to be zero, before integers are divided by them."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Value
from ..ir.node import amend
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Cast
from ..ops.movement import Permute
from ..runtime.device import device
from .evaluation import MAX_CHECKED_INDICES, array_of, compute
from .handle import handle_on


def _has_all_of(value: Value) -> bool:
    """Whether the elements are those of another value: moved, repeated, or converted for a wider operand."""
    widened = isinstance(value, Cast) and value.x.dtype.bits <= value.dtype.bits
    return widened or isinstance(value, (Expand, Permute, Reshape))


def has_zero(value: Value, compute_it: bool = False) -> bool:
    """Whether some element is known to be 0: inspects few elements in accessible memory, or all if computed."""
    while value.buffer is None and _has_all_of(value):
        value = value.inputs[0]
    known: bool | None = value.__dict__.get("has_zero")
    if known is None:
        if compute_it and value.buffer is None:
            compute(handle_on(value))
        count = value.type.count
        if value.buffer is None or not isinstance(count, int) or (count > MAX_CHECKED_INDICES and not compute_it):
            return False
        shape: Any = value.type.shape
        if device(value.type.device).view(value.buffer, value.type.dtype, shape) is None and not compute_it:
            return False
        known = bool((array_of(handle_on(value)) == 0).any())
        amend(value, has_zero=known)
    return known
