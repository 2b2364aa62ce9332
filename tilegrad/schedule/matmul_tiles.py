"""Choose the tiles of a matrix product, by estimating the time of the worker that finishes last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..ir.size import Dim
from ..runtime.choice import Choice, chosen, power
from ..runtime.target_model import MatmulModel, TargetModel
from .instances import number_of

MIN_COLUMNS_OF_SUMS = 128
"""Fewest columns of a tile in a kernel with several sums."""
MAX_TILE_DEPTH = 1 << 12
"""Deepest tile that a choice may ask for."""
MAX_TRIED_SIDE = 512
"""Longest side of a tile that the tuner tries where tiles fit extents."""
WARP_GROUP_ROWS = 64
"""Rows that a warp group (four warps of a GPU) multiplies: rows of the tile or, if it has more of those, its columns.
"""
MIN_FULL_HEIGHT_DEPTH = 1024
"""Shortest sum for which a tile spans all rows: its results are stored more slowly."""
MIN_ODD_TILE_ROWS = 128
"""Fewest rows of a tile whose width is no power of two."""
REGISTER_BITS = 32
"""Bits of a register; limits of tiles count elements of this width."""
MIN_POW2_SIDE = 16
"""Smallest side of a tile whose sides are powers of two."""
COMPUTED_OPERAND_ROWS = 384
"""Rows of a tile in a matrix unit whose right operand is computed (windows of a convolution)."""
MIN_PREFETCHED_SIDE, WAIT_CYCLES_PER_BIT = 64, 1.0
"""Smallest side of a tile whose operands are prefetched; and the cycles that a k costs without, for each bit."""


MIN_STREAM_BYTES_PER_RESULT = 8
"""Fewest bytes of an epilogue for each result that may bind a product: a number read and a number written."""
OPERAND_READ_MACS = 8
"""Multiply-adds that take as long as reading an element of an operand from shared memory."""
STREAM_TILE, MAX_STREAM_DEPTH = (64, 128), 256
"""Tile of a product that is bound by the memory traffic of its epilogue, and the longest sums for which it is: the
update of weights after a small batch.
"""
CPU_STREAM_ROWS, MAX_CPU_STREAM_COLUMNS, MAX_CPU_STREAM_DEPTH, MIN_CPU_STREAM_BYTES = 32, 4096, 64, 32 << 20
"""The same on a CPU: rows and most columns of a tile, longest sum, and fewest bytes of the epilogue."""


class Extents(NamedTuple):
    """The extents of a matrix product, m x k by k x n, the bits of its elements, and the number of independent
    products; a kernel computes several `sums`.

    `parts` counts the numbers into which a matrix unit splits a factor (bfloat16, or integers of 8 bits), and
    `products` the products of parts that are summed.
    """

    m: Dim
    n: Dim
    k: Dim
    others: int = 1
    bits: int = 32
    sums: int = 1
    parts: int = 0
    products: int = 0
    across: tuple[bool, bool] | None = None
    """Whether each operand is strided along the reduced axis, for types that matrix units only take contiguous."""
    outer_iterations: int = 1
    """Iterations of the loops around k."""
    nested: bool = False
    """Whether loops around k are nested, as in convolutions."""
    epilogue_bytes: int = 0
    """Bytes that the epilogue reads and writes for each result."""
    computed: bool = False
    """Whether the right operand is computed as it is packed, by each instance that needs it."""
    gaps: bool = False
    """Whether some rows of a tile are not stored, so that the next tile cannot be prefetched meanwhile."""
    room: int = 0
    """Most elements of a tile; 0: any number."""


class Sized(NamedTuple):
    """Extents as numbers."""

    m: int
    n: int
    k: int
    others: int = 1
    bits: int = 32
    sums: int = 1
    parts: int = 0
    products: int = 0
    wait: float = 0.0
    """Fewest cycles for each k, in tiles that are not prefetched."""
    gaps: bool = False


def matmul_limits(extents: Extents | Sized, target: TargetModel) -> MatmulModel:
    """Return the limits and costs of tiles: those of the matrix unit if it computes the product faster."""
    unit = target.matrix_unit
    if (
        unit is None
        or not extents.products
        or extents.parts > unit.max_bf16_parts
        or (extents.bits == 8 and not unit.multiplies_int8)
    ):
        return target.matmul
    m, k, n = number_of(extents.m), number_of(extents.k), number_of(extents.n)
    if not unit.pays(m, k, n, extents.parts):
        return target.matmul
    narrow = 2 if extents.bits == 8 else 1
    depth, rate = narrow * unit.max_depth, narrow * unit.macs_per_cycle / extents.products
    columns = max(MIN_COLUMNS_OF_SUMS, unit.max_columns // extents.sums)
    return unit._replace(
        max_columns=columns,
        max_depth=depth,
        macs_per_cycle=rate,
        pack_cycles=unit.pack_cycles * extents.parts / narrow,
        micro_depth=narrow * unit.micro_depth,
    )


def _limits_for_packing(extents: Extents, target: TargetModel) -> MatmulModel:
    """Return the limits of tiles; an operand that is expensive to pack is packed once if tiles have all rows.

    >>> from ..backend.cpu.costs import MATRIX_UNIT
    >>> windows = Extents(384, 144, 3456, 16, parts=3, products=6)
    >>> target = TargetModel(matrix_unit=MATRIX_UNIT)
    >>> print(*[blocks(windows._replace(computed=c), target) for c in (False, True)], sep="; ")
    m=192 n=144 k=384; m=384 n=144 k=384
    """
    limits = matmul_limits(extents, target)
    return (
        limits._replace(max_rows=max(limits.max_rows, COMPUTED_OPERAND_ROWS))
        if extents.computed and limits is not target.matmul
        else limits
    )


def blocks(extents: Extents, target: TargetModel) -> Choice:
    """Choose rows, columns and depth of the tiles of a product.

    >>> from ..backend.cuda.costs import gpu_model
    >>> print(blocks(Extents(1024, 1024, 1024), TargetModel()), blocks(Extents(128, 784, 512), TargetModel()), sep="; ")
    m=256 n=256 k=256; m=128 n=208 k=256
    >>> print(blocks(Extents(4096, 4096, 4096, 1, 16), gpu_model(132)))
    m=128 n=256 k=64
    >>> print(blocks(Extents(4096, 6400, 16, epilogue_bytes=8), TargetModel()))
    m=32 n=3200 k=16
    >>> print(blocks(Extents(1024, 1024, 1024, epilogue_bytes=400, room=20000), TargetModel()))
    m=150 n=128 k=256
    """
    m, n, k, _others, *_ = extents
    limits = _limits_for_packing(extents, target)
    if target.pow2_tiles and not extents.room and _is_gpu_stream(extents):
        return chosen(m=STREAM_TILE[0], n=STREAM_TILE[1], k=_pow2_depth(extents, limits))
    if target.pow2_tiles:
        known = _sized(extents, target)
        sized = [(_cycles(known, target, *c), -c[0] * c[1], -c[1], c) for c in _pow2_tiles(extents, limits)]
        height, width = min(sized)[-1]
        return chosen(m=height, n=width, k=_pow2_depth(extents, limits))
    depth = _depth(k, limits.max_depth, limits.micro_depth) if type(k) is int else limits.max_depth // 2
    if type(m) is not int or type(n) is not int:
        return chosen(m=_at_most(m, limits.max_rows // 2), n=_at_most(n, limits.max_columns // 4), k=depth)
    known = Sized(m, n, number_of(k), *extents[3:8])
    if _is_cpu_stream(extents):
        return chosen(
            m=min(m, CPU_STREAM_ROWS),
            n=_length(n, -(-n // MAX_CPU_STREAM_COLUMNS), 2 * limits.micro_columns, MAX_CPU_STREAM_COLUMNS),
            k=depth,
        )
    pairs = _equal_pieces(m, n, limits, extents.sums if limits is target.matmul else 1)
    if extents.room:
        pairs = [(h, w) for h, w in pairs if h * w <= extents.room] or pairs[:1]
    height, width = min(pairs, key=lambda c: (_cycles(known, target, *c), -c[0] * c[1]))
    return chosen(m=_trimmed_height(height, m, limits), n=width, k=depth)


def _trimmed_height(height: int, m: int, limits: MatmulModel) -> int:
    """Trim the height of tiles to avoid overlap, if a smaller micro-kernel then wastes fewer rows.

    >>> from ..backend.cpu.costs import cpu_model
    >>> wide = cpu_model(2, 1 << 20, lanes=16, registers=32).matmul
    >>> _trimmed_height(266, 512, wide), _trimmed_height(350, 2048, wide), _trimmed_height(258, 512, MatmulModel())
    (256, 350, 258)
    """
    even = -(-m // -(-m // height))
    units = range(limits.micro_rows, limits.micro_rows * 7 // 8, -1)
    least = min(-(-even // unit) * unit for unit in units)
    return even if limits.micro_depth == 1 and least < height else height


def _is_cpu_stream(extents: Extents) -> bool:
    """Whether the epilogue is bound by memory traffic that no cache holds: long rows are faster then, and touch fewer
    pages.
    """
    m, n, k, *_ = extents
    if type(m) is not int or type(n) is not int or type(k) is not int or extents.others > 1 or extents.sums > 1:
        return False
    return (
        extents.epilogue_bytes >= MIN_STREAM_BYTES_PER_RESULT
        and k * extents.outer_iterations <= MAX_CPU_STREAM_DEPTH
        and m >= CPU_STREAM_ROWS
        and m * n * extents.epilogue_bytes >= MIN_CPU_STREAM_BYTES
        and (not extents.room or CPU_STREAM_ROWS * min(n, MAX_CPU_STREAM_COLUMNS) <= extents.room)
    )


def _is_gpu_stream(extents: Extents) -> bool:
    """Whether the epilogue is bound by memory traffic: of small tiles several share a worker, so that some read while
    others write.
    """
    m, n, k, *_ = extents
    if type(m) is not int or type(n) is not int or type(k) is not int or m % STREAM_TILE[0] or n % STREAM_TILE[1]:
        return False
    bound = extents.epilogue_bytes >= MIN_STREAM_BYTES_PER_RESULT and k * extents.outer_iterations <= MAX_STREAM_DEPTH
    return bound and extents.bits <= REGISTER_BITS and extents.sums == 1


def estimated_cycles(extents: Extents, target: TargetModel) -> float:
    """Estimate the cycles of a product."""
    known = _sized(extents, target)
    return min(_cycles(known, target, *c) for c in _pow2_tiles(extents, target.matmul))


def _sized(extents: Extents, target: TargetModel) -> Sized:
    m, k, n = number_of(extents.m), number_of(extents.k), number_of(extents.n)
    few = (
        m * n * extents.others <= target.workers * MIN_PREFETCHED_SIDE * MIN_PREFETCHED_SIDE
    )  # there is nothing else to do meanwhile
    wait = WAIT_CYCLES_PER_BIT * extents.bits if few and (extents.nested or extents.outer_iterations > 1) else 0.0
    return Sized(m, n, k * extents.outer_iterations, *extents[3:8], wait, extents.gaps)


def candidates(extents: Extents, target: TargetModel, most: int = 16) -> list[Choice]:
    """Return the choices that the tuner tries: the default first, then in the order of the estimate."""
    m, n, k, *_ = extents
    usual = blocks(extents, target)
    if type(m) is not int or type(n) is not int or type(k) is not int:
        return [usual]
    limits = _limits_for_packing(extents, target)
    wide = limits._replace(
        max_rows=min(MAX_TRIED_SIDE, 2 * limits.max_rows), max_columns=min(MAX_TRIED_SIDE, 2 * limits.max_columns)
    )
    pairs = _pow2_tiles(extents, limits) if target.pow2_tiles else _equal_pieces(m, n, wide, extents.sums)
    known = Sized(m, n, k, *extents[3:8])
    pairs = sorted(pairs, key=lambda c: _cycles(known, target, *c))[:most]
    found = [chosen(m=h, n=w, k=usual.size("k")) for h, w in pairs]
    for depth in _depths(k, usual.size("k"), target):
        found += [chosen(m=c.size("m"), n=c.size("n"), k=depth) for c in [usual, *found[:2]]]
    return list(dict.fromkeys([usual, *found]))


def refusal(extents: Extents, choice: Choice, target: TargetModel) -> str:
    """Return why a choice is invalid for a product; empty if it is valid."""
    if choice.strategy or sorted(choice.names) != ["k", "m", "n"]:
        return "a product has the sizes m=... n=... k=..."
    wrong = _pow2_refusal(extents, choice, target) if target.pow2_tiles else _extent_refusal(extents, choice)
    if wrong:
        return wrong
    most = 4 * target.matmul.max_result_elements
    if choice.size("m") * choice.size("n") > most or choice.size("k") > MAX_TILE_DEPTH:
        return f"m times n is at most {most}, and k {MAX_TILE_DEPTH}"
    return ""


def _depths(k: int, usual: int, target: TargetModel) -> list[int]:
    if target.pow2_tiles:
        return [d for d in (usual // 2, usual * 2) if MIN_POW2_SIDE <= d <= power(k)]
    return [d for d in (min(k, usual * 2), -(-usual // 8) * 4) if 4 <= d <= k and d != usual]


def _equal_pieces(m: int, n: int, limits: MatmulModel, sums: int) -> list[tuple[int, int]]:
    """Yield tiles of equal size; several sums share the memory of one result."""
    wide = 2 * limits.micro_columns
    found = [
        (h, w)
        for h in _equal_lengths(m, limits.max_rows, limits.micro_rows)
        for w in _equal_lengths(n, limits.max_columns, wide)
    ]
    return [(h, w) for h, w in found if h * w * sums <= limits.max_rows * limits.max_columns] or found[:1]


def _pow2_refusal(extents: Extents, choice: Choice, target: TargetModel) -> str:
    if all(size == power(size) and size >= MIN_POW2_SIDE for _, size in choice.sizes):
        return ""
    if (choice.size("m"), choice.size("n")) in _pow2_tiles(extents, matmul_limits(extents, target)):
        return ""
    return f"sizes are powers of two here, and at least {MIN_POW2_SIDE}"


def _extent_refusal(extents: Extents, choice: Choice) -> str:
    for name, extent in zip("mnk", extents, strict=False):
        if type(extent) is int and choice.size(name) > extent:
            return f"{name} is at most {extent}"
    return ""


def _pow2_tiles(extents: Extents, limits: MatmulModel) -> list[tuple[int, int]]:
    """Yield tiles whose sides are powers of two, no larger than the product, whose results fit an instance.

    Those of 16-bit elements may also span all rows or all columns, or have a width that divides the columns: 96 tiles
    of 192 balance better than 72 of 256.
    """
    sides = [1 << n for n in range(4, 13)]
    rows, columns = _max_pow2_sides(extents, limits)
    heights = [h for h in sides if h <= min(rows, _pow2_cover(extents.m))]
    widths = [w for w in sides if w <= min(columns, _pow2_cover(extents.n))]
    pairs = [(h, w) for h in heights for w in widths]
    pairs += [(h, w) for w in _odd_widths(extents, columns) for h in heights if h >= MIN_ODD_TILE_ROWS]
    if _has_full_height_tiles(extents, rows) and extents.m not in heights:
        pairs += [(number_of(extents.m), w) for w in widths if w in (WARP_GROUP_ROWS, 2 * WARP_GROUP_ROWS)]
    if extents.room:  # a line is a number longer there
        pairs = [(h, w) for h, w in pairs if (h + 1) * (w + 1) <= extents.room]
    area = _max_pow2_elements(extents, limits)
    return [(h, w) for h, w in pairs if h * w <= area] or [(MIN_POW2_SIDE, MIN_POW2_SIDE)]


def _max_pow2_elements(extents: Extents, limits: MatmulModel) -> int:
    """Return the largest tile, in results: the wider the elements on their road to the unit, the smaller."""
    if extents.bits == 8:
        bits = 16 if extents.across == (False, False) else 32
    elif extents.across is None:
        bits = extents.bits
    else:
        bits = 64 if all(extents.across) else 16
    scaled = limits.max_result_elements * REGISTER_BITS // bits
    return min(2 * limits.max_result_elements, scaled) // extents.sums


def _max_pow2_sides(extents: Extents, limits: MatmulModel) -> tuple[int, int]:
    """Return the most rows and columns of a tile: half along a transposed operand, which passes through registers."""
    rows, columns = limits.max_rows, limits.max_columns
    if extents.bits == 8 or extents.across is None or not any(extents.across):
        return rows, columns
    return (rows // 2, columns) if extents.across[0] else (rows, columns // 2)


def _odd_widths(extents: Extents, columns: int) -> list[int]:
    """Return widths that are no powers of two: all columns, or a divisor of them."""
    n = extents.n
    if type(n) is not int:
        return []
    if n <= columns:
        return [n] if n % MIN_POW2_SIDE == 0 and n > MIN_POW2_SIDE * 4 else []
    return [w for w in (columns * 3 // 4, columns - MIN_POW2_SIDE) if extents.bits == 16 and n % w == 0]


def _has_full_height_tiles(extents: Extents, rows: int) -> bool:
    """Whether tiles may span all rows: of whole warp groups in a deep product."""
    if type(extents.m) is not int or extents.m % MIN_POW2_SIDE or not WARP_GROUP_ROWS < extents.m < rows:
        return False
    grouped = extents.bits == 16 or extents.across == (False, False)
    return grouped and number_of(extents.k) * extents.outer_iterations >= MIN_FULL_HEIGHT_DEPTH


def _pow2_cover(extent: Dim) -> int:
    return max(MIN_POW2_SIDE, power(number_of(extent)))


def _pow2_depth(extents: Extents, limits: MatmulModel) -> int:
    return max(MIN_POW2_SIDE, min(limits.max_depth * REGISTER_BITS // extents.bits, _pow2_cover(extents.k)))


def _at_most(extent: Dim, most: int) -> int:
    return min(extent, most) if type(extent) is int else most


def _depth(k: int, most: int, unit: int = 1) -> int:
    """Choose the depth of tiles without a tail, if it is not much shorter: a tail duplicates the loop body.

    >>> [_depth(k, 256) for k in (150, 676, 1024, 3456, 1021)]
    [150, 169, 256, 216, 256]
    >>> [_depth(k, 192, 32) for k in (150, 676, 1024, 3456, 1021)]
    [150, 192, 128, 192, 192]
    """
    fewest = -(-k // most)
    pieces = next((n for n in range(fewest, fewest * 3 // 2 + 1) if k % (n * unit) == 0), None)
    return k // pieces if pieces else _length(k, fewest, max(4, unit), most)


def _equal_lengths(extent: int, most: int, unit: int) -> Iterator[int]:
    """Yield lengths of equal pieces that cover an axis."""
    fewest = -(-extent // most)
    return iter(sorted({_length(extent, pieces, unit, most) for pieces in range(fewest, 4 * fewest + 4)}))


def _length(extent: int, pieces: int, unit: int, most: int) -> int:
    """Return the length of a number of pieces: a multiple of a unit, if it fits."""
    if pieces == 1:
        return extent
    rounded = min(extent, -(-extent // (pieces * unit)) * unit)
    return rounded if rounded <= most else -(-extent // pieces)


def _cycles(extents: Sized, target: TargetModel, height: int, width: int) -> float:
    """Estimate the cycles of the worker that has most to do."""
    m, n, k, others, *_ = extents
    limits = matmul_limits(extents, target)
    most = -(-others * -(-m // height) * -(-n // width) // target.workers)
    rows = -(-height // limits.micro_rows) * limits.micro_rows
    columns = -(-width // limits.micro_columns) * limits.micro_columns
    if limits.load_cycles:  # operands come while products are computed; the smaller a tile, the less of it is products
        rate = limits.macs_per_cycle * REGISTER_BITS / extents.bits
        products = max(
            (rows * columns + OPERAND_READ_MACS * (rows + columns)) / rate,
            (width + height) * limits.load_cycles * extents.bits / REGISTER_BITS,
        )
        products = max(products, extents.wait) if min(height, width) < MIN_PREFETCHED_SIDE else products
    else:
        products = rows * columns / limits.macs_per_cycle
        products *= 1.03 if width > limits.max_columns / 2 else 1.0
    around = height * width / 4 + limits.instance_cycles
    if (
        limits.load_cycles
        and height * width > limits.max_result_elements
        and height <= limits.max_persistent_rows
        and not extents.gaps
    ):
        around *= 0.45  # operands of the next one come meanwhile
    elif (
        limits.load_cycles and height * width <= limits.max_result_elements
    ):  # two share a worker: while one stores, the other multiplies
        around *= 0.8
    return (most + limits.tail_instances) * (k * (products + (width + height) * limits.pack_cycles) + around)
