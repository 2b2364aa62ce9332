"""Choice: one of two elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..errors import DTypeError
from ..ir.dtype import bool_
from ..ir.graph import TensorType, Value
from ..ir.scalar import Expr
from ..ir.scalar import where as choose
from .base import Elementwise, Operand, broadcast_type, pair, require_one_device, sum_to
from .broadcasting import broadcast_shapes


@final
class Where(Elementwise):
    """x where a condition holds, y elsewhere."""

    condition: Value
    x: Value
    y: Value

    def infer(self) -> TensorType:
        if self.condition.dtype is not bool_:
            raise DTypeError(
                f"where: the condition has {self.condition.dtype.name} elements, not bool; compare it, as in x != 0"
            )
        met = broadcast_type("where", (self.x, self.y))
        if met.device != self.condition.device and self.condition.shape:
            if met.shape:
                require_one_device("where", (self.x if self.x.shape else self.y, self.condition))
            met = TensorType(met.dtype, met.shape, self.condition.device)
        return met.with_shape(broadcast_shapes(self.condition.shape, met.shape, op="where"))

    def scalar(self, *elements: Expr) -> Expr:
        condition, x, y = elements
        return choose(condition, x, y)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        condition, x, y = self.inputs
        to_x = sum_to(where(condition, upstream, 0.0), x.shape) if x.tracked else None
        to_y = sum_to(where(condition, 0.0, upstream), y.shape) if y.tracked else None
        return None, to_x, to_y


def where(condition: Value, x: Operand, y: Operand) -> Value:
    return Where(condition, *pair(x, y))


def masked(condition: Value, x: Value) -> Value:
    """x where a condition holds, 0 elsewhere (also where x is NaN)."""
    return where(condition, x, 0.0 if x.dtype.is_float else False if x.dtype.kind == "bool" else 0)
