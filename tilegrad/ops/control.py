"""Selection by a condition, and checked indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from ..errors import DTypeError
from ..ir.dtype import bool_, int64
from ..ir.graph import Reader, TensorType, Value
from ..ir.location import current_location
from ..ir.scalar import Expr, Position, apply, const, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Dim
from .base import Elementwise, Operand, broadcast_type, pair, require_one_device, sum_to
from .broadcasting import broadcast_shapes, require, reshape


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
    """Return x where a condition holds, 0 elsewhere (also where x is NaN)."""
    return where(condition, x, 0.0 if x.dtype.is_float else False if x.dtype.kind == "bool" else 0)


Check: TypeAlias = tuple[int, bool]
"""Number of the reported place, and whether negative indices count from the end."""


@final
class CheckedIndex(Value):
    """Indices as positions on an axis; invalid ones are clamped and reported to whoever waits for the result."""

    x: Value
    extent: Dim
    from_end: bool
    """Whether negative indices count from the end."""
    number: int
    """Number of the reported place (`runtime/index_faults.py`)."""

    def infer(self) -> TensorType:
        require("i", self.x.dtype, "indexing")
        return self.x.type.with_dtype(int64)

    def element(self, position: Position, read: Reader) -> Expr:
        i, end = cast_element(read(self.x, position), int64), size(self.extent)
        if self.from_end:
            i = choose(i < 0, i + end, i)
        return apply("inside", i, end, const(self.number, int64))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


def checked_index(x: Value, extent: Dim, axis: int, op: str, from_end: bool = True) -> Value:
    """Make indices along an axis checked where kernels use them."""
    from ..runtime.index_faults import number_of

    return CheckedIndex(x, extent, from_end, number_of(op, axis, from_end, extent, current_location()))


def split_check(index: Value) -> tuple[Value, Check | None]:
    """Split checked indices into the raw indices and their check, for kernels that check themselves."""
    return (index.x, (index.number, index.from_end)) if isinstance(index, CheckedIndex) else (index, None)


def with_check(index: Value, extent: Dim, check: Check | None) -> Value:
    """Undo `split_check`."""
    return index if check is None else CheckedIndex(index, extent, check[1], check[0])


def reshape_index(index: Value, move: Callable[[Value], Value]) -> Value:
    """Reshape indices; checked ones stay checked."""
    raw, check = split_check(index)
    return move(raw) if check is None else with_check(move(raw), index.extent, check)  # type: ignore[attr-defined]


def flat_index(index: Value) -> Value:
    """Flatten indices."""
    return reshape_index(index, lambda x: reshape(x, (-1,)))
