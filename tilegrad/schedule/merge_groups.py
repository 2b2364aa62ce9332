"""Merge two groups into one: map the indices that coincide, and say why groups do not fit."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.dtype import int64
from ..ir.graph import Value
from ..ir.scalar import Apply, Const, Expr, Index, Read, facts, substitute, walk
from ..ir.size import product
from .access_patterns import stride
from .group import Group, Kind, Mapping, merged, scanned_bytes, taken_over
from .inline import MAX_RECOMPUTED_WEIGHT, estimated_size, weight_of
from .products import free_indices, shared_operand_mapping

MIN_ROW_ELEMENTS = 128
"""Row length that leaves threads of an instance idle, in elements."""
MAX_SERIAL_ELEMENTS = 1 << 15
"""Elements up to which a kernel need not be parallel."""


def alignment(a: Group, b: Group) -> Mapping | str:
    """Map each index of the producer to that of the consumer that coincides with it, or return why there is none."""
    if "opaque" in (a.kind, b.kind):
        return "one of them has a kernel of its own"
    if b.kind == "contraction":
        both = a.kind == "contraction"
        return shared_operand_mapping(a, b) if both else "a matrix product reads its operands many times"
    return _read_alignment(a, b)


def _read_alignment(a: Group, b: Group) -> Mapping | str:
    """Map each index of the producer to that at which the consumer reads its elements."""
    positions = {m.value: m.position for m in a.members}
    mapping: Mapping = {}
    for read in _reads_of(b, positions):
        for own, at in zip(positions[read.source], read.position, strict=True):
            if isinstance(own, Const):
                continue
            if not isinstance(at, Index) or not isinstance(own, Index):
                return "elements are read elsewhere than where they are made"
            if mapping.setdefault(own, at) is not at or own.extent != at.extent:
                return "elements are read at two places"
    if len(set(mapping.values())) < len(mapping):
        return "a diagonal is read"
    return mapping


def _reads_of(group: Group, values: Iterable[Value]) -> list[Read]:
    wanted = set(values)
    return [e for m in group.members for e in facts(m.expr).reads if e.source in wanted]


def sibling_mapping(a: Group, b: Group, place: dict[Value, int]) -> Mapping | str:
    """Map the indices of one group to those of another that reads the same memory over the same extents."""
    if a.kind == b.kind == "contraction":
        return shared_operand_mapping(a, b)
    if a.kind not in ("map", "rows") or a.kind != b.kind:
        return "they are of different kinds"
    if [i.extent for i in a.rows] != [i.extent for i in b.rows]:
        return "they have different rows"
    if [i.extent for i in a.columns] != [i.extent for i in b.columns]:
        return "they have different columns"
    mapping = dict(zip(a.rows + a.columns, b.rows + b.columns, strict=True))
    here = {(place.get(e.source, e.source), e.position) for m in b.members for e in facts(m.expr).reads}
    for m in a.members:
        for e in facts(m.expr).reads:
            if free_indices(e):
                moved = substitute(e, mapping)  # type: ignore[arg-type]
                if isinstance(moved, Read) and (place.get(e.source, e.source), moved.position) in here:
                    return mapping
    return "they read different elements"


def merge(a: Group, b: Group, mapping: Mapping, needed: set[Value], few: int) -> Group | str:
    """Merge two groups, or return why they cannot be merged."""
    if a.kind == b.kind == "contraction":
        return merged(a, b, mapping, "contraction", b.rows, b.columns)
    if a.kind == "contraction":
        if b.kind != "map" or {mapping.get(i) for i in a.rows} != set(b.rows) or len(a.rows) != len(b.rows):
            return "only elementwise work on the same elements follows a matrix product"
        return merged(a, b, mapping, "contraction", b.rows, taken_over(a, b, mapping))
    if a.kind == "map":
        return _merge_map(a, b, mapping, needed, few)
    return _merge_rows(a, b, mapping, few)


def _merge_rows(a: Group, b: Group, mapping: Mapping, few: int) -> Group | str:
    """Merge a group along rows into one that reads it."""
    image = [mapping.get(i) for i in a.rows]
    if None in image:
        return "a row that is read is not that of the reader"
    columns = b.columns
    if b.kind == "map":
        inside = {mapping[i] for i in a.columns if i in mapping}
        left = tuple(i for i in b.rows if i not in image)
        if inside not in (set(), set(left)):
            return "the columns of one are rows of the other"
        columns = left
    rows = tuple(i for i in b.rows if i not in columns)
    if set(image) != set(rows):
        return "they run along different axes"
    if not columns:
        columns = taken_over(a, b, mapping)
    if [i.extent for i in a.columns] != [i.extent for i in columns]:
        return "their rows have different lengths"
    for own, other in zip(a.columns, columns, strict=True):
        if mapping.setdefault(own, other) is not other:
            return "their columns are in a different order"
    if b.kind == "map" and left and _too_few(rows, columns, few):
        return "together they would have too few rows to share among threads"
    return merged(a, b, mapping, "rows", rows, columns)


def _stored_map_refusal(a: Group, b: Group, mapping: Mapping, few: int) -> str:
    """Return why elementwise work whose results are stored does not merge into the group that reads it."""
    image = set(mapping.values())
    if image != set(b.rows + b.columns) and not (b.columns and image == set(b.rows)):
        return "it would be computed, and stored, once for each of its readers"
    if b.kind == "map" and tuple(mapping[i] for i in a.rows) != b.rows:
        return "they run through their elements in different orders"
    if b.columns and _too_few(b.rows, b.columns, few):
        return "together they would have too few rows to share among threads"
    return ""


def _merge_map(a: Group, b: Group, mapping: Mapping, needed: set[Value], few: int) -> Group | str:
    """Merge elementwise work into the group that reads it."""
    space = set(b.rows + b.columns)
    image = set(mapping.values())
    if set(mapping) != set(a.rows):
        return "an axis of one does not exist in the other"
    if any(m.value in needed for m in a.members):
        refused = _stored_map_refusal(a, b, mapping, few)
        if refused:
            return refused
    elif image != space and (b.rows + b.columns)[-1] in image:
        if _weight(m.expr for m in a.members) > MAX_RECOMPUTED_WEIGHT:
            return "it would be computed again for every row"
    kind: Kind = "rows" if b.columns else b.kind
    return merged(a, b, mapping, kind, b.rows, b.columns)


def stores_in_short_rows(a: Group, b: Group) -> bool:
    """Whether elementwise work would run in a loop over rows that are shorter than a tile of its own."""
    if a.kind != "map" or len(b.columns) < 2:
        return False
    return (
        estimated_size(product([b.columns[-1].extent])) < MIN_ROW_ELEMENTS
        and estimated_size(product(i.extent for i in a.rows)) > MAX_SERIAL_ELEMENTS
    )


def stores_transposed(a: Group, b: Group) -> bool:
    """Whether elementwise work writes a large tensor transposed to the order in which a reduction reads it: in a kernel
    of its own it is cut into square tiles.
    """
    if a.kind != "map" or not b.columns or estimated_size(product(i.extent for i in a.rows)) <= MAX_SERIAL_ELEMENTS:
        return False
    reads = [e.position[-1] for m in a.members for e in facts(m.expr).reads if e.position]
    along = {i for at in reads for i in a.rows if stride(at, i) == 1}
    return any(along and m.position and m.position[-1] not in along for m in a.members)


def scanned_row_bytes(group: Group) -> int:
    """Return the size of the rows that the scans of a group produce."""
    columns = estimated_size(product(i.extent for i in group.columns))
    return columns * sum(scanned_bytes(walk(m.expr)) for m in group.members if facts(m.expr).loops)


def _weight(exprs: Iterable[Expr]) -> int:
    """Weigh the functions of elements, without positions."""
    done = [e for e in walk(*exprs) if isinstance(e, Apply) and e.dtype is not int64]
    return sum(weight_of(e.fn) for e in done)


def _too_few(rows: tuple[Index, ...], columns: tuple[Index, ...], few: int) -> bool:
    count = estimated_size(product(i.extent for i in rows))
    return count < few and count * estimated_size(product(i.extent for i in columns)) > MAX_SERIAL_ELEMENTS
