"""Lower matrix products: a template into which operands and an epilogue are fused.

An instance computes a tile of the result, (m, n), in a loop over k:

    acc = tl.dot(x tile (m, k), y tile (k, n), acc)

Operands may be any elementwise expression, evaluated as the operand is packed; any elementwise epilogue may follow
before the result is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ir import tile
from ..ir.dtype import DType, bfloat16, float32, int32
from ..ir.graph import Value
from ..ir.precision import BFLOAT16_PARTS, Precision
from ..ir.scalar import TRUE, Apply, Expr, Index, Read, Reduce
from ..ir.size import product
from ..ir.tile import Assign, For, Literal, Name, Statement, Tile
from ..runtime.choice import Choice
from ..runtime.target_model import TargetModel
from .access_patterns import stride
from .emit import Emitter
from .flatten import FlatGroup
from .group import Group
from .instances import Lowered, declare_programs, extent_of, finished, kernel_names, number_of
from .matmul_tiles import Extents, blocks
from .products import SHORT_TYPES, free_indices, operands, precision_of, strided_operands

MAX_EPILOGUE_TILE_BYTES = 8 << 20
"""Bytes that the epilogue of a tile may read and write on a CPU: a good part of them is on the stack meanwhile."""


class Accumulation(NamedTuple):
    accumulator: Name
    factors: tuple[Expr, Expr]
    precision: Precision


class Sides(NamedTuple):
    """The axes of a matrix product: rows, columns, and the reduced axis; with its sums and their factors."""

    m: Index
    n: Index
    k: Index
    sums: list[Reduce]
    factors: list[tuple[Expr, Expr]]
    extents: Extents


def sides(flat: FlatGroup, target: TargetModel) -> Sides:
    """Find the axes and factors of a contraction."""
    sums = [e for e in flat.expressions if isinstance(e, Reduce) and e.index is flat.columns[0]]
    factors = [found for e in sums if (found := operands(e, flat.rows, flat.columns))]
    assert len(factors) == len(sums)
    in_x, in_y = map(free_indices, factors[0])
    m = [i for i in flat.rows if i in in_x and i not in in_y][-1]
    n = [i for i in flat.rows if i in in_y and i not in in_x][-1]
    k = flat.columns[-1]
    others = number_of(product(i.extent for i in flat.rows if i not in (m, n)))
    pair = _narrow(*factors[0], target)
    dtypes = [e.dtype for e in pair]
    bits = max(dtype.bits for dtype in dtypes)
    precision = precision_of(sums[0])
    parts, products = _unit_parts(dtypes, precision)
    narrow = bits == 8 and (precision != "highest" or dtypes[0].is_integer)
    across = strided_operands(factors[0], k) if (bits == 32 and precision == "high") or narrow else None
    outer_iterations = number_of(product(i.extent for i in flat.columns[:-1]))
    gaps, computed = flat.exists is not TRUE, not isinstance(pair[1], Read)
    known = Extents(m.extent, n.extent, k.extent, others, bits, len(sums), parts, products, across, outer_iterations)
    epilogue_bytes = _epilogue_bytes(flat, m, n, k)
    if target.shared_memory_bytes:
        room = _max_tile_elements(flat, m, n, k, target)
    else:
        room = MAX_EPILOGUE_TILE_BYTES // epilogue_bytes if epilogue_bytes else 0
    extents = known._replace(gaps=gaps, computed=computed, epilogue_bytes=epilogue_bytes, room=room)
    return Sides(m, n, k, sums, factors, extents)


def _epilogue_bytes(flat: FlatGroup, m: Index, n: Index, k: Index) -> int:
    """Count the bytes that the epilogue reads and writes for each result; 0 if it reads nothing."""
    reads = {e for e in flat.expressions if isinstance(e, Read) and {m, n} <= free_indices(e) - {k}}
    own = sum(e.dtype.bytes for e in reads if k not in free_indices(e))
    return own + sum(s.value.dtype.bytes for s in flat.stores) if own else 0


def _max_tile_elements(flat: FlatGroup, m: Index, n: Index, k: Index, target: TargetModel) -> int:
    """Return the most elements of a tile where the epilogue reads a transposed operand; 0: any number.

    The transposed tile and the results are in shared memory at the same time.
    """
    reads = {
        e for e in flat.expressions if isinstance(e, Read) and {m, n} <= free_indices(e) and k not in free_indices(e)
    }
    transposed_bytes = sum(e.dtype.bytes for e in reads if stride(e.position[0], m) == 1)
    return target.shared_memory_bytes // (transposed_bytes + float32.bytes) if transposed_bytes else 0


def _unit_parts(dtypes: list[DType], precision: Precision) -> tuple[int, int]:
    """Return the bfloat16 parts of a factor in a matrix unit, and the products of parts that are summed; (0, 0):
    multiply-adds compute it.
    """
    if dtypes in ([bfloat16, bfloat16], *([dtype, dtype] for dtype in SHORT_TYPES[int32])):
        return 1, 1
    return BFLOAT16_PARTS[precision] if dtypes == [float32, float32] else (0, 0)


def lower_contraction(
    group: Group, flat: FlatGroup, names: Mapping[Value, str], target: TargetModel, choice: Choice | None
) -> Lowered:
    m, n, k, sums, factors, extents = sides(flat, target)
    choice = choice or blocks(extents, target)
    block = {m: choice.size("m"), n: choice.size("n"), k: choice.size("k")}
    rows = tuple(i for i in flat.rows if i not in (m, n)) + (m, n)
    emitter = Emitter((m, k, n), block, kernel_names(flat, names), flat.roots)
    grid = declare_programs(emitter, rows, {m: block[m], n: block[n]}, overlapping=not target.masks_are_cheap)
    accumulators = _accumulate(emitter, flat, factors, (m, k, n), sums, target)
    emitter.accumulated |= {e: (name, (m, n)) for e, name in zip(sums, accumulators, strict=True)}
    emitter.store(flat.stores, flat.exists)
    depth = number_of(product(i.extent for i in flat.columns))
    work = 2.0 * block[m] * block[n] * depth * len(sums)
    return finished(group, flat, emitter, emitter.names, grid, work)


def _accumulate(
    emitter: Emitter,
    flat: FlatGroup,
    factors: list[tuple[Expr, Expr]],
    axes: tuple[Index, Index, Index],
    sums: list[Reduce],
    target: TargetModel,
) -> list[Name]:
    """Write the loop over k (and over further columns around it), and return the accumulators."""
    m, k, n = axes
    shape = (emitter.block[m], emitter.block[n])
    names = [emitter.assign("acc", tile.Full(shape, _zero(e), e.dtype)) for e in sums]
    extents = {column: extent_of(emitter, column.extent) for column in flat.columns}
    before, known, masks = emitter.body, dict(emitter.known), dict(emitter.masks)
    outer = [(column, emitter.fresh("k")) for column in flat.columns[:-1]]
    emitter.variables |= outer
    single = not outer and k.extent == emitter.block[k]
    narrow = [_narrow(*pair, target) for pair in factors]
    products = [Accumulation(*found) for found in zip(names, narrow, map(precision_of, sums), strict=True)]
    body = _along(emitter, products, axes, target.masks_are_cheap)
    for column, variable in reversed(outer):
        body = [For(variable, Literal(0), extents[column], Literal(1), tuple(body))]
    emitter.body = before + body
    if not single:
        emitter.known, emitter.masks = known, masks
    return names


def _along(
    emitter: Emitter, products: list[Accumulation], axes: tuple[Index, Index, Index], overhanging: bool
) -> list[Statement]:
    """Write a loop over tiles of k, and its tail; a dynamic k is masked instead, and any k where masks are cheap."""
    m, k, n = axes
    step = emitter.block[k]
    known, masks = dict(emitter.known), dict(emitter.masks)

    def iteration(start: Tile | None, width: int) -> list[Statement]:
        emitter.body, emitter.block[k] = [], width
        emitter.known, emitter.masks = dict(known), dict(masks)
        lanes: Tile = tile.Arange(0, width)
        emitter.variables[k] = emitter.assign("ks", lanes if start is None else tile.Apply("add", (start, lanes))).name
        for name, pair, precision in products:
            x, y = (_operand(emitter, e, at) for e, at in zip(pair, ((m, k), (k, n)), strict=True))
            emitter.body.append(Assign(name.name, tile.Dot(x, y, name, precision)))
        return emitter.body

    if k.extent == step:
        return iteration(None, step)
    variable = emitter.fresh("k")
    if type(k.extent) is not int or (overhanging and k.extent % step):
        emitter.bound[k] = k.extent
        inner = iteration(Name(variable), step)
        del emitter.bound[k]
        return [For(variable, Literal(0), extent_of(emitter, k.extent), Literal(step), tuple(inner))]
    whole = k.extent // step * step
    inner = iteration(Name(variable), step)
    loop = For(variable, Literal(0), Literal(whole), Literal(step), tuple(inner))
    return [loop, *iteration(Literal(whole), k.extent - whole)] if whole < k.extent else [loop]


def _narrow(x: Expr, y: Expr, target: TargetModel) -> tuple[Expr, Expr]:
    """Return the factors before both are widened from a short type: the dot widens them itself.

    They may be computed where a matrix unit is fed by packing; elsewhere they must be read.
    """
    match x, y:
        case Apply("cast", (a,), to), Apply("cast", (b,), _):
            read = isinstance(a, Read) and isinstance(b, Read)
            if (
                a.dtype is b.dtype
                and a.dtype in SHORT_TYPES.get(to, ())
                and (read or _unit_multiplies(target, a.dtype))
            ):
                return a, b
    return x, y


def _unit_multiplies(target: TargetModel, dtype: DType) -> bool:
    """Whether a matrix unit that is fed by packing multiplies a type."""
    return target.matrix_unit is not None and (
        dtype is bfloat16 or (target.matrix_unit.multiplies_int8 and dtype in SHORT_TYPES[int32])
    )


def _zero(e: Expr) -> Literal:
    return Literal(0.0 if e.dtype.is_float else 0)


def _operand(emitter: Emitter, e: Expr, axes: tuple[Index, Index]) -> Tile:
    """Emit a factor as a tile over two axes, 0 where it overhangs k."""
    value, have = emitter.padded(e, _zero(e).value) if isinstance(e, Read) else emitter.emit(e)
    k = axes[0] if axes[1] in emitter.axes[2:] else axes[1]
    if k in emitter.bound and not isinstance(e, Read):
        value, have = emitter.inside("add", k, e, value, have)
    if have == axes:
        return value
    lifted = emitter.lift(value, have, axes)
    return tile.BroadcastTo(lifted, tuple(emitter.block[a] for a in axes))
