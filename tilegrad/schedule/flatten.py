"""Flatten positions to offsets in memory, and merge axes that are contiguous together."""

from __future__ import annotations

from ..ir.graph import Value
from ..ir.node import Node, cache_fact
from ..ir.position import flat_position, linear, row_major
from ..ir.scalar import TRUE, Expr, Index, Read, Reduce, Scan, facts, fresh_index, parts, rebuild, remade, size, walk
from .group import Group
from .split_axes import in_phases

MIN_PIECE_ELEMENTS, MAX_PIECE_ELEMENTS = 16, 1024
"""Shortest contiguous piece that is read well, and longest that is little work for many threads, in elements."""
MIN_ROW_ELEMENTS = 512
"""Elements of a row that keep the threads of an instance busy."""


class FlatStore(Node):
    value: Value
    offset: Expr
    expr: Expr


class FlatGroup(Node):
    """A group in which every read and store has one offset instead of a position."""

    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    stores: tuple[FlatStore, ...]
    exists: Expr = TRUE
    """Condition under which a row has a result: others are computed, and not stored."""

    @property
    def roots(self) -> tuple[Expr, ...]:
        stored = tuple(e for s in self.stores for e in (s.offset, s.expr))
        return stored if self.exists is TRUE else (*stored, self.exists)

    @property
    def expressions(self) -> list[Expr]:
        """Every expression below the roots once, operands first."""
        found: list[Expr] | None = self.__dict__.get("_expressions")
        if found is None:
            found = walk(*self.roots)
            cache_fact(self, "_expressions", found)
        return found


def flatten(group: Group, split: bool = True) -> FlatGroup:
    """Replace positions by offsets, and merge axes.

    Neighbouring axes `i, j` become one where every offset contains them as `i * extent(j) + j`. Axes whose positions
    are divided are split if `split`; where neighbouring elements belong to different threads, those should store side
    by side.
    """
    stores = group.stores
    flat = rebuild(tuple(s.expr for s in stores), _offset_of_read)
    made = tuple(
        FlatStore(s.value, flat_position(s.position, row_major(s.value.shape)), e)
        for s, e in zip(stores, flat, strict=True)
    )
    result = FlatGroup(group.rows, group.columns, made)
    for kind in ("rows", "columns"):
        result = _collapsed(result, kind)
    if split:
        return _split_divided(result) if group.kind == "map" else result
    return _merge_short_pieces(result) if group.kind == "rows" else result


def _merge_short_pieces(group: FlatGroup) -> FlatGroup:
    """Reduce short contiguous pieces of rows (a channel of each image) as one row, so that many threads share it."""
    if len(group.columns) != 2:
        return group
    outer, inner = group.columns
    if (
        type(outer.extent) is not int
        or type(inner.extent) is not int
        or not MIN_PIECE_ELEMENTS <= inner.extent <= MAX_PIECE_ELEMENTS
    ):
        return group
    if outer.extent * inner.extent < MIN_ROW_ELEMENTS or not _are_pieces(group, outer, inner, inner.extent):
        return group
    both = fresh_index(outer.extent * inner.extent)
    return replaced_by_one(group, outer, inner, both).replaced(columns=(both,))  # type: ignore[no-any-return]


def _are_pieces(group: FlatGroup, outer: Index, inner: Index, length: int) -> bool:
    """Whether both indices are only reduced, over contiguous pieces along the inner one."""
    data, pair = _data(group), {outer, inner}
    if pair & data or any(pair & facts(s.offset).indices for s in group.stores):
        return False
    if not all(_keeps_pieces(e, group.rows, outer, inner, length) for e in data):
        return False
    return not _are_results_of_rows(group, data, outer, inner)


def _keeps_pieces(e: Expr, rows: tuple[Index, ...], outer: Index, inner: Index, length: int) -> bool:
    """Whether an expression reduces both indices together, or reads contiguous pieces along the inner one."""
    match e:
        case Reduce(fn, index, body) if index is outer:
            return not fn.startswith("arg") and isinstance(body, Reduce) and body.index is inner and body.fn == fn
        case Read(_, (offset,)) if {outer, inner} & facts(offset).indices:
            steps = linear(offset)
            return steps.get((inner,)) == 1 and all(steps.get((i,), 0) >= length for i in (outer, *rows))
    return not isinstance(e, Scan)


def _are_results_of_rows(group: FlatGroup, data: set[Expr], outer: Index, inner: Index) -> bool:
    """Whether a reduction over the inner index is used for each value of the outer one, and not only reduced on."""

    def along(e: Expr) -> bool:
        return isinstance(e, Reduce) and e.index is inner

    users = [e for e in data if not (isinstance(e, Reduce) and e.index is outer)]
    return any(along(s.expr) for s in group.stores) or any(
        along(p) for e in users if not isinstance(e, Read) for p in parts(e)
    )


def _split_divided(group: FlatGroup) -> FlatGroup:
    rows, roots = in_phases(group.rows, group.roots)
    stores = tuple([FlatStore(s.value, roots[2 * n], roots[2 * n + 1]) for n, s in enumerate(group.stores)])
    return FlatGroup(rows, group.columns, stores)


def _offset_of_read(e: Expr) -> Expr | None:
    if not isinstance(e, Read) or len(e.position) == 1:  # of one axis, or done: what is equal now was simplified
        return None
    return Read(e.source, (flat_position(e.position, row_major(e.source.shape)),), e.dtype)


def _collapsed(group: FlatGroup, kind: str) -> FlatGroup:
    indices = list(getattr(group, kind))
    n = len(indices) - 2
    while n >= 0:
        outer, inner = indices[n], indices[n + 1]
        if _run_as_one(group, outer, inner):
            both = fresh_index(outer.extent * inner.extent)
            group = replaced_by_one(group, outer, inner, both)
            indices[n : n + 2] = [both]
            group = group.replaced(**{kind: tuple(indices)})
            n = min(n, len(indices) - 2)
            continue
        n -= 1
    return group


def _run_as_one(group: FlatGroup, outer: Index, inner: Index) -> bool:
    """Whether two indices occur only in offsets, and there as one; reductions run over both or none."""
    data = _data(group)
    if outer in data or inner in data:
        return False
    pair = (outer, inner)
    for e in walk(*(s.expr for s in group.stores)):
        match e:
            case Read(_, (offset,)) if not _as_one(offset, outer, inner):
                return False
            case Reduce(fn, index, body) if index is outer:
                if fn.startswith("arg") or not (isinstance(body, Reduce) and body.index is inner and body.fn == fn):
                    return False
            case Scan(_, index) if index in pair:
                return False
    if _are_results_of_rows(group, data, outer, inner):
        return False
    return all(_as_one(s.offset, outer, inner) for s in group.stores)


def _data(group: FlatGroup) -> set[Expr]:
    """Find what is reached from the stores without going through an offset or the index of a loop."""
    known: set[Expr] = set()
    stack = [s.expr for s in group.stores]
    while stack:
        e = stack.pop()
        if e not in known:
            known.add(e)
            match e:
                case Read():
                    pass
                case Reduce(_, _, body) | Scan(_, _, body):
                    stack.append(body)
                case _:
                    stack.extend(parts(e))
    return known


def _as_one(offset: Expr, outer: Index, inner: Index) -> bool:
    total = linear(offset)
    first: dict[tuple[Expr, ...], int] = {}
    second: dict[tuple[Expr, ...], int] = {}
    for product, c in total.items():
        for factor in product:
            if factor not in (outer, inner) and any(p in (outer, inner) for p in walk(factor)):
                return False
        for index, found in ((outer, first), (inner, second)):
            if index in product:
                rest = list(product)
                rest.remove(index)
                if outer in rest or inner in rest:
                    return False
                found[tuple(rest)] = c
    expected: Expr = _as_sum(second) * size(inner.extent)
    return _as_sum(first) is expected


def _as_sum(terms: dict[tuple[Expr, ...], int]) -> Expr:
    total: Expr = size(0)
    for product, c in terms.items():
        term: Expr = size(c)
        for factor in product:
            term = term * factor
        total = total + term
    return total


def replaced_by_one(group: FlatGroup, outer: Index, inner: Index, both: Index) -> FlatGroup:
    """Replace two indices by one; of two reductions over them one is left."""
    new: dict[Expr, Expr] = {}
    for e in group.expressions:
        match e:
            case Index() if e is outer:
                new[e] = both // size(inner.extent)
            case Index() if e is inner:
                new[e] = both % size(inner.extent)
            case Reduce(_, index) if index is inner:
                new[e] = e  # goes with the one around it
            case Reduce(fn, index, Reduce(_, _, body)) if index is outer:
                new[e] = Reduce(fn, both, new[body], e.dtype)
            case _:
                new[e] = remade(e, new)
    stores = tuple(FlatStore(s.value, new[s.offset], new[s.expr]) for s in group.stores)
    return FlatGroup(group.rows, group.columns, stores, new.get(group.exists, TRUE))
