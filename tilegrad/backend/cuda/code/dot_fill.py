"""Store computed operands of products from registers to shared memory, in the order in which they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import DType
from .dot_text import Operand
from .elements import AxisPosition, View, element_view
from .functions import MEMORY, SUM, TYPES, Text, cast
from .hardware import LINE_BYTES, VECTOR_BYTES
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering


def fill_lines(
    low: CudaLowering, place: str, operand: Operand, x: ir.Tile, dtype: DType, axes: tuple[int, int]
) -> None:
    """Store a tile as an operand of tensor cores; `axes` are the axis of rows (or columns) and the axis of k."""
    t = low.types.of(x)
    layout = low.plan.of_operand(x)
    position, k = axes
    along = position if operand.transposed else k
    width = layout.width if layout.vector == along else 1
    width = min(width, VECTOR_BYTES // operand.bytes)
    element = MEMORY[dtype.name]
    with low.over(layout, without={(layout.vector, 0)} if layout.vector >= 0 else set(), scope=True):
        view, conditions = low.positions(layout)
        guard = _guard(low, layout, conditions)

        def element_address(view: View, more: str = "") -> str:
            at = [f"{axis.at}{more if n == along else ''}" for n, axis in enumerate(view)]
            line, piece = operand.place(at[position], at[k])
            per_piece = 16 // operand.bytes
            return f"{place} + swizzled_offset({line}, {piece}) + ({at[along]}) % {per_piece} * {operand.bytes}"

        if layout.vector < 0:
            value = _value(low, x, view, t.dtype, dtype)
            low.out.add(f"{guard}*reinterpret_cast<{element}*>({element_address(view)}) = stored<{element}>({value});")
            return
        pieces = layout.width // width
        low.out.add(f"{TYPES[dtype.name]} values[{layout.width}];")
        with low.out.block(f"for (int v = 0; v < {layout.width}; ++v)", unrolled=True):
            low.out.add(f"values[v] = {_value(low, x, element_view(view, layout), t.dtype, dtype)};")
        if layout.vector == along and pieces == 1:
            low.out.add(f"{guard}write(reinterpret_cast<{element}*>({element_address(view)}), values);")
            return
        with low.out.block(f"for (int v = 0; v < {layout.width}; ++v)", unrolled=True):
            at_lane = tuple([_at_lane(axis) if n == layout.vector else axis for n, axis in enumerate(view)])
            target = f"*reinterpret_cast<{element}*>({element_address(at_lane)})"
            low.out.add(f"{guard}{target} = stored<{element}>(values[v]);")


def _at_lane(axis: AxisPosition) -> AxisPosition:
    """Move a position to the current element of a vector."""
    return axis._replace(at=Text(f"{axis.at} + v", SUM))


def fill_rows(
    low: CudaLowering, array: str, pitch: int, x: ir.Tile, dtype: DType, axes: tuple[int, int], part: range
) -> None:
    """Store a slice along k of a tile to an array [k][rows]."""
    t = low.types.of(x)
    layout = low.plan.of_operand(x)
    position, k = axes
    with low.over(layout, scope=True):
        view, conditions = low.positions(layout)
        view = element_view(view, layout)
        at = [str(low.elements.position(axis)) for axis in view]
        value = _value(low, x, view, t.dtype, dtype)
        if len(part) < t.shape[k]:
            conditions = [*conditions, f"{at[k]} >= {part.start}", f"{at[k]} < {part.stop}"]
        start = f" - {part.start}" if part.start else ""
        low.out.add(f"{_guard(low, layout, conditions)}{array}[({at[k]}{start}) * {pitch} + {at[position]}] = {value};")


def _value(low: CudaLowering, x: ir.Tile, view: View, have: DType, dtype: DType) -> str:
    return str(cast(low.elements.of(x, view, have), have, dtype))


def _guard(low: CudaLowering, layout: RegisterLayout, conditions: list[str]) -> str:
    every = [*low.owners(layout), *conditions]
    return f"if ({' && '.join(every)}) " if every else ""


def zero_fill(low: CudaLowering, place: str, bytes: int) -> None:
    """Zero-fill shared memory, for a depth that is not a whole number of steps."""
    with low.out.block(f"for (int piece = thread; piece < {bytes // 8}; piece += {low.threads})"):
        low.out.add(f"reinterpret_cast<uint64*>({place})[piece] = 0;")
    low.barrier()


def shared_bytes(operands: tuple[Operand, ...]) -> int:
    """Return the bytes of shared memory that operands take, each rounded up to whole lines."""
    return sum(-(-operand.size // LINE_BYTES) * LINE_BYTES for operand in operands)
