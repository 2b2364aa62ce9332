"""Sums of float32 numbers as whole numbers: whichever is added first, the sum is the same.

Such a number is a whole one of 24 bits times a power of two, of which there are 254. Eight neighbouring powers share a
word of 64 bits, in which 2^31 numbers have room. So many instances add to the same place without an order, and what
they make is as exact as a sum in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.dtype import float64, int64
from ..ir.graph import TensorType, Value
from .arithmetic import add, mul
from .bits import bitwise_and, shift_right
from .broadcasting import fill, reduce_sum, reshape
from .cast import cast
from .comparison import gt
from .control import where
from .counting import BLOCK, histogram_part_length
from .creation import positions
from .exponential import exp2
from .movement import narrow, select
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

POWER_WORDS, WORDS_PER_ROW = 32, 33
"""Words of a place: of powers, and last how often there was infinity (1), minus infinity (2^31) or NaN (both)."""
LOWEST_EXPONENT = -149
"""The power of two that a bit of the first word stands for."""


@final
class ExactSums(Opaque):
    """For each part of a list of float32 numbers what they make together at each place, by their powers of two.

    >>> from ..ir.dtype import float32, int32
    >>> from ..ir.graph import Input
    >>> given = Input(TensorType(int32, (3,))), Input(TensorType(float32, (3,)))
    >>> made = ExactSums(*given, 2, 1).reference(np.array([0, 1, 0]), np.float32([1.5, np.inf, -1.0]))
    >>> (made[0, 0, 15] * 2.0**(8 * 15 - 149)).item(), made[0, 1, 32].item()
    (0.5, 1)
    """

    differentiable = False
    places: Value
    """int32, each at least 0 and less than `most`."""
    amounts: Value
    most: int
    parts: int

    def infer(self) -> TensorType:
        return self.places.type.with_dtype(int64).with_shape((self.parts, self.most, WORDS_PER_ROW))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None, None)

    @property
    def length(self) -> int:
        return histogram_part_length(self.places, self.parts)

    def reference(self, places: Any, amounts: Any) -> Any:
        bits = np.ascontiguousarray(amounts, np.float32).view(np.int32).astype(np.int64)
        exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
        power = np.maximum(exponent, 1) - 1
        value = (fraction + np.where(exponent > 0, 1 << 23, 0) << (power & 7)) * np.where(bits < 0, -1, 1)
        odd = np.where(fraction > 0, (1 << 31) + 1, np.where(bits < 0, 1 << 31, 1))
        word = np.where(exponent == 255, POWER_WORDS, power >> 3)
        made = np.zeros((self.parts, self.most, WORDS_PER_ROW), np.int64)
        part = np.arange(len(bits)) // self.length
        np.add.at(made, (part, places, word), np.where(exponent == 255, odd, value))
        return made

    def kernel(self) -> TileCode:
        from .kernels.counting import exact_sums
        from .tile_code import Tiles

        inputs = {"places": self.places.type, "amounts": self.amounts.type}
        sizes = {"BLOCK": BLOCK, "LENGTH": self.length, "COUNT": self.places.shape[0]}
        sizes |= {"COUNTERS": self.most * WORDS_PER_ROW, "WORDS": WORDS_PER_ROW, "POWERS": POWER_WORDS}
        return exact_sums.code(inputs, self.type, (Tiles(self.parts, 1),), **sizes)


def exact_total(sums: Value) -> Value:
    """What the parts make together at each place, in float64."""
    words = reduce_sum(sums, 0)
    power = add(mul(cast(positions(POWER_WORDS, sums.device), float64), 8.0), float(LOWEST_EXPONENT))
    numbers = cast(narrow(words, 1, 0, POWER_WORDS), float64)
    total = reduce_sum(mul(numbers, reshape(exp2(power), (1, POWER_WORDS))), 1)
    odd = select(words, 1, POWER_WORDS)
    above = where(gt(bitwise_and(odd, (1 << 31) - 1), 0), float("inf"), fill(0.0, (), float64, sums.device))
    below = where(gt(shift_right(odd, 31), 0), float("-inf"), fill(0.0, (), float64, sums.device))
    return add(total, add(above, below))
