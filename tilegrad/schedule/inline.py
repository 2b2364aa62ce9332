"""Inline values into their readers, and keep the others as nodes.

Composing `element` rules fuses everything that only moves or transforms elements: an *inlined* value never exists in
memory. The *nodes* remain: outputs, reductions, opaque values, and values that are too expensive to be recomputed for
each of their readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from ..ir.dtype import int64
from ..ir.functions import FUNCTIONS
from ..ir.graph import Graph, Reader, Value
from ..ir.node import Node
from ..ir.position import flat_position, row_major
from ..ir.scalar import Expr, Index, Position, Read, const, facts, substitute
from ..ir.size import Dim, Size, product
from ..ops.broadcasting import Reshape
from ..ops.cast import Cast
from ..ops.contraction import Contract
from ..ops.movement import Permute, Slice
from ..runtime.target_model import TargetModel
from .products import SHORT_TYPES

WEIGHTS = {"free": 0, "cheap": 1, "expensive": 8}
MAX_RECOMPUTED_WEIGHT = 3
"""Largest weight that is recomputed for each reader."""
MAX_RECOMPUTED_READS = 2
"""Most elements of one tensor read for an element that is recomputed for each reader."""
MAX_CHAIN_WEIGHT = 48
"""Weight from which on a chain is a node, so that its readers refer to it instead of containing it."""
MAX_NESTED_CHOICES = 64
"""Deepest nesting of conditional choices in one element (many updates of slices make them); each is under the
conditions of all around it.
"""
MIN_OPERAND_ELEMENTS, MIN_SMALL_OPERAND_ELEMENTS = 1 << 18, 1 << 15
"""Elements from which on an operand of a product is materialised; and where the other operand is long."""
LARGE_OPERAND_ELEMENTS = 1 << 22
"""Elements of an operand that take as long to read as a kernel takes to start."""
TYPICAL_SIZE = 64
"""Assumed value of a dynamic size in comparisons."""


@cache
def weight_of(fn: str) -> int:
    """Return the cost of a scalar function."""
    return WEIGHTS["expensive" if fn in FUNCTIONS and FUNCTIONS[fn].expensive else "cheap"]


class Element(Node):
    """The element of a value at canonical indices: `position` has an index for each axis, 0 where the extent is 1, or
    an expression of several indices.
    """

    position: tuple[Expr, ...]
    expr: Expr


def canonical(shape: tuple[Dim, ...]) -> Position:
    """Make the same indices for the same extents, so that elementwise chains compose without renaming."""
    return tuple(const(0, int64) if extent == 1 else Index(f"i{n}", extent) for n, extent in enumerate(shape))


def elements(graph: Graph, target: TargetModel = TargetModel()) -> dict[Value, Element]:
    """Find the nodes of a graph, each with its element in terms of inputs and other nodes."""
    given = set(graph.inputs)
    consumers = graph.consumers()
    kept = set(graph.outputs) | {x for v in consumers if v.opaque for x in v.inputs}
    if target.matmul.async_copy_bytes:
        kept |= _operands(graph, consumers)
    if not target.recompute_is_cheap:
        kept |= {v for v in consumers if v.store == "where recomputing is expensive"}
    nodes: dict[Value, Element] = {}
    inlined: dict[Value, Element] = {}
    weights: dict[Value, int] = {}
    for value in graph.values():
        if value in given:
            continue
        if value.opaque:
            nodes[value] = Element(canonical(value.shape), const(0, int64))
            continue
        element = _packed(value, inlined) if value.packs_rows else compose(value, inlined)
        if target.gathers_are_cheap:
            from .one_hot_reduce import one_hot_to_gather

            element = Element(element.position, one_hot_to_gather(element.expr))
        known = facts(element.expr)
        weight = WEIGHTS[value.cost] + sum(weights.get(x, 0) for x in value.inputs)
        if (
            value in kept
            or known.loops
            or known.choices > MAX_NESTED_CHOICES
            or _is_kept(value, weight, known.reads, consumers)
        ):
            nodes[value] = element
        else:
            inlined[value] = element
            weights[value] = weight
    return _without_unread(nodes, graph.outputs)


def _operands(graph: Graph, consumers: Mapping[Value, list[Value]]) -> set[Value]:
    """Find the computed operands of large matrix products: asynchronous copies compute nothing on the way, and threads
    would recompute them for each tile.
    """
    read: dict[Value, int] = {}  # with the elements of the largest operand that it meets
    found: set[Value] = set()
    widened = _widened(consumers)
    for value in reversed(list(graph.values())):
        met = [_partner_elements(r, read, widened) for r in consumers.get(value, ())]
        if not any(met):
            continue
        read[value] = max(met)
        reordered = isinstance(value, Reshape) and isinstance(value.x, Permute | Slice)
        moves = (value.moves and not reordered) or value in widened
        least = MIN_SMALL_OPERAND_ELEMENTS if read[value] >= LARGE_OPERAND_ELEMENTS else MIN_OPERAND_ELEMENTS
        if not moves and estimated_size(value.type.count) >= least:
            found.add(value)
    return found


def _partner_elements(reader: Value, read: Mapping[Value, int], widened: set[Value]) -> int:
    """Return the elements of the largest operand of the products that a reader feeds, directly or through movement."""
    if isinstance(reader, Contract):
        return max(estimated_size(x.type.count) for x in reader.inputs)
    return read.get(reader, 0) if reader.moves or reader in widened else 0


def _widened(values: Iterable[Value]) -> set[Value]:
    """Find the casts of operands from one short type, which matrix units do themselves."""
    found: set[Value] = set()
    others: set[Value] = set()
    for value in values:
        if isinstance(value, Contract):
            x, y = map(_without_movement, value.inputs)
            short = isinstance(x, Cast) and isinstance(y, Cast) and x.x.dtype is y.x.dtype
            (found if short and x.x.dtype in SHORT_TYPES.get(x.dtype, ()) else others).update((x, y))  # type: ignore[attr-defined]
    return found - others


def _without_movement(value: Value) -> Value:
    """Strip movement from a value."""
    while value.moves:
        value = value.inputs[0]
    return value


def _without_unread(nodes: dict[Value, Element], outputs: tuple[Value, ...]) -> dict[Value, Element]:
    """Drop the nodes that nothing reads, now that positions are known (axes of one element have position 0)."""
    wanted = set(outputs)
    for value, element in reversed(nodes.items()):
        if value in wanted:
            wanted.update(value.inputs if value.opaque else [e.source for e in facts(element.expr).reads])
    return {value: element for value, element in nodes.items() if value in wanted}


def _is_kept(value: Value, weight: int, reads: Sequence[Read], consumers: Mapping[Value, list[Value]]) -> bool:
    """Whether elements are better computed once than for each reader."""
    readers = consumers[value]
    if value.store == "always":
        return True
    if isinstance(value, Permute) and any(reader.reads_in_order for reader in readers):
        return True
    size = estimated_size(product(value.shape))
    large = [r.source for r in reads if estimated_size(product(r.source.shape)) * 4 > size]
    if len(readers) > 1 and (
        weight > MAX_RECOMPUTED_WEIGHT or len(set(large)) > 1 or len(large) > MAX_RECOMPUTED_READS
    ):
        return True
    repeats = max((_repeats(value, reader) for reader in readers), default=1)
    return (repeats > 1 and weight > MAX_RECOMPUTED_WEIGHT) or weight > MAX_CHAIN_WEIGHT


def _repeats(value: Value, reader: Value) -> float:
    """Estimate how often a reader reads each element."""
    work = estimated_size(product(reader.shape))
    if reader.contracts:
        return 2  # each element meets a whole row or column of the other operand
    return work / max(1, estimated_size(product(value.shape)))


def estimated_size(size: Dim) -> int:
    """Estimate a size as a number."""
    return size.value(dict.fromkeys(size.names(), TYPICAL_SIZE)) if isinstance(size, Size) else size


def compose(value: Value, inlined: Mapping[Value, Element]) -> Element:
    """Compose the element of a value with those of inlined values."""
    position = canonical(value.shape)
    return Element(position, value.element(position, _reader(inlined)))


def _packed(value: Value, inlined: Mapping[Value, Element]) -> Element:
    """Return the element of a value that is only stored in one row, at the indices of its operand, which say more than
    a flat position.
    """
    (x,) = value.inputs
    position = canonical(x.shape)
    at = flat_position(position[1:], row_major(x.shape[1:]))
    return Element((position[0], at), _reader(inlined)(x, position))


def _reader(inlined: Mapping[Value, Element]) -> Reader:
    known: dict[tuple[Value, Position], Expr] = {}

    def read(x: Value, at: Position) -> Expr:
        if 0 in x.shape:
            return const(0, x.dtype)  # never asked for: it has no elements
        exact = tuple(const(0, int64) if extent == 1 else p for p, extent in zip(at, x.shape, strict=True))
        element = inlined.get(x)
        if element is None:
            return Read(x, exact, x.dtype)
        if exact == element.position:
            return element.expr
        key = (x, exact)
        if key not in known:
            moved = {i: p for i, p in zip(element.position, exact, strict=True) if isinstance(i, Index)}
            known[key] = substitute(element.expr, moved)  # type: ignore[arg-type]
        return known[key]

    return read
