"""Greatest common divisor by Euclid's algorithm on tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.graph import TensorType, Value
from .base import require_alike
from .broadcasting import broadcast_shapes, expand, require
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

BLOCK = 256
"""Elements of an instance."""


@final
class Gcd(Opaque):
    """Greatest common divisor of two integers; of 0 and n it is |n|."""

    differentiable = False
    x: Value
    y: Value

    def infer(self) -> TensorType:
        require_alike("gcd", (self.x, self.y))
        require("i", self.x.dtype, "gcd")
        return self.x.type

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None

    def reference(self, x: Any, y: Any) -> Any:
        return np.gcd(x, y).astype(x.dtype)

    def kernel(self) -> TileCode:
        from .kernels.elementwise import gcd
        from .tile_code import Tiles

        inputs, count = {"x": self.x.type, "y": self.y.type}, self.type.count
        return gcd.code(inputs, self.type, (Tiles(count, BLOCK),), BLOCK=BLOCK, COUNT=count)


def gcd(x: Value, y: Value) -> Value:
    shape = broadcast_shapes(x.shape, y.shape, op="gcd")
    return Gcd(*(v if v.shape == shape else expand(v, shape) for v in (x, y)))
