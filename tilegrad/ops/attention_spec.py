"""The constants of the kernels of attention for vector units."""

from __future__ import annotations

from typing import Any

from ..ir.dtype import DType
from ..ir.node import Structure
from ..ir.size import Shape
from ..runtime.device import device
from .attention_shapes import AttentionOp, keep_threshold
from .random import KEY_STEPS, MULTIPLIERS, ROUNDS
from .scatter import broadcast_strides
from .tile_code import TileCode, Tiles


class SizesSpec(Structure):
    """Sizes of attention, as kernels get them: those of `AttentionSizes`."""

    n: int
    m: int
    queries: int
    keys: int
    width: int
    features: int

    @property
    def group(self) -> int:
        """Queries' heads that share a head of keys."""
        return self.n // self.m


class AttentionSpec(SizesSpec):
    """Sizes of attention and of its tiles."""

    heads: int
    lanes: int
    """Queries of a tile."""
    length: int
    """Keys of a tile."""
    causal: bool
    unmasked: bool
    """Whether tiles of keys that precede all queries have a loop without a mask."""
    scale: float
    dtype: DType
    mask: Shape
    p: float
    chunked: bool = False
    chunks: int = 1
    span: int = 0
    """Parts of the keys, and their length, if the keys are split over instances."""

    multipliers = MULTIPLIERS
    key_steps = KEY_STEPS
    rounds = ROUNDS

    @property
    def tiles(self) -> int:
        return -(-self.queries // self.lanes)

    @property
    def whole(self) -> int:
        """Keys of whole tiles."""
        return self.keys // self.length * self.length

    @property
    def counts(self) -> tuple[int, int, int]:
        """Keys of a tile in each loop: before all queries, whole tiles, the rest."""
        return self.length, self.length, self.keys - self.whole

    @property
    def loops(self) -> tuple[int, ...]:
        """Loops that are needed."""
        return tuple([n for n, used in enumerate((self.unmasked, True, self.whole < self.keys)) if used])

    @property
    def mask_strides(self) -> Shape:
        return broadcast_strides(self.mask, (self.n // self.heads, self.heads, self.keys, self.queries))

    @property
    def factor(self) -> float:
        """Factor of the weights that dropout keeps."""
        return 1 / (1 - self.p)

    @property
    def threshold(self) -> int:
        return keep_threshold(self.p)

    @property
    def behind_queries(self) -> int:
        """Position of the gradients of keys."""
        return self.chunks * self.n * self.queries * self.width

    @property
    def behind_keys(self) -> int:
        """Position of the gradients of values."""
        return self.behind_queries + self.m * self.keys * self.width


def _spec(op: AttentionOp, *chunks: int) -> AttentionSpec:
    sizes = op.sizes
    lanes = -(-op.tile_length(sizes.queries, 16) // 16) * 16
    unmasked = op.causal and sizes.queries > lanes and not device(op.query.device).target.masks_are_cheap
    mask = op.mask[0].shape if op.mask else ()
    tile = (lanes, op.tile_length(sizes.keys, 8), op.causal, unmasked)
    return AttentionSpec(*sizes, op.heads, *tile, op.scale, op.wide, mask, op.p, bool(chunks), *chunks)


def _given(op: AttentionOp) -> dict[str, Any]:
    """Return the inputs of a kernel; a mask or state that there is not is None."""
    return {"query": None, "key": None, "value": None, "mask": None, "state": None} | op.given()


def forward(op: AttentionOp) -> TileCode:
    """Return the forward kernel: one instance for each tile of queries of a head."""
    from .kernels.attention import attention

    spec = _spec(op)
    return attention.code(_given(op), op.type, (Tiles(spec.n * spec.tiles, 1),), A=spec)


def backward(op: AttentionOp, chunks: int, span: int) -> TileCode:
    """Return the gradient kernel: one instance for each chunk of keys of a head, looping over all queries that share
    it.
    """
    from .kernels.attention import attention_gradient

    spec = _spec(op, chunks, span)
    return attention_gradient.code(_given(op), op.type, (Tiles(spec.m * chunks, 1),), A=spec)
