"""Kernels that pack operands of products, and kernels that read packed ones: `prepack.py` makes them."""

from __future__ import annotations

from ...ir import tile as ir
from ...ir.node import Structure
from .summed_products import SummedProduct


class PackedOperand(Structure):
    """A prepacked operand of a product and its address: tiles of the matrix unit, or panels."""

    operand: ir.Tile
    right: bool
    place: ir.Tile
    panels: bool = False


class PrepackedKernel(ir.Kernel):
    """A kernel that reads prepacked operands."""

    packed: tuple[PackedOperand, ...] = ()
    products: tuple[SummedProduct, ...] = ()
    """The low-precision products of a sum from zero whose operands are all prepacked."""


class PackingKernel(ir.Kernel):
    """A kernel that packs an operand: the tiles that it assigns to `names` are packed at `place`."""

    names: tuple[str, ...] = ()
    place: ir.Tile = ir.Literal(0)
    right: bool = False
    parts: int = 1
    """Bfloat16 parts of each element; 0: float32 panels."""
    width: int = 0
    """Rows or columns of a float32 panel."""
