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
    from .op_kernel import OpKernel
    from .tile_code import TileCode

BITS = 4
"""Bits of a digit."""
BLOCK, BLOCKS_PER_INSTANCE = 256, 1
"""Numbers of a block, and blocks of an instance."""


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _digits(numbers: Any, shift: int) -> Any:
    return numbers >> shift & 15


class _DigitPass(Opaque):
    differentiable = False

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,) * len(self.inputs)

    def code(self, kernel: OpKernel, numbers: Value, shift: int, others: dict[str, Value]) -> TileCode:
        from .tile_code import Tiles

        rows, length = numbers.shape
        assert isinstance(length, int)
        sizes = {"BLOCK": BLOCK, "BLOCKS": _blocks(length), "SEVERAL": BLOCKS_PER_INSTANCE}
        inputs = {name: x.type for name, x in {"numbers": numbers, **others}.items()}
        grid = (Tiles(rows, 1), Tiles(length, BLOCK * BLOCKS_PER_INSTANCE))
        return kernel.code(inputs, self.type, grid, **sizes, LENGTH=length, SHIFT=shift)


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
        found = np.zeros((numbers.shape[0], 16, _blocks(numbers.shape[1])), np.int32)
        digits = _digits(numbers, self.shift)
        row, place = np.indices(numbers.shape)
        np.add.at(found, (row, digits, place // BLOCK), 1)
        return found

    def kernel(self) -> TileCode:
        from .kernels.sorting import digit_counts

        return self.code(digit_counts, self.numbers, self.shift, {})


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
        from .kernels.sorting import sort_by_digit

        return self.code(sort_by_digit, self.numbers, self.shift, {"starts": self.starts})
