"""The constants of the kernels of attention for matrix units."""

from __future__ import annotations

import math

from ..ir.dtype import DType, bfloat16
from .attention_shapes import AttentionOp
from .attention_spec import SizesSpec
from .tile_code import TileCode, Tiles

ROWS = 128
"""Rows of a tile of scores, if their number divides into such tiles."""
GRADIENT_COLUMNS = 64
"""Columns of such a tile in a gradient kernel."""


class TiledSpec(SizesSpec):
    """Sizes of attention and of its tiles."""

    rows: int
    columns: int
    tiles: int
    """Tiles of a head."""
    causal: bool
    scale: float
    dtype: DType

    log2e = 1 / math.log(2)

    @property
    def binary_scale(self) -> float:
        """Factor of the scores for powers of 2."""
        return self.scale * self.log2e

    @property
    def count(self) -> int:
        """All queries."""
        return self.n * self.queries

    @property
    def behind(self) -> int:
        """Position of the log-sum-exps."""
        return self.count * self.features

    @property
    def level_scale(self) -> float:
        return level_scale(self.dtype)


def level_scale(dtype: DType) -> float:
    """Return the factor by which log-sum-exps are scaled to fit into three numbers of half precision."""
    return 1.0 if dtype is bfloat16 else 2.0**-10


def _spec(op: AttentionOp, extent: int, other: int, most: int) -> TiledSpec:
    """Return the constants for tiles with rows along `extent`, and at most `most` columns along `other`."""
    rows = _side(extent, ROWS)
    return TiledSpec(*op.sizes, rows, _side(other, most), extent // rows, op.causal, op.scale, op.query.dtype)


def _side(extent: int, most: int) -> int:
    return most if extent % most == 0 else most // 2


def forward(op: AttentionOp, levels: bool) -> TileCode:
    """Return the forward kernel: one instance for each tile of queries of a head."""
    from .kernels.tiled_attention import tiled_attention

    sizes = op.sizes
    a = _spec(op, sizes.queries, sizes.keys, sizes.width)
    return tiled_attention.code(op.given(), op.type, (Tiles(a.n * a.tiles, 1),), A=a, LEVELS=levels)


def query_gradient(op: AttentionOp) -> TileCode:
    """Return the kernel of query gradients: one instance for each tile of queries of a head."""
    from .kernels.tiled_attention import attention_query_gradient

    a = _spec(op, op.sizes.queries, op.sizes.keys, GRADIENT_COLUMNS)
    return attention_query_gradient.code(op.given(), op.type, (Tiles(a.n * a.tiles, 1),), A=a)


def key_gradient(op: AttentionOp) -> TileCode:
    """Return the kernel of key and value gradients, one instance for each tile of keys."""
    from .kernels.tiled_attention import attention_key_gradient

    a = _spec(op, op.sizes.keys, op.sizes.queries, GRADIENT_COLUMNS)
    return attention_key_gradient.code(op.given(), op.type, (Tiles(a.m * a.tiles, 1),), A=a)
