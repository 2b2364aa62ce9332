"""Fuse reductions along rows with partial sums across them: one kernel takes a block of rows and accumulates.

rows over i in 2048; along k in 512                  rows over b in 64; along r in 32, k in 512
  store y[i, k] = ... sum(x[i, k] for k)       ->      store y[b * 32 + r, k] = ... sum(x[b * 32 + r, k] for k)
rows over b in 64, k in 512; along r in 32             store part[b, k] = sum(y[b * 32 + r, k] for r)
  store part[b, k] = sum(y[b * 32 + r, k] for r)
"""

from __future__ import annotations

from ..ir.scalar import Expr, Index, Reduce, Scan, facts, size, substituted, walk
from ..ir.size import Dim, product
from .group import Group, GroupMember
from .strategies import reduces_row_blocks

MAX_ACCUMULATORS = 8
"""Most accumulators as long as a row that an instance keeps."""


def fuse_partial_sums(along: Group, parts: Group, longest: int) -> Group | str:
    """Merge a group along rows with one of partial column sums, or return why they cannot be merged."""
    if along.kind != "rows" or parts.kind != "rows" or len(parts.columns) != 1 or not parts.rows:
        return "they are of different kinds"
    mapping = _common_indices(along, parts, longest)
    if isinstance(mapping, str):
        return mapping
    if any(isinstance(e, Scan) for m in along.members + parts.members for e in walk(m.expr)):
        return "running results are kept from row to row"
    moved = iter(substituted([e for m in along.members for e in (*m.position, m.expr)], mapping))
    members = tuple(
        [GroupMember(m.value, tuple([next(moved) for _ in m.position]), next(moved)) for m in along.members]
    )
    (r,), (*rows, k) = parts.columns, parts.rows
    reason = _no_shared_read(members, parts.members, k)
    if reason:
        return reason
    made = Group("rows", tuple(rows), (r, k), members + parts.members, along.stored + parts.stored)
    sums = [e for e in walk(*(s.expr for s in made.stores)) if isinstance(e, Reduce) and e.index is r]
    if any(isinstance(e.body, Reduce) for e in sums):
        return "what is summed along rows is summed across them, too"
    if not reduces_row_blocks(made.columns, (s.expr for s in made.stores), longest):
        return "so many rows are no block: a loop over them would take each sum along a row as one of all of them"
    return made if len(sums) <= MAX_ACCUMULATORS else "the kernel would keep too many sums"


def _common_indices(along: Group, parts: Group, longest: int) -> dict[Expr, Expr] | str:
    """Map the indices of the group along rows to those of the other."""
    (r,), (*rows, k) = parts.columns, parts.rows
    if type(k.extent) is not int or k.extent > longest or along.columns[-1].extent != k.extent:
        return "their rows have different lengths"
    image: list[Expr] = list(rows)
    if reduces_row_blocks(along.columns, [m.expr for m in along.members], longest):
        columns: list[Expr] = [r, k]
    elif len(along.columns) == 1:
        columns = [k]
        if len(along.rows) == len(rows) and rows:
            image[-1] = rows[-1] * size(r.extent) + r
        else:
            image.append(r)
    else:
        return "they run along different axes"
    if len(image) != len(along.rows):
        return "they have different rows"
    own = (*along.rows, *along.columns)
    if any(_extent(e) != i.extent for i, e in zip(own, (*image, *columns), strict=True)):
        return "they have different rows"
    return dict(zip(own, (*image, *columns), strict=True))


def _extent(e: Expr) -> Dim:
    """Count the values of an index, or of a row number in a block of rows."""
    return product(index.extent for index in facts(e).indices)


def _no_shared_read(along: tuple[GroupMember, ...], parts: tuple[GroupMember, ...], k: Index) -> str:
    """Return why the groups share no read; empty if both read the same elements along a row."""
    made = {m.value: m.position for m in along}
    here = {(e.source, e.position) for m in along for e in facts(m.expr).reads}
    shared = False
    for e in (e for m in parts for e in facts(m.expr).reads):
        if e.source in made:
            if e.position != made[e.source]:
                return "elements are read elsewhere than where they are made"
        elif (e.source, e.position) not in here:
            continue
        shared |= len(e.position) > 1 and e.position[-1] is k
    return "" if shared else "they read different elements"
