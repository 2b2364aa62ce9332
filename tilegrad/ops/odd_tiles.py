"""Winograd tiles that are too irregular to transform, and results that compute them directly.

Errors of a transformed tile are relative to its largest element. If all elements have a similar magnitude, they are as
small as those of a float32 sum. Otherwise, and where elements are infinite, NaN or near the limits of the range,
results are summed directly:

    IrregularTiles   flags of these tiles, from the sums of magnitudes at each position and of the weights
    RepairedTiles    results of all tiles, transformed back (`winograd_tiles.py`) or summed directly
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import GradientError, ShapeError
from ..ir.dtype import int32
from ..ir.graph import TensorType, Value
from ..ir.node import Structure
from ..ir.size import product
from .opaque import Opaque
from .winograd_tiles import LANES_PER_INSTANCE, Matrix, TileStrides, tile_view, transform_arrays

if TYPE_CHECKING:
    from .tile_code import TileCode

MAX_RATIO = 128.0
"""Largest ratio of the sum of magnitudes of a tile to that of a window. Windows of zeros do not count."""
MAX_MAGNITUDE, MIN_MAGNITUDE = 2.0**50, 2.0**-50
"""Sums of magnitudes beyond which products and transforms might leave the range of float32."""

TILES_PER_INSTANCE = 8
"""Tiles of an instance of `irregular_tiles`, which keeps several numbers of each of their elements."""


@final
class IrregularTiles(Opaque):
    """1 for irregular tiles, else 0.

    `sums` (groups, images, rows, columns) are sums of magnitudes over channels, `weight` is the sum of all weights'
    magnitudes; `squares` are (groups, images, tiles, tiles) of `side` elements, with windows of `taps`.
    """

    differentiable = False
    sums: Value
    weight: Value
    squares: tuple[int, ...]
    given: TileStrides
    side: int
    taps: int

    def infer(self) -> TensorType:
        self.given.check("irregular_tiles", self.sums, self.squares, self.side, 1)
        return self.sums.type.with_shape(self.squares).with_dtype(int32)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise GradientError("irregular_tiles: there is no slope")

    def reference(self, sums: Any, weight: Any) -> Any:
        tiles = tile_view(np.ascontiguousarray(sums), self.given, (*self.squares, self.side, self.side, 1))[..., 0]
        windows = np.lib.stride_tricks.sliding_window_view(tiles, (self.taps, self.taps), (-2, -1)).sum((-2, -1))
        total = tiles.sum((-2, -1))
        least = np.where(windows > 0, windows, total[..., None, None]).min((-2, -1))
        even = (total <= MAX_MAGNITUDE) & ((total >= MIN_MAGNITUDE) | (total == 0)) & (least * MAX_RATIO >= total)
        even = even & (weight <= MAX_MAGNITUDE) & ((weight >= MIN_MAGNITUDE) | (weight == 0))
        return (~even).astype(np.int32)

    def kernel(self) -> TileCode:
        from .kernels.winograd import irregular_tiles
        from .tile_code import Tiles

        count = product(self.squares)
        assert isinstance(count, int)
        block = min(TILES_PER_INSTANCE, count)
        tiles = {"SQUARES": self.squares, "GIVEN": self.given}
        sizes = {"SIDE": self.side, "TAPS": self.taps, "BLOCK": block, "LAST": count - block}
        limits = {"LARGEST": MAX_MAGNITUDE, "SMALLEST": MIN_MAGNITUDE, "UNEVEN": MAX_RATIO}
        types = {"sums": self.sums.type, "weight": self.weight.type}
        return irregular_tiles.code(types, self.type, (Tiles(count, block),), **tiles, **sizes, **limits)

    def __str__(self) -> str:
        return "irregular_tiles"


@final
class FilterLayout(Structure):
    """Layout of weights: (groups, outputs, channels, taps, taps), with channels before outputs if `across`, and taps
    reversed if `reverse`.
    """

    taps: int
    across: bool = False
    reverse: bool = False


@final
class RepairedTiles(Opaque):
    """Tiles of products, transformed back; irregular ones as sums of elements times weights.

    `x`, `matrix`, `squares`, `lanes`, `given`, `made` and `shape_made` are those of `TransformedTiles`; `lying` has the
    elements, channels last, `begins` the strides of its tiles, `w` the weights.
    """

    differentiable = False
    x: Value
    odd: Value
    lying: Value
    w: Value
    matrix: Matrix
    squares: tuple[int, ...]
    lanes: int
    given: TileStrides
    made: TileStrides
    begins: TileStrides
    shape_made: tuple[int, ...]
    filters: FilterLayout

    def infer(self) -> TensorType:
        side = len(self.matrix[0])
        self.given.check("repaired_tiles", self.x, self.squares, side, self.lanes)
        self.begins.check("repaired_tiles", self.lying, self.squares, side, self.lying.shape[-1])
        if self.w.type.count != self.squares[0] * self.lanes * self._terms():
            raise ShapeError(f"repaired_tiles: {self.w.type.count} weights for {self.lanes} outputs of {self._terms()}")
        return self.x.type.with_shape(self.shape_made)

    def _terms(self) -> int:
        channels = self.lying.shape[-1]
        assert isinstance(channels, int)
        return channels * self.filters.taps**2

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise GradientError("repaired_tiles: gradients are taken before convolutions are transformed")

    def reference(self, x: Any, odd: Any, lying: Any, w: Any) -> Any:
        rows, side = len(self.matrix), len(self.matrix[0])
        made = transform_arrays(self.matrix, tile_view(x, self.given, (*self.squares, side, side, self.lanes)))
        elements = tile_view(lying, self.begins, (*self.squares, side, side, lying.shape[-1]))
        taps, (groups, lanes, channels) = self.filters.taps, (self.squares[0], self.lanes, lying.shape[-1])
        if self.filters.across:
            weights = w.reshape(groups, channels, lanes, taps, taps).swapaxes(1, 2)
        else:
            weights = w.reshape(groups, lanes, channels, taps, taps)
        weights = weights[..., ::-1, ::-1] if self.filters.reverse else weights
        windows = np.lib.stride_tricks.sliding_window_view(elements, (taps, taps), (-3, -2))
        for at in zip(*np.nonzero(odd), strict=True):
            made[at] = np.einsum("abcij,lcij->abl", windows[at], weights[at[0]])
        out = np.zeros(self.shape_made, x.dtype)
        tile_view(out, self.made, (*self.squares, rows, rows, self.lanes))[...] = made
        return out

    def kernel(self) -> TileCode:
        from .kernels.winograd import repaired_tiles
        from .tile_code import Tiles

        block = min(LANES_PER_INSTANCE, self.lanes)
        tiles = {"SQUARES": self.squares, "GIVEN": self.given, "MADE": self.made, "BEGIN": self.begins}
        tiles |= {"FILTERS": self.filters, "DTYPE": self.x.dtype}
        sizes = {"BLOCK": block, "LANES": self.lanes, "TERMS": self._terms()}
        types = {"x": self.x.type, "odd": self.odd.type, "lying": self.lying.type, "w": self.w.type}
        grid = (Tiles(self.lanes, block), Tiles(product(self.squares), 1))
        return repaired_tiles.code(types, self.type, grid, MATRIX=self.matrix, **tiles, **sizes)

    def __str__(self) -> str:
        return f"repaired_tiles[{len(self.matrix[0])} to {len(self.matrix)}]"
