"""Calibrated costs of CPUs, from which `Device.target` of a CPU is made.

Calibrated on two cores of an AMD EPYC (vectors of 256 and of 512 bits) and, for the matrix unit, of an Intel Xeon with
AMX, in November 2026: `bench/results/cpu-2026-11-22.json`, `cpu-avx512-2026-11-22.json`, `cpu-amx-2026-11-22.json`.
"""

from __future__ import annotations

from ...runtime.target_model import MatmulModel, TargetModel
from .target import Target

WINOGRAD_MIN_CHANNELS = 48
SCATTER_INSTANCES_PER_WORKER = 4
"""Wide instances read rows to their end; more of them would share lines of memory."""
MAX_TILE_ROWS, MAX_TILE_COLUMNS, MIN_TILE_SIDE = 384, 256, 64
"""Extents of the tiles of a matrix product."""
OPERAND_CACHE_SHARE = 1 / 8
"""Elements of a square left operand, of the bytes of the second cache: half of the cache."""
BLOCK_CACHE_SHARE = 3 / 4
"""Of the first cache, for what a micro-kernel reads for all k of a tile."""
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
