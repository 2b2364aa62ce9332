"""Fuse groups of small tensors: one instance holds all elements, and reduces along any axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.scalar import Index, fresh_index
from ..ir.size import product
from .group import Group, Mapping, merged


def in_one_piece(a: Group, b: Group, mapping: Mapping, most: int) -> Group | None:
    """Merge two groups into one instance that holds all elements, if they are few: rows and columns are alike then.

    `mapping` has the indices of the second group that coincide with those of the first where it is read.
    """
    if a.kind not in ("map", "rows") or b.kind not in ("map", "rows"):
        return None
    own, space = (*a.rows, *a.columns), [*b.rows, *b.columns]
    mapping = dict(mapping)
    left = [i for i in space if i not in mapping.values()]
    for index in own:
        if index not in mapping:
            other = next((i for i in left if i.extent == index.extent), None)
            if other is None:
                other = fresh_index(index.extent)
                space.append(other)
            left = [i for i in left if i is not other]
            mapping[index] = other
    count = product(i.extent for i in space)
    if type(count) is not int or count > most:
        return None
    both = merged(a, b, mapping, "rows", (), tuple(space))
    return both.replaced(columns=in_memory_order(both, space))  # type: ignore[no-any-return]


def is_whole(rows: Sequence[Index], columns: Sequence[Index], most: int) -> bool:
    """Whether one instance holds all elements of a group that reduces."""
    count = product(i.extent for i in columns)
    return not rows and len(columns) > 0 and type(count) is int and count <= most


def in_memory_order(group: Group, space: Sequence[Index]) -> tuple[Index, ...]:
    """Order the indices as in the position of the largest member, so that accesses are contiguous."""
    positions = [[i for i in m.position if isinstance(i, Index)] for m in group.members]
    longest = max(positions, key=len)
    return (*[i for i in space if i not in longest], *longest)
