"""Merge short axes of the same role, so that sums over several axes become matrix products.

A convolution sums over (channel, row tap, column tap), and its result runs along (row, column): each too short for a
tile. Merged into one axis of all three, and one of both, it is a matrix product; where an operand is not contiguous
along them, its positions have quotients and remainders of the one index.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.position import linear
from ..ir.scalar import Expr, Index, Reduce, facts, fresh_index
from ..runtime.target_model import TargetModel
from .access_patterns import stride
from .flatten import FlatGroup, replaced_by_one
from .products import free_indices, operands

MIN_REDUCED_EXTENT = 128
"""Extent of a reduced axis that fills a tile: further columns are better loops around it."""
MIN_ROW_EXTENT = 64
"""Extent of a row axis that fills a tile."""
MIN_COPIED_ROW_EXTENT = 16
"""Extent of a row axis that fills a tile where strided operands are copied asynchronously."""


def as_matrix(flat: FlatGroup, target: TargetModel = TargetModel()) -> FlatGroup:
    """Merge axes of each role (rows of one operand, of the other, columns) until the last one is long."""
    if target.matmul.async_copy_bytes:
        even = _evenly(flat)
        if even is not None:
            return even
    if not _is_short(flat.columns, MIN_REDUCED_EXTENT) and len(flat.rows) < 3:
        return flat
    factors = _factors(flat)
    in_x, in_y = map(free_indices, factors)
    down, across = ([i for i in flat.rows if i in lone] for lone in (in_x - in_y, in_y - in_x))
    ordered = iter(down := _along_memory(factors[0], down, flat.columns[-1]))
    flat = flat.replaced(rows=tuple([next(ordered) if i in down else i for i in flat.rows]))
    flat = _joined(flat, "columns", flat.columns, MIN_REDUCED_EXTENT)
    flat = _joined(flat, "rows", down, MIN_ROW_EXTENT)
    return _joined(flat, "rows", across, MIN_ROW_EXTENT)


def _along_memory(factor: Expr, role: list[Index], column: Index) -> list[Index]:
    """Order the rows of an operand so that the last ones are contiguous in memory."""
    reads = facts(factor).reads
    if len(reads) != 1 or stride(reads[0].position[0], column) == 1:
        return role
    near = [i for i in role if stride(reads[0].position[0], i) == 1]
    return [i for i in role if i not in near] + near


def _factors(flat: FlatGroup) -> tuple[Expr, Expr]:
    return next(
        found
        for e in flat.expressions
        if isinstance(e, Reduce) and e.index is flat.columns[0] and (found := operands(e, flat.rows, flat.columns))
    )


def _evenly(flat: FlatGroup) -> FlatGroup | None:
    """Merge axes only where operands have constant strides: asynchronous copies need them more than long axes."""
    reads = [facts(factor).reads for factor in _factors(flat)]
    if any(len(found) != 1 or not _is_even(found[0].position[0]) for found in reads):
        return None
    from .collapse_axes import collapse_axes

    for side in (0, 1):
        factors = _factors(flat)
        lone = free_indices(factors[side]) - free_indices(factors[1 - side])
        flat = collapse_axes(flat, [i for i in flat.rows if i in lone], factors[side])
    return flat if all(_is_wide(role) for role in _roles(flat)) else None


def _is_even(offset: Expr) -> bool:
    return all(isinstance(factor, Index) for factors in linear(offset) for factor in factors)


def _roles(flat: FlatGroup) -> list[list[Index]]:
    in_x, in_y = map(free_indices, _factors(flat))
    return [[i for i in flat.rows if i in lone] for lone in (in_x - in_y, in_y - in_x)] + [list(flat.columns)]


def _is_wide(role: Sequence[Index]) -> bool:
    """Whether tiles along the last index are long enough, or there is nothing to merge it with."""
    extent = role[-1].extent
    return len(role) == 1 or type(extent) is not int or extent >= MIN_COPIED_ROW_EXTENT


def _joined(flat: FlatGroup, kind: str, role: Sequence[Index], long: int) -> FlatGroup:
    """Merge the last of some indices with those before it, as long as it is short."""
    left = list(role)
    while _is_short(left, long):
        outer, inner = left[-2:]
        both = fresh_index(outer.extent * inner.extent)
        flat = replaced_by_one(flat, outer, inner, both)
        indices = [both if i is inner else i for i in getattr(flat, kind) if i is not outer]
        flat = flat.replaced(**{kind: tuple(indices)})
        left[-2:] = [both]
    return flat


def _is_short(role: Sequence[Index], long: int) -> bool:
    """Whether the last of some indices is to be merged with the one before."""
    return len(role) > 1 and type(role[-1].extent) is int and role[-1].extent < long
