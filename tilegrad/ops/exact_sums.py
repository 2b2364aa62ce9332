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
        from .tile_code import Tiles, fill_template, tile_code

        words = {"BLOCK": BLOCK, "LENGTH": self.length, "COUNT": self.places.shape[0]}
        text = fill_template(
            EXACT_SUMS, {}, words | {"MOST": self.most * WORDS_PER_ROW, "WORDS": WORDS_PER_ROW, "POWERS": POWER_WORDS}
        )
        inputs = {"places": self.places.type, "amounts": self.amounts.type}
        return tile_code(text, inputs, self.type, (Tiles(self.parts, 1),))


EXACT_SUMS = """
@tg.kernel
def exact_sums(PARAMETERS):
    # Whole numbers: whichever is added first, the sum is the same.
    part = tl.program_id(0).to(tl.int64)
    own = part * MOST
    for first in range(0, MOST, BLOCK):
        number = first + tl.arange(0, BLOCK)
        tl.store(out + (own + number), tl.zeros((BLOCK,), dtype=tl.int64), mask=number < MOST)
    for begin in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, (COUNT).to(tl.int64)), BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < COUNT
        place = tl.load(places + at, mask=inside, other=0)
        bits = tl.load(amounts + at, mask=inside, other=0.0).to(tl.int32, bitcast=True)
        exponent = bits >> 23 & 255
        fraction = bits & 8388607
        power = tl.maximum(exponent, 1) - 1
        whole = (fraction + tl.where(exponent > 0, 8388608, 0)).to(tl.int64) << (power & 7).to(tl.int64)
        value = tl.where(bits < 0, -whole, whole)
        sign = tl.where(bits < 0, (2147483648).to(tl.int64), (1).to(tl.int64))
        odd = tl.where(fraction > 0, (2147483649).to(tl.int64), sign)
        word = tl.where(exponent == 255, POWERS, power >> 3)
        added = tl.where(exponent == 255, odd, value)
        tl.atomic_add(out + (own + place.to(tl.int64) * WORDS + word), added, mask=inside & (added != 0))
"""


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
