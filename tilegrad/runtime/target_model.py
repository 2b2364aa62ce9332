"""Describe a device to the scheduler: what it can do, what operations cost, and how large tiles should be.

`Device.target` is a `TargetModel`. Passes and the scheduler ask it for capabilities and numbers and never for the name
of a device. The calibrated numbers of each backend, with machine and date, are in its `costs.py`; the defaults here
describe a CPU of two cores.
"""

from __future__ import annotations

from typing import NamedTuple


class MatmulModel(NamedTuple):
    """The largest tiles of a matrix product, and the costs from which its time is estimated."""

    max_rows: int = 256
    max_columns: int = 256
    max_depth: int = 256
    """Largest extents of a tile; `max_depth` in elements of 32 bits (narrower ones are more in `pow2_tiles`)."""
    micro_rows: int = 6
    micro_columns: int = 8
    micro_depth: int = 1
    """Extents of the micro-kernel: a partial block at the border of a tile costs as much as a full one."""
    macs_per_cycle: float = 16.0
    """Multiply-adds of one worker in a cycle, in float32."""
    load_cycles: float = 0.0
    """Cycles to bring in one element of an operand while products are computed; 0: operands are packed before."""
    pack_cycles: float = 1.0
    """Cycles to pack one element of an operand before products are computed."""
    instance_cycles: float = 2000.0
    """Cycles to start an instance."""
    tail_instances: float = 0.0
    """Instances by which workers of unequal speed finish apart: greater numbers favour small tiles."""
    max_result_elements: int = 1 << 16
    """Elements of 32 bits of a result that fit the registers or the cache of a worker."""
    split_k_tiles: int = 6
    """Tiles of a result below which long sums are split (split-K), so that every worker has some; 0: never."""
    split_k_to_balance: bool = False
    """Whether sums are also split where whole tiles would leave some workers idle in the last round."""
    max_persistent_rows: int = 0
    """Rows up to which tiles of more than `max_result_elements` follow each other on a worker without a pause."""
    min_split_depth: int = 2048
    """Shortest part of a split sum of 32-bit elements; narrower ones are summed faster."""
    min_split_macs: int = 1 << 16
    """Fewest multiply-adds in a part of a split sum, over all results."""
    max_split_k: int = 8
    """Most parts of a split sum."""
    async_copy_bytes: int = 0
    """Alignment in bytes of asynchronous copies of operands into the memory of an instance; 0: there are none, and
    operands may be computed as they are packed."""
    winograd_min_channels: int = 0
    """Channels from which on convolutions with 3 x 3 or 5 x 5 taps use Winograd's transforms; 0: never."""
    max_bf16_parts: int = 3
    """Most bfloat16 numbers into which a matrix unit splits a float32 factor."""
    multiplies_int8: bool = True
    """Whether a matrix unit multiplies integers of 8 bits."""
    min_extents: tuple[int, int, int] = (8, 32, 16)
    """Fewest rows, depth and columns of a product that a matrix unit computes faster than multiply-adds."""
    min_reuse: tuple[float, float, float] = (0.0, 32.0, 64.0)
    """The same for rows * columns / (rows + columns), by the number of bfloat16 parts, all of which packing makes."""

    def pays(self, rows: int, depth: int, columns: int, parts: int) -> bool:
        """Whether a matrix unit computes a product faster than multiply-adds.

        >>> unit = MatmulModel()
        >>> unit.pays(256, 256, 256, 3), unit.pays(64, 400, 120, 3), unit.pays(64, 400, 120, 2)
        (True, False, True)
        """
        enough = all(n >= least for n, least in zip((rows, depth, columns), self.min_extents, strict=True))
        return enough and rows * columns >= self.min_reuse[parts - 1] * (rows + columns)


class TargetModel(NamedTuple):
    """Capabilities, costs and tile sizes of a device. Sizes are numbers of elements unless the name has another unit.

    >>> TargetModel().workers, TargetModel().tile_elements
    (2, 2048)
    """

    workers: int = 2
    """Instances that run at a time: cores, or multiprocessors."""
    min_instances: int = 1
    """Instances that a launch needs to fill the machine evenly."""
    shared_memory_bytes: int = 0
    """Memory that the threads of an instance share, through which tiles are transposed; 0: caches do that."""
    pow2_tiles: bool = False
    """Whether extents of tiles are powers of two, and what overhangs an axis is masked; otherwise they fit the axis."""
    masks_are_cheap: bool = False
    """Whether tiles at a border are masked; otherwise they overlap their neighbour, and loops are split so that masks
    stay out of them."""
    recompute_is_cheap: bool = False
    """Whether elements are computed again rather than stored and read, beyond what every device does."""
    gathers_are_cheap: bool = False
    """Whether reading one element at a computed position beats the sum of a masked row that is in a cache."""
    coalesced_access: bool = False
    """Whether neighbouring threads must access neighbouring addresses: axes are merged where possible, and short rows
    summed as one."""
    separate_transposes: bool = True
    """Whether elementwise work that transposes a large tensor gets a kernel of its own, cut into square tiles."""
    tiled_gathers: bool = True
    """Whether reads through an index tensor that cross memory are cut into square tiles, as transposes are."""
    tensor_core_attention: bool = False
    """Whether attention on 16-bit numbers keeps scores in registers between two products."""
    parallel_sort: bool = False
    """Whether sorts, scans and scatters are split among instances; otherwise one instance sorts a row."""
    matmul_before_lookup: bool = True
    """Whether `table[i] @ w` becomes `(table @ w)[i]`: it saves multiply-adds, and moves elements for it."""
    max_fused_recurrent_units: int = 0
    """Units of a recurrent layer up to which one kernel computes all steps; 0: any number."""
    scatter_instances: int = 8
    """Instances that a scatter is cut into, if columns are enough."""
    tile_elements: int = 2048
    """A tile of elementwise work."""
    min_tile_elements: int = 2048
    """The smallest such tile that is worth an instance, where there are fewer than `min_instances`."""
    loop_elements: int = 2048
    """A tile of a row that is reduced in a loop."""
    short_row_elements: int = 256
    """A tile of several short rows, where results are stored along them."""
    row_streams: int = 4
    """Long rows that an instance sums together, to read several streams of memory at a time."""
    max_row_elements: int = 16384
    """Longest row that an instance reduces as one tile."""
    max_row_footprint: int = 1 << 18
    """Elements read, reduced and stored for a longer row that an instance may still take as one tile."""
    max_scanned_bytes: int = 1 << 20
    """Size of the longer rows that an instance may scan: it keeps each twice in tiles, on the stack of a CPU."""
    single_instance_elements: int = 8192
    """Largest group of tensors that a single instance computes as one tile."""
    column_tile_width: int = 512
    """Columns of a tile of a reduction across memory."""
    column_tile_depth: int = 8
    """Rows of such a tile."""
    max_column_tile_width: int = 8192
    """Columns up to which such tiles are widened to give all instances as many; 0: they keep `column_tile_width`."""
    row_block_elements: int = 64
    """A tile of rows that are reduced both along and across."""
    transpose_tile_side: int = 32
    """Side of a square tile, where memory is read across its rows."""
    min_split_elements: int = 1 << 15
    """Elements of an instance from which on a reduction with few instances is split."""
    max_split_results: int = 256
    """Results up to which a long reduction is always split into `max_split_parts`; along memory that is so up to
    `min_parallel_rows` for each worker."""
    max_split_parts: int = 32
    """Most parts of a split reduction."""
    column_sum_parts: int = 64
    """Parts of a sum across rows whose elements another reduction reads anyway."""
    min_parallel_rows: int = 4
    """Fewest rows that are shared among workers."""
    cache_associativity: int = 8
    """Lines of a first-level cache at addresses 4096 bytes apart; 0: any number."""
    launches_per_sample: int = 1
    """Launches that are timed as one: more where starting one takes long."""
    matmul: MatmulModel = MatmulModel()
    matrix_unit: MatmulModel | None = None
    """The same for products of bfloat16 numbers in a matrix unit that is fed from the caches, if there is one."""
