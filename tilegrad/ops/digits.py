"""One pass of a radix sort: 64-bit numbers sorted stably by four of their bits.

    DigitCounts     histogram of the digits of each block of a row
    SortByDigit     the numbers, scattered by the scanned histograms and their rank in the block

Counts of a block are packed, 8 bits each, so that a scan of two 64-bit numbers ranks a block.
`transform/radix_sorts.py` composes the passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import DTypeError
from ..ir.dtype import int32, int64
from ..ir.graph import TensorType, Value
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

BITS = 4
BLOCK, BLOCKS_PER_INSTANCE = 256, 1
"""Numbers of a block, and blocks of an instance."""

DIGITS = """
row = tl.program_id(0).to(tl.int64)
block = tl.program_id(1) * SEVERAL + tl.arange(0, SEVERAL)
place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
inside = place < LENGTH
number = tl.load(numbers + (row * LENGTH + place), mask=inside, other=0)
digit = (number >> (SHIFT).to(tl.int64)).to(tl.int32) & 15
"""
COUNTS = """
@tg.kernel
def digit_counts(PARAMETERS):
    DIGITS
    # A word holds the counts of four digits.
    word = tl.arange(0, 4)
    mine = (digit >> 2)[None, :, :] == word[:, None, None]
    one = tl.where(inside, (1).to(tl.int64) << ((digit & 3) * 16).to(tl.int64), (0).to(tl.int64))
    counts = tl.sum(tl.where(mine, one[None, :, :], (0).to(tl.int64)), axis=2)
    for k in range(0, 4):
        count = counts >> (k * 16).to(tl.int64) & (65535).to(tl.int64)
        to = (row * 16 + word[:, None] * 4 + k) * BLOCKS + block[None, :]
        tl.store(out + to, count.to(tl.int32), mask=(block < BLOCKS)[None, :])
"""
SORT_BY_DIGIT = """
@tg.kernel
def sort_by_digit(PARAMETERS):
    DIGITS
    # A word holds the counts of eight digits, modulo 256 (if a block has only one digit).
    word = tl.arange(0, 2)
    bit = ((digit & 7) * 8).to(tl.int64)
    mine = (digit >> 3)[None, :, :] == word[:, None, None]
    one = tl.where(inside, (1).to(tl.int64) << bit, (0).to(tl.int64))
    running = tl.cumsum(tl.where(mine, one[None, :, :], (0).to(tl.int64)), axis=2)
    upto = tl.sum(tl.where(mine, running, (0).to(tl.int64)), axis=0) >> bit
    before = tl.load(starts + ((row * 16 + digit) * BLOCKS + block[:, None]), mask=inside, other=0)
    tl.store(out + (row * LENGTH + before + (upto - 1 & (255).to(tl.int64))), number, mask=inside)
"""


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _digits(numbers: Any, shift: int) -> Any:
    return numbers >> shift & 15


class _DigitPass(Opaque):
    differentiable = False

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,) * len(self.inputs)

    def code(self, text: str, numbers: Value, shift: int, others: dict[str, Value]) -> TileCode:
        from .tile_code import Tiles, fill_template, tile_code

        rows, length = numbers.shape
        assert isinstance(length, int)
        words = {
            "BLOCK": BLOCK,
            "BLOCKS": _blocks(length),
            "SEVERAL": BLOCKS_PER_INSTANCE,
            "LENGTH": length,
            "SHIFT": shift,
        }
        inputs = {name: x.type for name, x in {"numbers": numbers, **others}.items()}
        grid = (Tiles(rows, 1), Tiles(length, BLOCK * BLOCKS_PER_INSTANCE))
        return tile_code(fill_template(fill_template(text, {"DIGITS": DIGITS}, {}), {}, words), inputs, self.type, grid)


@final
class DigitCounts(_DigitPass):
    """For each row of int64 numbers and each digit, its count in each block.

    >>> from ..ir.graph import Input
    >>> counts = DigitCounts(Input(TensorType(int64, (1, 5))), 4)
    >>> counts.reference(np.array([[0x10, 0x21, 0x13, 0xF0, 0x1F]]))[0, :, 0].tolist()
    [0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    """

    numbers: Value
    shift: int

    def infer(self) -> TensorType:
        rows, length = self.numbers.shape
        if self.numbers.dtype is not int64 or not isinstance(length, int):
            raise DTypeError(f"digit_counts: rows of int64 numbers are wanted, not {self.numbers.type}")
        return self.numbers.type.with_dtype(int32).with_shape((rows, 16, _blocks(length)))

    def reference(self, numbers: Any) -> Any:
        rows, _, blocks = self.type.shape
        found = np.zeros((numbers.shape[0], 16, _blocks(numbers.shape[1])), np.int32)
        digits = _digits(numbers, self.shift)
        row, place = np.indices(numbers.shape)
        np.add.at(found, (row, digits, place // BLOCK), 1)
        return found

    def kernel(self) -> TileCode:
        return self.code(COUNTS, self.numbers, self.shift, {})


@final
class SortByDigit(_DigitPass):
    """The numbers of each row sorted by a digit; `starts` has the first position of each digit and block.

    >>> from ..ir.graph import Input
    >>> given = (Input(TensorType(int64, (1, 3))), Input(TensorType(int32, (1, 16, 1))))
    >>> SortByDigit(*given, 0).reference(np.array([[0x12, 0x21, 0x32]]), None).tolist()
    [[33, 18, 50]]
    """

    numbers: Value
    starts: Value
    shift: int

    def infer(self) -> TensorType:
        return self.numbers.type

    def reference(self, numbers: Any, starts: Any) -> Any:
        order = np.argsort(_digits(numbers, self.shift), axis=-1, kind="stable")
        return np.take_along_axis(numbers, order, -1)

    def kernel(self) -> TileCode:
        return self.code(SORT_BY_DIGIT, self.numbers, self.shift, {"starts": self.starts})
