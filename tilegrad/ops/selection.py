"""Selection of elements by masks, and positions of nonzero elements.

The number of selected elements is known only at run time. So `nonzero` takes the count, which the caller has computed
(`count_true`) and read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import DTypeError, ShapeError
from ..ir.dtype import bool_, int64
from ..ir.graph import TensorType, Value
from ..ir.position import row_major
from ..ir.size import Dim, product
from .arithmetic import floor_divide, remainder
from .base import Operand, operand
from .broadcasting import broadcast_shapes, expand, reduce_sum, reshape, shown
from .cast import cast, to_bool
from .comparison import eq
from .control import where
from .creation import positions, size_number
from .indexing import Gather
from .movement import stack
from .opaque import Opaque
from .scan import cumsum

if TYPE_CHECKING:
    from .tile_code import TileCode

BLOCK = 512
"""Elements of an instance."""


@final
class Compact(Opaque):
    """Positions of true elements of a list of bools; `before` is their inclusive cumulative count."""

    differentiable = False
    quick_reference = True
    mask: Value
    before: Value
    count: Dim

    def infer(self) -> TensorType:
        if self.mask.dtype is not bool_ or self.before.type != self.mask.type.with_dtype(int64):
            raise DTypeError(f"compact: takes bool and int64 of one shape, not {self.mask.type} and {self.before.type}")
        return TensorType(int64, (self.count,), self.mask.device)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None

    def reference(self, mask: Any, before: Any) -> Any:
        return np.flatnonzero(mask).astype(np.int64)

    def kernel(self) -> TileCode:
        from .kernels.searching import compact
        from .tile_code import Tiles

        length = self.mask.shape[0]
        inputs, grid = {"mask": self.mask.type, "before": self.before.type}, (Tiles(length, BLOCK),)
        return compact.code(inputs, self.type, grid, BLOCK=BLOCK, LENGTH=length, COUNT=self.count)


def count_true(condition: Value) -> Value:
    """Count the elements that are not 0."""
    return reduce_sum(cast(to_bool(condition), int64))


def flat_nonzero(condition: Value, count: Dim) -> Value:
    """Return the row-major positions of the `count` elements that are not 0."""
    flat = reshape(to_bool(condition), (product(condition.shape),))
    return Compact(flat, cumsum(cast(flat, int64), 0), count)


def nonzero(condition: Value, count: Dim) -> Value:
    """Return the positions of the elements that are not 0, one in each row."""
    places = nonzero_along(condition, count)
    return stack(places, 1) if places else expand(reshape(flat_nonzero(condition, count), (count, 1)), (count, 0))


def nonzero_along(condition: Value, count: Dim) -> tuple[Value, ...]:
    """Return the positions of the elements that are not 0, as one list for each axis."""
    if not condition.type.rank:
        return ()
    flat = flat_nonzero(condition, count)
    places: list[Value] = []
    for stride, extent in zip(row_major(condition.shape), condition.shape, strict=True):
        whole = flat if stride == 1 else floor_divide(flat, size_number(stride, int64, flat.device))
        places.append(remainder(whole, size_number(extent, int64, flat.device)) if places else whole)
    return tuple(places)


def masked_select(x: Value, mask: Value, count: Dim) -> Value:
    """Return the `count` elements at which the broadcast mask is true."""
    shape = broadcast_shapes(x.shape, mask.shape, op="masked_select")
    flat = reshape(expand(x, shape), (product(shape),))
    return Gather(flat, (flat_nonzero(expand(mask, shape), count),), (0,))


def masked_fill(x: Value, mask: Value, value: Operand) -> Value:
    """Replace elements by a number where the mask is true."""
    if mask.dtype is not bool_:
        raise DTypeError(f"masked_fill: the mask has {mask.dtype.name} elements, not bool; compare it, as in mask != 0")
    filler = operand(value, x)
    if filler.type.rank:
        raise ShapeError(
            f"masked_fill: the value must be one number, not a tensor of shape {shown(filler.shape)}; use where"
        )
    return where(mask, filler, x)


def one_hot(index: Value, classes: int) -> Value:
    """Return int64 rows with a 1 at the index."""
    if not index.dtype.is_integer:
        raise DTypeError(f"one_hot: the index has {index.dtype.name} elements, not integers")
    wide = cast(index, int64)
    return cast(eq(reshape(wide, (*wide.shape, 1)), positions(classes, index.device)), int64)
