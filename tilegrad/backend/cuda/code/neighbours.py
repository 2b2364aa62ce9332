"""Find contiguous pieces and broadcasts among the elements of a vector that is not contiguous as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....ir import tile as ir

if TYPE_CHECKING:
    from .lower import CudaLowering


def contiguous_run(low: CudaLowering, load: ir.Load, width: int, axis: int) -> int:
    """Return the length of contiguous, aligned runs in a vector; 1 if there are none."""
    bytes = low.types.of(load.pointer).dtype.bytes
    each, found = width // 2, 1
    while found == 1 and each * bytes >= 4 and each > 1 and low.is_positional(load.pointer):
        growth = low.affine.growth(load.pointer, axis, each)
        masked = load.mask is not None and low.affine.step(load.mask, axis, each) != 0
        if growth.step == 1 and growth.is_multiple(each) and not masked and low.is_positional(load.mask):
            found = each
        each //= 2
    return found


def is_broadcast_load(
    low: CudaLowering, load: ir.Load, width: int, axis: int, is_even: Callable[[ir.Tile | None], bool]
) -> bool:
    """Return whether all elements of a vector load the same element under the same mask."""
    if width == 1 or not low.is_positional(load.pointer):
        return False
    return low.affine.step(load.pointer, axis, width) == 0 and is_even(load.mask) and is_even(load.other)
