"""Calibrated costs of CPUs: the numbers of `Device.target`, and the thresholds of code generation and scheduling.

Calibrated on two cores of an AMD EPYC (vectors of 256 and of 512 bits) and, for the matrix unit, of an Intel Xeon with
AMX, in November 2026: `bench/results/cpu-2026-11-22.json`, `cpu-avx512-2026-11-22.json`, `cpu-amx-2026-11-22.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.target_model import MatmulModel, TargetModel

if TYPE_CHECKING:
    from .target import Target

WINOGRAD_MIN_CHANNELS = 48
SCATTER_INSTANCES_PER_WORKER = 4
"""Wide instances read rows to their end; more of them would share lines of memory."""
MAX_TILE_ROWS, MAX_TILE_COLUMNS, MIN_TILE_SIDE = 384, 256, 64
"""Extents of the tiles of a matrix product."""
OPERAND_CACHE_SHARE = 1 / 8
"""Elements of a square left operand, of the bytes of the second cache: half of the cache."""
BLOCK_CACHE_SHARE = 3 / 4
"""Share of the L1 cache for what a micro-kernel reads over all k of a tile."""
RESERVED_REGISTERS = 4
"""Vector registers for operands; the others hold sums, two columns of vectors for each row."""
FMA_PER_CYCLE = 2.0

MATRIX_UNIT = MatmulModel(
    max_rows=256,
    max_columns=256,
    max_depth=512,
    micro_rows=32,
    micro_columns=16,
    micro_depth=32,
    macs_per_cycle=256.0,
    pack_cycles=0.4,
    tail_instances=0.3,
)
"""AMX. 32 columns of bfloat16 numbers of such a depth stay in the first cache; rows and columns in three parts are in
the second one with the result."""
BF16_VECTORS = MatmulModel(
    max_rows=256,
    max_columns=256,
    max_depth=512,
    micro_rows=8,
    micro_columns=8,
    micro_depth=32,
    macs_per_cycle=64.0,
    pack_cycles=0.4,
    tail_instances=0.3,
    max_bf16_parts=1,
    multiplies_int8=False,
)
"""Vectors that add two products of bfloat16 numbers at a time (`vdpbf16ps`)."""


def cpu_model(
    workers: int, l2_bytes: int, l1_bytes: int = 32 << 10, lanes: int = 8, registers: int = 16
) -> TargetModel:
    """Model a CPU by its cores, its caches and its vector registers of so many float32 lanes.

    >>> cpu_model(2, 512 << 10) == TargetModel()
    True
    >>> cpu_model(2, 2 << 20, 48 << 10, 16, 32).matmul[:5]
    (384, 256, 192, 14, 16)
    """
    side = max(MIN_TILE_SIDE, int((l2_bytes * OPERAND_CACHE_SHARE) ** 0.5) // 16 * 16)
    rows = (registers - RESERVED_REGISTERS) // 2
    bytes_for_each_k = 4 * (rows + 2 * lanes)
    depth = int(l1_bytes * BLOCK_CACHE_SHARE) // bytes_for_each_k // 16 * 16
    return TargetModel(
        workers=workers,
        scatter_instances=SCATTER_INSTANCES_PER_WORKER * workers,
        max_row_footprint=l2_bytes // 2,
        matmul=MatmulModel(
            max_rows=min(MAX_TILE_ROWS, side),
            max_columns=min(MAX_TILE_COLUMNS, side),
            max_depth=min(MAX_TILE_COLUMNS, side, depth),
            micro_rows=rows,
            micro_columns=lanes,
            macs_per_cycle=FMA_PER_CYCLE * lanes,
        ),
    )


def processor_model(machine: Target, workers: int) -> TargetModel:
    """Model the processor that code is generated for."""
    model = cpu_model(workers, machine.l2_bytes, machine.l1_bytes, machine.lanes(4), machine.registers)
    unit = MATRIX_UNIT if machine.matrix_unit else BF16_VECTORS if machine.pairs else None
    return model._replace(matmul=model.matmul._replace(winograd_min_channels=WINOGRAD_MIN_CHANNELS), matrix_unit=unit)


# Code generation: register blocking of matrix products.

BLOCK_OVERHEAD_ROWS = 0.15
"""Overhead of a block, in rows of a block."""
MAX_ADDRESS_ROWS = 10
"""Rows read directly from memory at a time: each needs an address register."""
UNPACKED_VECTORS, UNPACKED_VECTORS_ANY_ROWS = 8, 2
"""Widths of the result, in vectors, up to which a left operand is read unpacked: with more rows than `MAX_ADDRESS_ROWS`
if the block rows divide the result, so that one address register serves all rows; with any number of rows if it is
contiguous along k.
"""
NEGLIGIBLE_TAIL_VECTORS = 16
"""Row width in vectors from which on one wasted vector is negligible."""
ALIASING_STRIDE_BYTES, PADDING_BYTES = 1024, 128
"""Stride in bytes at which rows alias in the L1 cache, and the padding that avoids it."""
UNROLLED_STEPS = 2
"""Unrolled iterations of the innermost loop."""
MIN_PACKED_VECTORS = 4
"""Width of the result, in vectors, from which on packing a left operand contiguous along k pays."""
MIN_ALIASING_SHAPE = (128, 32, 192)
"""Rows, depth and columns from which on that pays for blocks of few rows whose rows alias in a cache: they are read
again for every block of columns.
"""
MIN_PREFETCH_DEPTH, PREFETCH_BYTES = 128, 64
"""Smallest depth at which the next block of the result is prefetched, and bytes per prefetch."""
MAX_ROW_EPILOGUE_DEPTH = 128
"""Largest depth at which epilogues run row by row: such products are bound by the memory that the epilogue reads.
(`LINES_DEPTH` in the scheduler, which chooses tiles, is smaller.)
"""
MIN_EPILOGUE_PREFETCH_DEPTH = 32
"""Smallest depth at which operands of an epilogue are prefetched."""
PANEL_PREFETCH_ROWS, MIN_PANEL_PREFETCH_STRIDE_BYTES = 8, 2048
"""Prefetch distance in rows, and the stride in bytes from which on rows are prefetched."""
PANEL_DEPTH_AT_ONCE = 8
"""Depth packed for all panels before the next: their cache lines stay in the L1 cache."""
MIN_TILE_LINES = 64
"""Smallest tile that is prefetched, in cache lines."""

# Code generation: low-precision products.

AMX_MAX_UNROLLED_LINES = 4
"""Lines of a block processed per step up to which they are unrolled."""
AMX_MAX_PREFETCHED_LINES = 16
"""Upper bound of cache lines prefetched per step."""
AMX_PREFETCH_ROWS = 3
"""Prefetch distance in rows."""
AMX_PREFETCH_WORDS = 8
"""Prefetch distance in words where rows are interleaved."""
AMX_WORDS_PER_PASS = 16
"""Words along k that are packed for all columns before the next ones: whole tiles."""
BF16_BLOCK_ROWS = {1: 16, 2: 8, 3: 8}
"""Rows of a block by its width in vectors: divisors of a tile's rows, with enough sums to hide the latency."""
BF16_UNROLLED_WORDS = 4
"""Unrolled words of the innermost loop."""

# Code generation: elementwise code, loads and reductions.

EXPENSIVE_COST = 10
"""Cost of an expensive function, in others."""
MAX_INLINED_COST = 6
"""Cost of an expression up to which it is evaluated twice rather than stored."""
MAX_UNROLLED_EXPRESSIONS = 12
"""Number of expressions up to which an epilogue is unrolled over the vectors of a block."""
MIN_PART_LANES = 4
"""Lanes of the shortest part of a vector that is loaded separately."""
MAX_STRIDE, MIN_STRIDED_BYTES = 4, 4
"""Largest stride that is loaded whole and shuffled, and the smallest element size, in bytes, for which that pays."""
MAX_UNROLLED_ROWS = 16
"""Rows up to which a reduction is unrolled."""
ACCUMULATOR_COUNT = 4
"""Independent accumulators of a reduction along memory, which hide the latency of additions."""
MAX_ROWS_AT_ONCE, MIN_LONG_ROW = 4, 1024
"""Rows reduced at a time, and the row length from which on: several streams use more memory bandwidth than one."""
MIN_BORDER_STATEMENTS = 2
"""Statements of the second branch from which on a function pays."""

# Prepacked operands.

MIN_READERS = 2
"""Instances that read an operand from which on it is prepacked for the matrix unit."""
MIN_PANEL_READERS = 4
"""Instances that read an operand from which on it is prepacked for multiply-adds."""
MAX_PANEL_BYTES = 16 << 20
"""Largest prepacked panels, in bytes."""
MAX_GROWTH, MIN_GROWTH_BYTES = 4, 1 << 20
"""Prepacked operands may take this multiple of the memory that they are read from, or this many bytes."""
PACKING_OPERATIONS = 2.0
"""Cost of packing an element, in operations per bfloat16 part."""

# Partition of programs among threads.

MIN_SPLIT_NS = 6_000.0
"""Nanoseconds below which a launch is not split: handing work over and waiting for it takes about 500."""
CHUNK_NS = 30_000.0
"""Nanoseconds that a chunk should take."""
MAX_CHUNKS_PER_THREAD = 32
"""Upper bound of the chunks per thread."""
OPERATIONS_PER_NS = 4.0
"""Assumed operations per nanosecond, until the program has been measured."""
COPY_BYTES_PER_NS = 8.0
"""Assumed bytes copied per nanosecond."""
EXTERNAL_CALL_OPERATIONS = 80_000.0
"""Assumed operations of an external call."""
RELEASE_LOCK_NS = 50_000.0
"""Estimated nanoseconds from which on a program runs without the interpreter's lock."""
ASSUMED_INSTANCE_NS = 2_000.0
"""Assumed nanoseconds of an instance, until it has been measured."""
STAMP_NS, BARRIER_NS = 250.0, 2_500.0
"""Nanoseconds that a profile adds to a run: for each time stamp, and for each barrier between launches that a run
without time stamps merges into one segment."""
