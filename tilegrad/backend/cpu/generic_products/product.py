"""Describe one product of given sizes and strides, and run it."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import NamedTuple

from ....ir.dtype import DType
from ....ops.product_form import ProductForm
from .. import native
from .blocking import Groups, choose_blocks, grouped
from .code import ProductCode, product_code
from .description import WORDS

MAX_DESCRIBED = 4096
"""Products whose descriptions are kept."""


class StridedOperand(NamedTuple):
    """Extents of an operand, and its strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class GenericProduct:
    """A product of given sizes and strides: `run` computes it from addresses.

    The memory that it needs besides, `scratch_bytes`, may be used by all products and programs in turn, since one runs
    at a time.
    """

    def __init__(self, code: ProductCode, groups: Groups) -> None:
        plan = choose_blocks(groups, code)
        self.is_empty = groups.batch_count * groups.rows * groups.columns == 0
        self.is_swapped = groups.is_swapped
        self.threads = plan.numbers["instances"]
        self.scratch_bytes = plan.scratch_bytes
        self.operations = 2.0 * groups.batch_count * groups.rows * groups.columns * groups.depth
        number = plan.numbers.get
        words = array("q", [*[number(name, 0) for name in WORDS], *plan.further])
        self.words = native.AlignedWords(len(words))
        self.words.view[:] = words
        self._address = self.words.address
        self.code = code.method(plan.numbers["method"])  # stays mapped as long as it may run
        self._run = self.code.together.run if self.threads > 1 else self.code.alone.run

    def run(self, x: int, y: int, out: int, scratch: int) -> None:
        """Compute the product of operands at two addresses; `scratch` is the address of memory for its own use."""
        if self.is_empty:
            return
        if self.is_swapped:
            x, y = y, x
        self._run(self._address, x, y, out, scratch)


@lru_cache(MAX_DESCRIBED)
def generic_product(
    dtype: DType, form: ProductForm, x: StridedOperand, y: StridedOperand, out: StridedOperand
) -> GenericProduct:
    """Describe a product of operands and a result of one dtype."""
    code = product_code(dtype)
    return GenericProduct(code, grouped(form, x, y, out, code.format))
