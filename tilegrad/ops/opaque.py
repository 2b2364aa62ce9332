"""Ops without an element form: what they compute stands in a tile kernel of their own (`tile_code.py`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..ir.graph import Cost, Input, Reader, Value
from ..ir.scalar import Expr, Position
from ..ir.size import Size, known

if TYPE_CHECKING:
    from .tile_code import TileCode


class Opaque(Value):
    """An op that is given by a kernel, not by the meaning of one element."""

    opaque: ClassVar[bool] = True
    cost: ClassVar[Cost] = "dear"

    def element(self, position: Position, read: Reader) -> Expr:
        raise AssertionError(f"{self.op} has no element form")

    @abstractmethod
    def reference(self, *arrays: Any) -> Any:
        """The meaning, on numpy arrays."""

    @abstractmethod
    def kernel(self) -> TileCode:
        """The code that computes the op; it works on every backend."""


def settled(value: Value, sizes: Mapping[str, int]) -> Value:
    """The same op on placeholders, with its sizes as numbers."""

    def number(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple([number(p) for p in part])
        if isinstance(part, Value):
            return settled(part, sizes)
        return known(part, sizes) if isinstance(part, Size) else part

    inputs = [Input(x.type.with_shape(number(x.shape))) for x in value.inputs]
    attributes = {name: number(value.__dict__[name]) for name in value.attribute_fields}
    return value.with_inputs(inputs, **attributes)
