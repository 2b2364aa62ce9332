"""Tiles of elements transformed by a matrix along both sides: the transforms of Winograd's algorithm.

    y[a, b] = sum over i, j of  m[a, i] m[b, j] x[i, j]

`transform/winograd.py` gives the strides of the tiles. Lanes are channels or weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import GradientError, ShapeError
from ..ir.graph import TensorType, Value
from ..ir.node import Structure
from ..ir.size import Dim, Size, product
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

Matrix = tuple[tuple[float, ...], ...]

LANES_PER_INSTANCE = 64
"""Lanes of an instance: what it reads and stores stays in the first-level cache."""


@final
class TileStrides(Structure):
    """Strides, in elements, of tiles along each of their axes, of rows, columns and lanes."""

    squares: tuple[int, ...]
    row: int
    column: int
    lane: int

    def reach(self, squares: tuple[int, ...], side: int, lanes: int) -> int:
        """Return the number of elements up to the last one."""
        extents = (*squares, side, side, lanes)
        index_strides = (*self.squares, self.row, self.column, self.lane)
        return 1 + sum((extent - 1) * step for extent, step in zip(extents, index_strides, strict=True))

    def check(self, op: str, x: Value, squares: tuple[int, ...], side: int, lanes: Dim) -> None:
        """Raise an error unless all tiles are inside a tensor of known size."""
        elements = x.type.count
        if isinstance(elements, Size) or isinstance(lanes, Size):
            raise ShapeError(f"{op}: the size of a tensor of {elements} elements must be known")
        needed = self.reach(squares, side, lanes)
        if needed > elements:
            raise ShapeError(f"{op}: {elements} elements, of which squares need {needed}")


@final
class TransformedTiles(Opaque):
    """Transformed tiles of x, `squares` along each of some axes, with `lanes` each."""

    differentiable = False
    x: Value
    matrix: Matrix
    squares: tuple[int, ...]
    lanes: int
    given: TileStrides
    made: TileStrides
    shape_made: tuple[int, ...]

    def infer(self) -> TensorType:
        self.given.check("transformed_tiles", self.x, self.squares, len(self.matrix[0]), self.lanes)
        return self.x.type.with_shape(self.shape_made)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise GradientError("transformed_tiles: gradients are taken before convolutions are transformed")

    def reference(self, x: Any) -> Any:
        rows, side = len(self.matrix), len(self.matrix[0])
        read = tile_view(np.ascontiguousarray(x), self.given, (*self.squares, side, side, self.lanes))
        out = np.zeros(self.shape_made, x.dtype)
        tile_view(out, self.made, (*self.squares, rows, rows, self.lanes))[...] = transform_arrays(self.matrix, read)
        return out

    def kernel(self) -> TileCode:
        from .kernels.winograd import transformed_tiles
        from .tile_code import Tiles

        block = min(LANES_PER_INSTANCE, self.lanes)
        grid = (Tiles(self.lanes, block), Tiles(product(self.squares), 1))
        tiles = {"SQUARES": self.squares, "GIVEN": self.given, "MADE": self.made}
        sizes = {"BLOCK": block, "LAST": self.lanes - block}
        return transformed_tiles.code({"x": self.x.type}, self.type, grid, MATRIX=self.matrix, **tiles, **sizes)

    def __str__(self) -> str:
        return f"transformed_tiles[{len(self.matrix[0])} to {len(self.matrix)}]"


def transform_arrays(matrix: Matrix, squares: Any) -> Any:
    """Transform tiles (..., side, side, lanes) with numpy."""
    factors = np.array(matrix, squares.dtype)
    return np.einsum("ai,bj,...ijl->...abl", factors, factors, squares, optimize=True)


def tile_view(array: Any, places: TileStrides, shape: tuple[int, ...]) -> Any:
    """Return the tiles of an array: (*squares, side, side, lanes)."""
    strides = (*places.squares, places.row, places.column, places.lane)
    return np.lib.stride_tricks.as_strided(array, shape, [n * array.itemsize for n in strides])
