"""Reductions over ranges of a list, in logarithmic time by precomputed reductions of blocks.

A range is split into entries before the first whole block, whole blocks, and entries behind the last block; blocks are
reduced on the next level in the same way. The order of evaluation depends on the range alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import ShapeError
from ..ir.functions import identity
from ..ir.graph import TensorType, Value
from ..ir.size import Size, product
from .broadcasting import reduce_sum, reshape
from .movement import pad
from .opaque import Opaque
from .reduction import amax, amin, reduce_prod

if TYPE_CHECKING:
    from .tile_code import TileCode

BLOCK = 64
"""Entries of a block."""
RANGES_PER_INSTANCE = 128
"""Ranges of an instance."""
REDUCE = {"add": reduce_sum, "mul": reduce_prod, "maximum": amax, "minimum": amin}
FUNCTIONS = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@final
class RangeReduce(Opaque):
    """Reduction of the entries between consecutive `starts`, column by column.

    `levels`: entries (entries, columns), then reductions of blocks of the level before, see `block_levels`.

    >>> from ..ir.dtype import float32, int64
    >>> from ..ir.graph import Input
    >>> given = Input(TensorType(int64, (3,))), block_levels(Input(TensorType(float32, (4, 1))), "add")
    >>> RangeReduce(*given, "add").reference(np.array([0, 1, 4]), np.array([[1], [2], [3], [4]])).tolist()
    [[1], [9]]
    """

    differentiable = False
    starts: Value
    levels: tuple[Value, ...]
    fn: str

    def infer(self) -> TensorType:
        return self.levels[0].type.with_shape((self.starts.shape[0] - 1, self.levels[0].shape[1]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,) * len(self.inputs)

    def reference(self, starts: Any, *levels: Any) -> Any:
        entries = levels[0]
        result = np.full((len(starts) - 1, entries.shape[1]), identity(self.fn, self.dtype), entries.dtype)
        row = np.searchsorted(starts, np.arange(starts[0], starts[-1]), side="right") - 1
        FUNCTIONS[self.fn].at(result, row, entries[starts[0] : starts[-1]])
        return result

    def kernel(self) -> TileCode:
        from .kernels.sums import range_reduce
        from .tile_code import Tiles

        results, columns = product(self.type.shape), self.type.shape[1]
        inputs: dict[str, Any] = {"starts": self.starts.type, "level": tuple([x.type for x in self.levels])}
        sizes = {"LANES": RANGES_PER_INSTANCE, "BLOCK": BLOCK, "COUNT": results, "COLUMNS": columns}
        nothing = {"NOTHING": identity(self.fn, self.dtype), "DTYPE": self.dtype}
        grid = (Tiles(results, RANGES_PER_INSTANCE),)
        return range_reduce.code(inputs, self.type, grid, FN=self.fn, **nothing, **sizes)


def block_levels(entries: Value, fn: str) -> tuple[Value, ...]:
    """Return the entries, the reductions of their blocks, of blocks of these, and so on down to about one.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input
    >>> [x.shape for x in block_levels(Input(TensorType(float32, (9000, 3))), "add")]
    [(9000, 3), (141, 3), (3, 3)]
    """
    found, count = [entries], entries.shape[0]
    if isinstance(count, Size):
        raise ShapeError(f"range_reduce: {count} entries, a size that varies, are blocks of blocks of no known number")
    while count > BLOCK:
        x = found[-1]
        blocks = -(-count // BLOCK)
        if blocks * BLOCK > count:
            x = pad(x, [(0, blocks * BLOCK - count), (0, 0)], identity(fn, x.dtype))
        found.append(REDUCE[fn](reshape(x, (blocks, BLOCK, x.shape[1])), (1,)))
        count = blocks
    return tuple(found)
