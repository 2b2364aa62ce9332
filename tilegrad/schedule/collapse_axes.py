"""Collapse short strided axes of a matrix product into one, computing the gaps between them and not storing them.

The windows of a padded image are the first of each row of positions, and rows are the first of each image:

    x[(n * 28 + i) * 28 + j + ...]  for n in 128, i in 26, j in 26     ->   x[p + ...]  for p in 128 * 28 * 28

As one axis, the rows of the operand have a constant stride in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..ir.position import bounds, linear
from ..ir.scalar import TRUE, Expr, Index, Read, facts, fresh_index, size, substitute, substituted
from ..ir.size import product
from .flatten import FlatGroup, FlatStore

MIN_LONG_EXTENT = 512
"""Extent from which on an axis fills tiles by itself."""
MAX_COMPUTED_RATIO = 2
"""Largest ratio of computed to stored results."""


def collapse_axes(flat: FlatGroup, role: Sequence[Index], factor: Expr) -> FlatGroup:
    """Replace the axes of one role by one, where an operand has them at constant strides."""
    if len(role) < 2 or not isinstance(role[-1].extent, int) or role[-1].extent >= MIN_LONG_EXTENT:
        return flat
    reads = facts(factor).reads
    steps = _constant_strides(role, reads[0].position[0]) if len(reads) == 1 else None
    if steps is None:
        return flat
    order = sorted(role, key=lambda i: steps[i])
    within = [steps[b] // steps[a] for a, b in itertools.pairwise(order)] + [order[-1].extent]
    extent = product(within)
    if extent == 0 or extent > MAX_COMPUTED_RATIO * product(i.extent for i in role):  # type: ignore[operator]
        return flat
    whole = fresh_index(extent)
    parts: dict[Expr, Expr] = {}
    left: Expr = whole
    for index, count in zip(order[:-1], within, strict=False):
        parts[index], left = left % size(count), left // size(count)
    parts[order[-1]] = left
    exists: Expr = TRUE
    for index, count in zip(order, within, strict=True):
        if count != index.extent:
            exists = exists & (parts[index] < size(index.extent))
    return _replaced(flat, role, whole, parts, exists, (reads[0], steps[order[0]])) or flat


def _constant_strides(role: Sequence[Index], offset: Expr) -> dict[Index, int] | None:
    """Return the strides of an offset along some axes, if they are constant and no axis overlaps the next."""
    found: dict[Index, int] = {}
    for factors, c in linear(offset).items():
        inside = [i for f in factors for i in facts(f).indices if i in role]
        if inside and (len(factors) > 1 or factors[0] not in role or c <= 0):
            return None
        if inside:
            found[inside[0]] = c
    order = sorted(role, key=lambda i: found.get(i, 0))
    if len(found) < len(role) or not all(isinstance(i.extent, int) for i in role):
        return None
    pairs = itertools.pairwise(order)
    even = all(found[b] % found[a] == 0 and found[b] // found[a] >= a.extent for a, b in pairs)  # type: ignore[operator]
    return found if even else None


def _replaced(
    flat: FlatGroup,
    role: Sequence[Index],
    whole: Index,
    parts: dict[Expr, Expr],
    exists: Expr,
    moved: tuple[Read, int],
) -> FlatGroup | None:
    """Replace several indices by one, if the operand is not read outside of its memory then."""
    read, step = moved
    rest = substitute(read.position[0], dict.fromkeys(role, size(0)))
    offset = rest + whole * step
    last = bounds(offset)[1]
    count = read.source.type.count
    if not isinstance(last, int) or not isinstance(count, int) or last >= count:
        return None
    roots = [e for s in flat.stores for e in (s.offset, s.expr)]
    read_so = Read(read.source, (offset,), read.dtype)
    changed = iter(substituted(roots, {**parts, read: read_so}))
    stores = tuple([FlatStore(s.value, next(changed), next(changed)) for s in flat.stores])
    rows = [whole if i is role[-1] else i for i in flat.rows if i is role[-1] or i not in role]
    return FlatGroup(tuple(rows), flat.columns, stores, flat.exists & exists)
