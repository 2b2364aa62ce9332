"""Group the statements of a block before they are lowered: those of a group share one loop nest.

Groups are formed one after another, while those before them are lowered: whether a tile is inlined is decided by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ....ir import tile as ir
from ....ir.tile_access import count_assignments, expressions, names_in, roots, walk
from ..prepacked import PackingKernel
from ..summed_products import computes
from .dataflow import Dataflow
from .fused_statements import FusedStatements, find_fused, may_have_epilogue

if TYPE_CHECKING:
    from .lower import KernelLowering

MAX_FUSION_STATEMENTS = 50
"""Statements of a block up to which fusion is tried: each statement is compared with those before it."""


class Single(NamedTuple):
    """A statement of its own."""

    statement: ir.Statement


class Stores(NamedTuple):
    """Consecutive stores of one shape that do not access each other's memory."""

    stores: list[ir.Store]


class FusedGroup(NamedTuple):
    """Fused statements, or a product with its epilogue; `body` begins with the statements that it covers."""

    product: ir.Assign | None
    fused: FusedStatements
    body: Sequence[ir.Statement]


class PrepackedSum(NamedTuple):
    """The rest of a block, which begins with a sum of products of prepacked operands."""

    body: Sequence[ir.Statement]


Group: TypeAlias = Single | Stores | FusedGroup | PrepackedSum


def groups(low: KernelLowering, body: Sequence[ir.Statement]) -> Iterator[Group]:
    """Group the statements of a block; tiles of zeros that only begin a sum are left out."""
    rest: Sequence[ir.Statement] = body
    while rest:
        body, rest = rest, ()
        end = first_candidate = 0
        short = len(body) <= MAX_FUSION_STATEMENTS and not isinstance(low.kernel, PackingKernel)
        for stores, statement in _with_grouped_stores(low.flow, body):
            start, end = end, end + max(1, len(stores))
            low.forget_memory()
            if low.prepacked and computes(statement, low.prepacked[0]):
                yield PrepackedSum(body[start:])
                return
            if _starts_product(low, statement, body[end:]):
                continue
            found = _fusion(low, body[start:]) if short and start >= first_candidate else 0
            if isinstance(found, FusedGroup):
                yield found
                rest = body[start + found.fused.length + (found.product is not None) :]
                break
            first_candidate = max(first_candidate, start + found)
            yield Stores(stores) if stores else Single(statement)
    low.forget_memory()


def _fusion(low: KernelLowering, body: Sequence[ir.Statement]) -> FusedGroup | int:
    """Find the fusion that a block begins with, or how many more statements cannot begin one."""
    product = body[0] if isinstance(body[0], ir.Assign) and may_have_epilogue(low, body[0]) else None
    rest = body if product is None else body[1:]
    found = find_fused(low, rest, product)
    if isinstance(found, int):
        return found if product is None else 0
    return FusedGroup(product, found, rest)


def _with_grouped_stores(flow: Dataflow, body: Sequence[ir.Statement]) -> Iterator[tuple[list[ir.Store], ir.Statement]]:
    """Give each statement that is no store, and groups of stores with their first one."""
    group: list[ir.Store] = []
    stored: set[str] = set()
    loaded: set[str] = set()
    for statement in body:
        if not isinstance(statement, ir.Store):
            if group:
                yield group, group[0]
            group = []
            yield [], statement
            continue
        writes = flow.pointers(statement.pointer)
        reads = set[str]().union(*(flow.pointers(x.pointer) for x in walk(*roots(statement)) if isinstance(x, ir.Load)))
        alike = bool(group) and _loop_shape(flow, group[0]) == _loop_shape(flow, statement)
        if not alike or (writes | reads) & stored or writes & loaded:
            if group:
                yield group, group[0]
            group, stored, loaded = [], set(), set()
        group.append(statement)
        stored |= writes
        loaded |= reads
    if group:
        yield group, group[0]


def _loop_shape(flow: Dataflow, store: ir.Store) -> tuple[tuple[int, ...], int]:
    """Shape of a store and bytes per element, as they determine the vectors of its loop."""
    t = flow.types.of(store.pointer)
    return t.shape, max(4, t.dtype.bytes)


def _starts_product(low: KernelLowering, statement: ir.Statement, following: Sequence[ir.Statement]) -> bool:
    """Whether a tile of zeros is only the accumulator of a product, which then starts without it."""
    match statement:
        case ir.Assign(name, ir.Full((_, _), ir.Literal(value))) if str(value) in ("0", "0.0"):
            pass
        case _:
            return False
    after = next((s for s in following if name in names_in(*expressions(s)) or name in count_assignments((s,))), None)
    if after is not None and low.prepacked and computes(after, low.prepacked[0]):
        return True
    match after:
        case ir.Assign(other, ir.Dot(x, y, ir.Name(added)) as product) if other == added == name:
            if name not in names_in(x, y):
                low.starting.add(id(product))
                return True
    return False
