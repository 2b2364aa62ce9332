"""Exact sums of float32 numbers as integers, which may be added in any order.

A float32 number is a 24-bit integer times one of 254 powers of two. Eight consecutive powers share a 64-bit word, with
room for 2^31 numbers. So many instances can add to the same place with deterministic results, as accurate as a sum in
float64.
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
"""Words of a sum: of powers, and one that counts infinity (1), minus infinity (2^31) and NaN (both)."""
LOWEST_EXPONENT = -149
"""Exponent of the lowest bit of the first word."""


@final
class ExactSums(Opaque):
    """For each part of a list of float32 numbers, the sum at each place, as words of powers of two.

    >>> from ..ir.dtype import float32, int32
    >>> from ..ir.graph import Input
    >>> given = Input(TensorType(int32, (3,))), Input(TensorType(float32, (3,)))
    >>> made = ExactSums(*given, 2, 1).reference(np.array([0, 1, 0]), np.float32([1.5, np.inf, -1.0]))
    >>> (made[0, 0, 15] * 2.0**(8 * 15 - 149)).item(), made[0, 1, 32].item()
    (0.5, 1)
    """

    differentiable = False
    places: Value
    """Place of each number, int32, less than `most`."""
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
    """Add up the parts of each place in float64."""
    words = reduce_sum(sums, 0)
    power = add(mul(cast(positions(POWER_WORDS, sums.device), float64), 8.0), float(LOWEST_EXPONENT))
    numbers = cast(narrow(words, 1, 0, POWER_WORDS), float64)
    total = reduce_sum(mul(numbers, reshape(exp2(power), (1, POWER_WORDS))), 1)
    odd = select(words, 1, POWER_WORDS)
    above = where(gt(bitwise_and(odd, (1 << 31) - 1), 0), float("inf"), fill(0.0, (), float64, sums.device))
    below = where(gt(shift_right(odd, 31), 0), float("-inf"), fill(0.0, (), float64, sums.device))
    return add(total, add(above, below))
