"""Split long sums of products with few results (split-K), so that every worker has some.

One kernel computes partial sums, and another one adds them, in their order. The rewrite works on elements, and so on
matrix products, convolutions and their gradients alike:

%0[i, j] = sum(x[i, k] * y[k, j] for k in 8192)      ->   %1[p, i, j] = sum(x[i, p * 512 + k] * y[p * 512 + k, j]
                                                                            for k in 512)
                                                          %0[i, j] = sum(%1[p, i, j] for p in 16)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from ..ir.dtype import DType
from ..ir.graph import Reader, TensorType, Value
from ..ir.location import working_for
from ..ir.node import amend
from ..ir.position import flat_position, row_major
from ..ir.scalar import Expr, Index, Position, Read, Reduce, facts, fresh_index, rebuild, size, substitute
from ..runtime.target_model import MatmulModel, TargetModel
from .access_patterns import stride
from .inline import Element
from .matmul_tiles import REGISTER_BITS, Extents, blocks, estimated_cycles
from .nests import nest
from .products import free_indices, operands

MIN_BALANCED_DEPTH = 2048
"""Shortest part of a sum that is split only to balance workers."""
MIN_TILE_SIDE = 64
"""Side of the smallest tile that a worker computes at its full rate."""
SINGLE_TILE = (128, 256)
"""Shorter and longer side of the largest result that one instance computes for a part of a long sum."""
LONE_TILE_SLOWDOWN = 1.4
"""Slowdown of a tile that could share a multiprocessor with another, where there are too few tiles."""
DEPTH_MULTIPLE = 64
"""Elements that the length of a part is a multiple of, where operands are copied asynchronously."""
PARTIAL_SUM_CYCLES, LAUNCH_CYCLES = 0.5, 4000.0
"""Cycles of a worker to write and read a partial sum, and cycles of one more kernel."""


@final
class PartialSums(Value):
    """The partial sums of a value, in memory between two kernels; `axes` are the axes of the value, in the order in
    memory.
    """

    whole: Value
    count: int
    sums: DType
    axes: tuple[int, ...]

    def infer(self) -> TensorType:
        shape = [self.whole.shape[a] for a in self.axes]
        return TensorType(self.sums, (self.count, *shape), self.whole.device)

    def element(self, position: Position, read: Reader) -> Expr:
        raise AssertionError("pieces of sums are made of elements, not the other way round")

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise AssertionError("what is scheduled has been differentiated before")


def split_k(nodes: Mapping[Value, Element], target: TargetModel) -> Mapping[Value, Element]:
    """Split long sums of products with few results."""
    if not target.matmul.split_k_tiles:
        return nodes
    made: dict[Value, Element] = {}
    for value, element in nodes.items():
        if value.cost == "expensive" and not value.opaque:
            made |= _split(value, element, target, nodes)
        else:
            made[value] = element
    return made


def _split(value: Value, element: Element, target: TargetModel, nodes: Mapping[Value, Element]) -> dict[Value, Element]:
    """Return the node of a value, after one for its partial sums if it is split."""
    position, expr = element.position, element.expr
    whole, chosen = {value: element}, _choose_split(position, expr, target)
    if chosen is None:
        return whole
    sums, column, count = chosen
    length, rest = divmod(_count([column]), count)
    assert not rest, "pieces of different lengths are not the whole sum"
    piece, inner = fresh_index(count), fresh_index(length)
    made: Expr = substitute(sums[-1].body, {column: piece * size(length) + inner if length > 1 else piece})
    for e in reversed(sums):
        if e.index is not column or length > 1:
            made = Reduce("add", inner if e.index is column else e.index, made, e.dtype)
    axes = _reading_order(value, nodes)
    with working_for(value.location):
        pieces = PartialSums(value, count, made.dtype, axes)
    there = tuple([position[a] for a in axes])
    amend(pieces, op=f"{value.op}_pieces")
    number = fresh_index(count)
    total = Reduce("add", number, Read(pieces, (number, *there), made.dtype), made.dtype)
    (result,) = rebuild((expr,), lambda e: total if e is sums[0] else None)
    return {pieces: Element((piece, *there), made), value: Element(position, result)}


def _reading_order(value: Value, nodes: Mapping[Value, Element]) -> tuple[int, ...]:
    """Return the axes of a value in the order of its readers, if they agree on one: gradients of weights are transposed
    when they meet the weights, which are larger than the partial sums.
    """
    usual = tuple(range(value.type.rank))
    found = set()
    for element in nodes.values():
        for read in (e for e in facts(element.expr).reads if e.source is value):
            own = {p: n for n, p in enumerate(element.position)}
            known = all(isinstance(p, Index) and p in own for p in read.position)
            at = read.position
            found.add(tuple(sorted(usual, key=lambda a: own[at[a]])) if known else usual)
    return found.pop() if len(found) == 1 else usual


def _is_directly_nested(sums: Sequence[Reduce]) -> bool:
    """Whether there are sums, each of which adds nothing but the next one."""
    return bool(sums) and all(outer.body is inner for outer, inner in itertools.pairwise(sums))


def _tiles_to_fill(m: int, n: int, parts: int, limits: MatmulModel) -> int:
    """Count the tiles of a product that share out among the workers; 1 if a part is long enough for all results."""
    small = min(m, n) <= SINGLE_TILE[0] and max(m, n) <= SINGLE_TILE[1]
    if limits.async_copy_bytes and parts >= limits.max_split_k and small:
        return 1  # operands are read once
    return -(-m // MIN_TILE_SIDE) * -(-n // MIN_TILE_SIDE)


def _choose_split(position: Position, expr: Expr, target: TargetModel) -> tuple[list[Reduce], Index, int] | None:
    """Choose the sum of a product to split, and the number of parts; None: it is not split."""
    sums = nest(expr)
    if not _is_directly_nested(sums):
        return None
    rows = tuple(i for i in position if isinstance(i, Index))
    columns = tuple(e.index for e in sums)
    factors = operands(sums[0], rows, columns)
    if factors is None or not all(type(i.extent) is int for i in (*rows, *columns)):
        return None
    in_x, in_y = map(free_indices, factors)
    x, y, both = (_count(i for i in rows if i in side) for side in (in_x - in_y, in_y - in_x, in_x & in_y))
    limits = target.matmul
    bits = max((e.dtype.bits for factor in factors for e in facts(factor).reads), default=32)
    least = limits.min_split_depth * max(1, REGISTER_BITS // bits) ** 2  # a GPU: 128 for float32, 512 for bfloat16
    length = _count(columns) // max(least, limits.min_split_macs // _count(rows))
    wanted = min(
        limits.split_k_tiles // max(1, both * _tiles_to_fill(x, y, length, limits)), length, limits.max_split_k
    )
    if limits.async_copy_bytes and len(rows) > 2 and all(len(facts(factor).reads) == 1 for factor in factors):
        m = _merged_rows([i for i in rows if i in in_x - in_y], factors[0])
        n = _merged_rows([i for i in rows if i in in_y - in_x], factors[1])
        extents = Extents(m, n, _count(columns), _count(rows) // (m * n), bits, nested=True)
        count = _parts_for_async_copies(extents, columns, least, target)
        best = next(i for i in reversed(columns) if _count([i]) % count == 0)
        return (sums, best, count) if count > 1 else None
    if wanted < 2 and limits.split_k_to_balance:
        wanted = _balanced_parts(Extents(x, y, _count(columns), both, bits), target)
    best = max(columns, key=lambda i: _divisor(_count([i]), wanted))
    count = _divisor(_count([best]), wanted, DEPTH_MULTIPLE if limits.async_copy_bytes else 1)
    return (sums, best, count) if count > 1 else None


def _parts_for_async_copies(whole: Extents, columns: Sequence[Index], least: int, target: TargetModel) -> int:
    """Choose the number of parts where operands are copied asynchronously, so that no worker waits for long.

    One column is split, so the number divides the extent of one of them.
    """
    assert type(whole.k) is int
    extents = [_count([i]) for i in columns]
    even = [
        n
        for n in range(2, target.matmul.max_split_k + 1)
        if any(extent % n == 0 for extent in extents) and whole.k // n >= least and whole.k // n % DEPTH_MULTIPLE == 0
    ]
    return min([1, *even], key=lambda n: _split_cycles(whole, n, target))


def _merged_rows(rows: list[Index], factor: Expr) -> int:
    """Count the rows of a product that have a constant stride in the memory of its operand, and become one axis of
    tiles.
    """
    (read,) = facts(factor).reads
    offset = flat_position(read.position, row_major(read.source.shape))
    most, step, count = 1, 0, 0
    for own, extent in sorted((stride(offset, i) or 0, _count([i])) for i in rows):
        step, count = (step, count * extent) if own == step * count else (own, extent)
        most = max(most, count)
    return most


def _balanced_parts(whole: Extents, target: TargetModel) -> int:
    """Choose the number of parts that balances few large tiles among workers.

    >>> from ..backend.cuda.costs import gpu_model
    >>> sizes = ((768, 3072, 16384), (768, 2304, 16384), (4096, 4096, 16384), (512, 4096, 4096), (768, 3072, 768))
    >>> [_balanced_parts(Extents(*size, 1, 16), gpu_model(132)) for size in sizes]
    [4, 2, 1, 1, 1]
    >>> _balanced_parts(Extents(4096, 4096, 4096, 1, 32), gpu_model(132))
    1
    """
    assert type(whole.m) is int
    assert type(whole.n) is int
    assert type(whole.k) is int
    counts = [n for n in (1, 2, 4, 8) if whole.k % n == 0 and (n == 1 or whole.k // n >= MIN_BALANCED_DEPTH)]
    times = {n: _split_cycles(whole, n, target) for n in counts}
    tile = blocks(whole, target)
    height, width = tile.size("m"), tile.size("n")
    tiles = -(-whole.m // height) * -(-whole.n // width) * whole.others
    if height * width <= target.matmul.max_result_elements and tiles <= target.workers:
        times[1] *= LONE_TILE_SLOWDOWN
    return min(counts, key=times.__getitem__)


def _split_cycles(whole: Extents, count: int, target: TargetModel) -> float:
    """Estimate the cycles of a product with split sums, with the kernel that adds the parts."""
    assert type(whole.m) is int
    assert type(whole.n) is int
    assert type(whole.k) is int
    results = whole.m * whole.n * whole.others
    own = estimated_cycles(whole._replace(k=whole.k // count, others=whole.others * count), target)
    return own + (count > 1) * (count * results * PARTIAL_SUM_CYCLES / target.workers + LAUNCH_CYCLES)


def _count(indices: Iterable[Index]) -> int:
    """Count the values of indices."""
    total = 1
    for index in indices:
        assert type(index.extent) is int
        total *= index.extent
    return total


def _divisor(extent: int, most: int, unit: int = 1) -> int:
    """Return the largest divisor up to a number; a slightly smaller one, if parts are multiples of a unit then.

    >>> _divisor(128, 20), _divisor(100, 30), _divisor(7, 5), _divisor(387072, 128), _divisor(387072, 128, 64)
    (16, 25, 1, 128, 126)
    """
    found = [n for n in range(min(extent, most), 0, -1) if extent % n == 0] or [1]
    return next((n for n in found if n * 4 >= found[0] * 3 and extent % (n * unit) == 0), found[0])
