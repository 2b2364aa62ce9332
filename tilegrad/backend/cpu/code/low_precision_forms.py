"""How products are made of narrow numbers (bfloat16, integers of 8 bits), and which ones are not.

Where a processor multiplies narrow numbers faster than float32 ones, in a matrix unit (AMX) or by vectors of pairs,
each float32 factor is taken as the sum of one to three bfloat16 numbers (its precision says how many), and the products
of these that matter are added up in float32. Integers of 8 bits are multiplied as they are: their sums of 32 bits are
exact, or what is left of them where they overflow, as everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32, int8, int32, uint8
from ....ir.precision import Precision
from ....ir.tile_types import Types
from ....runtime.target_model import pays_in_unit
from ..target import Target


class Form(NamedTuple):
    """Parts of each factor, and which of the left and the right one are multiplied: one changes at a time."""

    parts: int
    products: tuple[tuple[int, int], ...]
    instruction: str = "tdpbf16ps"

    @property
    def looks(self) -> bool:
        """Whether numbers may be such that something else would come out than by multiply-adds."""
        return self.instruction == "tdpbf16ps"


PLAIN = Form(0, ())
"""Of what is left to multiply-adds."""
ONE = Form(1, ((0, 0),))
THREE = Form(2, ((0, 1), (0, 0), (1, 0)))
SIX = Form(3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)))
FORMS: dict[Precision, Form] = {"medium": ONE, "high": THREE, "highest": SIX}
INTEGERS = {int8: Form(1, ((0, 0),), "tdpbssd"), uint8: Form(1, ((0, 0),), "tdpbuud")}
"""All numbers have a sign, or none has."""


def form_of(target: Target, types: Types, product: ir.Dot, goes_on: bool = False) -> Form | None:
    """How a product is made of narrow numbers, if it is; one that goes on with the sum of others may have few k."""
    (m, k), (_, n) = types.of(product.x).shape, types.of(product.y).shape
    dtype, total = _shared_dtype(types, product.x, product.y), types.of(product).dtype
    form: Form | None = None
    if total is float32 and dtype in (float32, bfloat16):
        form = ONE if dtype is bfloat16 else FORMS[product.precision]
    elif total is int32 and dtype is not None:
        form = INTEGERS.get(dtype)
    if form is None or not (target.matrix_unit or (target.pairs and form is ONE)):
        return None
    return form if goes_on or pays_in_unit(m, k, n, form.parts) else None


def _shared_dtype(types: Types, x: ir.Tile, y: ir.Tile) -> DType | None:
    one, two = types.of(x).dtype, types.of(y).dtype
    return one if one is two else None


class Turn(NamedTuple):
    """A product in a kernel, in a loop or alone; it is made `times` times, after `first` others."""

    product: ir.Dot
    loop: ir.For | None
    first: int
    times: int
    form: Form

    def operand(self, right: bool) -> ir.Tile:
        return self.product.y if right else self.product.x

    @property
    def step(self) -> int:
        return int(self.loop.step.value) if self.loop and isinstance(self.loop.step, ir.Literal) else 0

    def number(self) -> ir.Tile:
        """Which turn of all it is, inside the kernel."""
        return ir.Literal(self.first) if self.loop is None else ir.Name(self.loop.index) // self.step + self.first
