"""The matrix products of a kernel that are added up one after another, and the form in which each is computed."""

from __future__ import annotations

from typing import NamedTuple

from ...ir import tile as ir
from .code.low_precision_forms import LowPrecisionForm


class SummedProduct(NamedTuple):
    """A product in a kernel, alone or in a loop of `iterations` iterations, after `first` iterations of others."""

    dot: ir.Dot
    loop: ir.For | None
    first: int
    iterations: int
    form: LowPrecisionForm

    def operand(self, right: bool) -> ir.Tile:
        return self.dot.y if right else self.dot.x

    @property
    def step(self) -> int:
        return int(self.loop.step.value) if self.loop and isinstance(self.loop.step, ir.Literal) else 0

    def number(self) -> ir.Tile:
        """Return the number of the iteration among all, as an expression inside the kernel."""
        return ir.Literal(self.first) if self.loop is None else ir.Name(self.loop.index) // self.step + self.first


def computes(statement: ir.Statement, product: SummedProduct) -> bool:
    """Whether a statement computes a product, or is the loop around it."""
    return statement is product.loop or (isinstance(statement, ir.Assign) and statement.value is product.dot)
