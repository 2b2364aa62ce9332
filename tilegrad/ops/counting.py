"""Histograms, as partial histograms of many instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.dtype import int32
from ..ir.graph import TensorType, Value
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

BLOCK = 1024
"""Elements that an instance counts at a time."""


def histogram_part_length(listed: Value, parts: int) -> int:
    """Return the number of elements of an instance, a multiple of the block size."""
    (count,) = listed.shape
    assert isinstance(count, int)
    return -(-count // (parts * BLOCK)) * BLOCK


@final
class PartialHistograms(Opaque):
    """Histogram of each part of a list of int32 numbers.

    >>> from ..ir.graph import Input
    >>> PartialHistograms(Input(TensorType(int32, (4,))), 3, 2).reference(np.array([0, 2, 2, 1])).sum(0).tolist()
    [1, 1, 2]
    """

    differentiable = False
    numbers: Value
    most: int
    """Exclusive upper bound of the numbers, which are not negative."""
    parts: int

    def infer(self) -> TensorType:
        return self.numbers.type.with_dtype(int32).with_shape((self.parts, self.most))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)

    @property
    def length(self) -> int:
        return histogram_part_length(self.numbers, self.parts)

    def reference(self, numbers: Any) -> Any:
        starts = [n * self.length for n in range(self.parts)]
        parts = [numbers[start : start + self.length] for start in starts]
        return np.stack([np.bincount(part, minlength=self.most) for part in parts]).astype(np.int32)

    def kernel(self) -> TileCode:
        from .kernels.counting import partial_histograms
        from .tile_code import Tiles

        inputs, grid = {"numbers": self.numbers.type}, (Tiles(self.parts, 1),)
        sizes = {"BLOCK": BLOCK, "LENGTH": self.length, "COUNT": self.numbers.shape[0], "BINS": self.most}
        return partial_histograms.code(inputs, self.type, grid, **sizes)
