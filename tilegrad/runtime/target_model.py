"""How finely work is cut for a device: what the scheduler asks where a choice depends on the machine.

A `Device` has one (`Device.target`). It says how many instances run at a time, how much each of them takes at once,
and where it pays to make more of them. Two kinds of machines are known here: few strong cores that take long tiles
(`TargetModel()`), and many that take small ones (`gpu_model`); a device gives its own numbers to either.
"""

from __future__ import annotations

from typing import NamedTuple


class MatmulModel(NamedTuple):
    """How large the tiles of matrix products are at most, and what the estimate of their time goes by."""

    rows: int = 256
    columns: int = 256
    depth: int = 256
    """Elements of 32 bits along the sum; where extents are powers of two, narrower ones are more."""
    unit_rows: int = 6
    unit_columns: int = 8
    """What one innermost loop computes at a time, about: odd remainders cost as much."""
    unit_depth: int = 1
    rate: float = 16.0
    """Products that a core adds up in a cycle."""
    load: float = 0.0
    """Cycles that an element of an operand takes beside the products, while they are computed."""
    pack: float = 1.0
    """Cycles that an element of an operand takes besides, before they are."""
    start: float = 2000.0
    """Cycles that an instance takes besides."""
    late: float = 0.0
    """By how many instances a worker is late at the end, about: where cores differ, many small ones are better."""
    area: int = 1 << 16
    """Elements of a result of 32 bits that an instance keeps at most."""
    fill: int = 6
    """Tiles up to which long sums are cut, so that every core has some; 0: they are not."""
    stay: int = 0
    """Rows up to which tiles of more than `area` numbers follow each other on a worker without a pause."""
    least_depth: int = 2048
    """How long the pieces of such a sum of 32-bit numbers are at least; narrower ones are summed faster."""
    least_work: int = 1 << 16
    """How many products are added up for one at least."""
    most_pieces: int = 8
    piece: int = 0
    """Bytes in whose multiples operands lie that are copied while products are computed, without a look at each
    element: convolutions are laid out for it; 0: operands are computed as they are packed."""
    transformed: int = 0
    """Channels from which on convolutions with 3 x 3 or 5 x 5 taps may be products of transformed tiles; 0: they are
    not."""
    parts: int = 3
    """The most bfloat16 numbers that a factor is made of for a matrix unit."""
    integers: bool = True
    """Whether a matrix unit multiplies integers of 8 bits."""


class TargetModel(NamedTuple):
    """How work is cut: `tile` and the like are numbers of elements.

    >>> TargetModel().tile, gpu_model(132).tile, gpu_model(132).workers
    (2048, 1024, 132)
    """

    workers: int = 2
    """Instances that run at a time."""
    instances: int = 1
    """How many instances a launch should have, so that the machine is full and evenly loaded."""
    cache: int = 512 << 10
    """Bytes that the operands of an instance may take to stay close to it."""
    powers: bool = False
    """Whether the extents of tiles are powers of two, and what they are too long by is masked; otherwise they fit."""
    tile: int = 2048
    """A tile of elementwise work."""
    least: int = 2048
    """The smallest tile that is worth an instance, where larger ones would be too few."""
    loop: int = 2048
    """A tile of a row that is gone through in a loop."""
    rows: int = 256
    """Short rows that an instance takes together, where it also stores along them."""
    streams: int = 4
    """Long rows that an instance sums together where nothing is stored along them: it reads several streams of memory
    in less time than one."""
    longest_row: int = 16384
    """A row up to which an instance takes it in one piece."""
    room: int = 1 << 18
    """Elements that a longer row may have in all that is read of it, summed and stored, for it to be taken so too."""
    whole: int = 8192
    """A group of tensors up to which one instance takes them in one piece."""
    beside: int = 512
    """Rows side by side in an instance that reduces across memory, and how many columns it takes in at a time."""
    depth: int = 8
    longest_beside: int = 8192
    """Rows side by side up to which all instances have the same number of them; 0: they have `beside`."""
    short_rows: int = 64
    """Rows so short that an instance that adds up across them takes several at a time."""
    square: int = 32
    """The side of a tile where memory is read across, if there are enough."""
    long: int = 1 << 15
    """Elements of an instance from which on a reduction is cut into parts, if there are few instances."""
    few_results: int = 256
    """Results up to which it is always cut into `parts`; where there are more, so that there are `instances`.

    Along memory that is so for fewer: `few_rows` for each of the workers.
    """
    parts: int = 32
    """The most parts of a reduction."""
    blocks: int = 64
    """Parts of a sum across rows that are wanted where their elements are at hand."""
    few_rows: int = 4
    """Rows from which on there are enough to share."""
    lines: int = 8
    """Lines of memory that a core keeps at hand if they are multiples of 4096 bytes apart; 0: any number."""
    together: int = 1
    """Launches that are measured as one: more where it takes long to start one."""
    products: MatmulModel = MatmulModel()
    unit: MatmulModel | None = None
    """The same for products of bfloat16 numbers in a matrix unit, if there is one that is fed from the caches."""


MATRIX_UNIT = MatmulModel(
    rows=256, columns=256, depth=512, unit_rows=32, unit_columns=16, unit_depth=32, rate=256.0, pack=0.4, late=0.3
)
"""Of AMX. 32 columns of bfloat16 numbers of such a depth stay in the first cache; rows and columns in three parts are
in the second one with the result."""
PAIRS = MatmulModel(
    rows=256,
    columns=256,
    depth=512,
    unit_rows=8,
    unit_columns=8,
    unit_depth=32,
    rate=64.0,
    pack=0.4,
    late=0.3,
    parts=1,
    integers=False,
)
"""Of vectors that add two products of bfloat16 numbers at a time (`vdpbf16ps`)."""
LEAST_FOR_UNIT = (8, 32, 16)
"""The least rows, depth and columns of a product that is worth such a unit."""
LEAST_REUSE = {1: 0.0, 2: 32.0, 3: 64.0}
"""The same of rows * columns / (rows + columns), for factors in so many parts: all of them are made while packing."""


def pays_in_unit(rows: int, depth: int, columns: int, parts: int) -> bool:
    """Whether the unit makes a product sooner than multiply-adds.

    >>> pays_in_unit(256, 256, 256, 3), pays_in_unit(64, 400, 120, 3), pays_in_unit(64, 400, 120, 2)
    (True, False, True)
    """
    enough = all(extent >= least for extent, least in zip((rows, depth, columns), LEAST_FOR_UNIT, strict=True))
    return enough and rows * columns >= LEAST_REUSE[parts] * (rows + columns)


def cpu_model(workers: int, cache: int, first: int = 32 << 10, lanes: int = 8, registers: int = 16) -> TargetModel:
    """Model a CPU: cores that each have a second and a first cache, and registers for so many float32 numbers.

    >>> cpu_model(2, 512 << 10) == TargetModel()
    True
    >>> cpu_model(2, 2 << 20, 48 << 10, 16, 32).products[:5]
    (384, 256, 192, 14, 16)
    """
    side = max(64, int((cache / 8) ** 0.5) // 16 * 16)  # a square left operand of this side is half of the cache
    rows = (registers - 4) // 2
    line = 4 * (rows + 2 * lanes)  # what a block of the result takes in for each k: it stays in the first cache
    limits = MatmulModel(
        rows=min(384, side),
        columns=min(256, side),
        depth=min(256, side, first * 3 // 4 // line // 16 * 16),
        unit_rows=rows,
        unit_columns=lanes,
        rate=2.0 * lanes,
    )
    return TargetModel(workers=workers, cache=cache, room=cache // 2, products=limits)


def gpu_model(workers: int, shared: int = 228 << 10) -> TargetModel:
    """Model a GPU: multiprocessors that each compute matrix products in a unit of their own.

    An instance there is worth a few hundred threads; tiles of products stay in their registers, 128 KiB of them.
    """
    products = MatmulModel(
        rows=256,
        columns=256,
        depth=32,
        unit_rows=16,
        unit_columns=16,
        rate=1024.0,
        load=1 / 16,
        pack=0.0,
        start=2000.0,
        area=1 << 14,
        fill=2 * workers,
        least_depth=128,
        least_work=1,
        most_pieces=128,
        stay=128,
        piece=16,
    )
    return TargetModel(
        workers=workers,
        instances=4 * workers,
        cache=shared,
        powers=True,
        tile=1024,
        least=256,
        loop=4096,
        rows=1024,
        streams=1,
        longest_row=16384,
        room=0,
        whole=4096,
        beside=128,
        longest_beside=0,
        depth=16,
        short_rows=1024,
        square=64,
        lines=0,
        long=1 << 16,
        few_results=0,
        parts=1024,
        blocks=2 * workers,
        few_rows=16,
        together=16,
        products=products,
    )
