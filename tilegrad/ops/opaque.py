"""Ops without an element form, which are computed by a tile kernel of their own (`tile_code.py`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ..ir.graph import Cost, Reader, Value
from ..ir.scalar import Expr, Position

if TYPE_CHECKING:
    from .tile_code import TileCode


class Opaque(Value):
    """An op defined by a kernel instead of an element expression."""

    opaque: ClassVar[bool] = True
    cost: ClassVar[Cost] = "expensive"

    @property
    def quick_reference(self) -> bool:
        """Whether `reference` takes few calls of numpy (for the op, or for each step of its loop) and little memory."""
        return False

    def element(self, position: Position, read: Reader) -> Expr:
        raise AssertionError(f"{self.op} has no element form")

    @abstractmethod
    def reference(self, *arrays: Any) -> Any:
        """Compute the op on numpy arrays."""

    @abstractmethod
    def kernel(self) -> TileCode:
        """Return the tile kernel, which runs on every backend."""
