"""Calibrated costs of NVIDIA GPUs, from which `Device.target` of a GPU is made.

Calibrated on an H200 (132 multiprocessors, 227 KiB of shared memory for a block) in November 2026:
`bench/results/h200-kernels-2026-11-22.json`, `h200-matmul-2026-11-22.json`, `h200-networks-2026-11-22.json`. Other GPUs
get the same numbers with their own multiprocessors and shared memory.
"""

from __future__ import annotations

from ...runtime.target_model import MatmulModel, TargetModel

BLOCKS_PER_MULTIPROCESSOR = 4
"""Blocks that a launch needs for each multiprocessor, so that all are evenly loaded."""
MAX_FUSED_RECURRENT_UNITS = 128
"""Products of wider layers, which have no loop, take minutes to compile, or more shared memory than there is."""


def gpu_model(multiprocessors: int, shared_memory_bytes: int = 228 << 10) -> TargetModel:
    """Model a GPU by its multiprocessors and the shared memory of a block.

    An instance is a block of a few hundred threads; tiles of products stay in its registers, 128 KiB of them.

    >>> gpu_model(132).workers, gpu_model(132).min_instances, gpu_model(132).tile_elements
    (132, 528, 1024)
    """
    return TargetModel(
        workers=multiprocessors,
        min_instances=BLOCKS_PER_MULTIPROCESSOR * multiprocessors,
        shared_memory_bytes=shared_memory_bytes,
        pow2_tiles=True,
        masks_are_cheap=True,
        recompute_is_cheap=True,
        gathers_are_cheap=True,
        coalesced_access=True,
        separate_transposes=False,
        tiled_gathers=False,
        tensor_core_attention=True,
        parallel_sort=True,
        matmul_before_lookup=False,
        max_fused_recurrent_units=MAX_FUSED_RECURRENT_UNITS,
        scatter_instances=16,
        tile_elements=1024,
        min_tile_elements=256,
        loop_elements=4096,
        short_row_elements=1024,
        row_streams=1,
        max_row_elements=16384,
        max_row_footprint=0,
        single_instance_elements=4096,
        column_tile_width=128,
        column_tile_depth=16,
        max_column_tile_width=0,
        row_block_elements=1024,
        transpose_tile_side=64,
        min_split_elements=1 << 16,
        max_split_results=0,
        max_split_parts=1024,
        column_sum_parts=2 * multiprocessors,
        min_parallel_rows=16,
        cache_associativity=0,
        launches_per_sample=16,
        matmul=_matmul_model(multiprocessors),
    )


def _matmul_model(multiprocessors: int) -> MatmulModel:
    return MatmulModel(
        max_rows=256,
        max_columns=256,
        max_depth=32,
        micro_rows=16,
        micro_columns=16,
        macs_per_cycle=1024.0,
        load_cycles=1 / 16,
        pack_cycles=0.0,
        instance_cycles=2000.0,
        max_result_elements=1 << 14,
        split_k_tiles=2 * multiprocessors,
        split_k_to_balance=True,
        max_persistent_rows=128,
        min_split_depth=128,
        min_split_macs=1,
        max_split_k=128,
        async_copy_bytes=16,
    )
