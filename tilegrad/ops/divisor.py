"""The greatest common divisor: Euclid's steps, until no remainder is left in a tile."""

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


@final
class Gcd(Opaque):
    """The greatest common divisor of two whole numbers of one shape; of 0 and n it is |n|."""

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
        from .tile_code import Tiles, show_size, tile_code

        count = self.type.count
        text = GCD.replace("COUNT", show_size(count)).replace("BLOCK", str(BLOCK))
        text = text.replace("DTYPE", f"tl.{self.dtype.name}")
        return tile_code(text, {"x": self.x.type, "y": self.y.type}, self.type, (Tiles(count, BLOCK),))


GCD = """
@tg.kernel
def gcd(PARAMETERS):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < COUNT, other=0)
    b = tl.load(y + i, mask=i < COUNT, other=0)
    while tl.max((b != 0).to(tl.int32), axis=0) > 0:
        rest = tl.where(b != 0, tl.fmod(a, b), 0)
        a = tl.where(b != 0, b, a)
        b = rest
    tl.store(out + i, tl.where(a < 0, 0 - a, a), mask=i < COUNT)
"""


def gcd(x: Value, y: Value) -> Value:
    shape = broadcast_shapes(x.shape, y.shape, op="gcd")
    return Gcd(*(v if v.shape == shape else expand(v, shape) for v in (x, y)))
