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
COMBINE = {"add": "total + x", "mul": "total * x", "maximum": "tl.maximum(total, x)", "minimum": "tl.minimum(total, x)"}


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
        from .tile_code import Tiles, fill_template, show_size, tile_code

        results, columns = product(self.type.shape), self.type.shape[1]
        names = [f"level{n}" for n in range(len(self.levels))]
        steps = "".join([ONE_LEVEL.replace("LEVEL", name) for name in names[:-1]]) + LAST_LEVEL.replace(
            "LEVEL", names[-1]
        )
        words = {
            "LANES": RANGES_PER_INSTANCE,
            "COUNT": show_size(results),
            "COLUMNS": show_size(columns),
            "BLOCK": BLOCK,
        }
        text = fill_template(fill_template(RANGE_REDUCE, {"STEPS": steps}, {}), {}, words | {"BOTH": COMBINE[self.fn]})
        nothing = str(identity(self.fn, self.dtype))
        text = text.replace("NOTHING", f'float("{nothing}")' if "inf" in nothing else nothing)
        text = text.replace("DTYPE", f"tl.{self.dtype.name}")
        inputs = {"starts": self.starts.type, **{n: x.type for n, x in zip(names, self.levels, strict=True)}}
        return tile_code(text, inputs, self.type, (Tiles(results, RANGES_PER_INSTANCE),))


RANGE_REDUCE = """
@tg.kernel
def range_reduce(PARAMETERS):
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = lane < COUNT
    row = lane // COLUMNS
    column = lane % COLUMNS
    begin = tl.load(starts + row, mask=inside, other=0)
    end = tl.load(starts + (row + 1), mask=inside, other=0)
    total = tl.full((LANES,), NOTHING, dtype=DTYPE)
    STEPS
    tl.store(out + lane, total, mask=inside)
"""
ONE_LEVEL = """
first = tl.minimum(end, (begin + (BLOCK - 1)) // BLOCK * BLOCK)
for n in range((0).to(tl.int64), tl.max(first - begin, axis=0)):
    x = tl.load(LEVEL + ((begin + n) * COLUMNS + column), mask=begin + n < first, other=NOTHING)
    total = BOTH
last = tl.maximum(first, end // BLOCK * BLOCK)
for n in range((0).to(tl.int64), tl.max(end - last, axis=0)):
    x = tl.load(LEVEL + ((last + n) * COLUMNS + column), mask=last + n < end, other=NOTHING)
    total = BOTH
begin = first // BLOCK
end = last // BLOCK
"""
LAST_LEVEL = """
for n in range((0).to(tl.int64), tl.max(end - begin, axis=0)):
    x = tl.load(LEVEL + ((begin + n) * COLUMNS + column), mask=begin + n < end, other=NOTHING)
    total = BOTH
"""


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
