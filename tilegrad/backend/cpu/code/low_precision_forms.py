"""Decide which matrix products use low-precision instructions (bfloat16, 8-bit integers), and how.

Where a processor multiplies low-precision numbers faster than float32 ones, with AMX or `vdpbf16ps`, each float32
operand is split into one to three bfloat16 parts, by the precision of the product, and the products of parts that
matter are added in float32. 8-bit integers are multiplied as they are: their 32-bit sums are exact, or wrap.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32, int8, int32, uint8
from ....ir.precision import Precision
from ....ir.tile_types import Types
from .. import costs
from ..target import Target


class LowPrecisionForm(NamedTuple):
    """Parts of each operand, and the pairs of left and right parts that are multiplied; neighbours share a part."""

    parts: int
    products: tuple[tuple[int, int], ...]
    instruction: str = "tdpbf16ps"

    @property
    def checks_magnitudes(self) -> bool:
        """Whether magnitudes must be checked, since results may differ from those of float32 arithmetic."""
        return self.instruction == "tdpbf16ps"


MULTIPLY_ADD = LowPrecisionForm(0, ())
"""Multiply-adds in float32."""
ONE = LowPrecisionForm(1, ((0, 0),))
THREE = LowPrecisionForm(2, ((0, 1), (0, 0), (1, 0)))
SIX = LowPrecisionForm(3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)))
FORMS: dict[Precision, LowPrecisionForm] = {"medium": ONE, "high": THREE, "highest": SIX}
INTEGERS = {int8: LowPrecisionForm(1, ((0, 0),), "tdpbssd"), uint8: LowPrecisionForm(1, ((0, 0),), "tdpbuud")}
"""Instructions for signed and unsigned integers."""


def low_precision_form(target: Target, types: Types, product: ir.Dot, in_loop: bool = False) -> LowPrecisionForm | None:
    """Choose the form of a product, or None for multiply-adds; one that continues a sum may have a small depth."""
    (m, k), (_, n) = types.of(product.x).shape, types.of(product.y).shape
    dtype, total = _shared_dtype(types, product.x, product.y), types.of(product).dtype
    form: LowPrecisionForm | None = None
    if total is float32 and dtype in (float32, bfloat16):
        form = ONE if dtype is bfloat16 else FORMS[product.precision]
    elif total is int32 and dtype is not None:
        form = INTEGERS.get(dtype)
    if form is None or not (target.matrix_unit or (target.pairs and form is ONE)):
        return None
    return form if in_loop or costs.MATRIX_UNIT.pays(m, k, n, form.parts) else None


def _shared_dtype(types: Types, x: ir.Tile, y: ir.Tile) -> DType | None:
    one, two = types.of(x).dtype, types.of(y).dtype
    return one if one is two else None
