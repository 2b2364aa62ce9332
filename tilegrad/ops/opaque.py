"""Ops without an element form: what they compute stands in a tile kernel of their own (`tile_code.py`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ..ir.graph import Cost, Reader, Value
from ..ir.scalar import Expr, Position

if TYPE_CHECKING:
    from .tile_code import TileCode


class Opaque(Value):
    """An op that is given by a kernel, not by the meaning of one element."""

    opaque: ClassVar[bool] = True
    cost: ClassVar[Cost] = "expensive"

    def element(self, position: Position, read: Reader) -> Expr:
        raise AssertionError(f"{self.op} has no element form")

    @abstractmethod
    def reference(self, *arrays: Any) -> Any:
        """The meaning, on numpy arrays."""

    @abstractmethod
    def kernel(self) -> TileCode:
        """The code that computes the op; it works on every backend."""
