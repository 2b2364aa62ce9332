"""Write warp-specialised loops (`dot_specialised_warps.py`): the roles of the warps and the loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....ir import tile as ir
from . import dot_helpers as helpers
from .dot_specialised_warps import CopiedTile, SharedOperand, SpecialisedProduct, WarpSpecialisation, is_dot
from .dot_warpgroup import unmasked_coordinate_lines
from .elements import ORIGIN
from .functions import TYPES
from .hardware import LINE_BYTES

if TYPE_CHECKING:
    from .dot import DotLowering
    from .lower import CudaLowering

ROLE_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (32, 160)}
"""Registers of a producer and of a consumer thread by the number of consumer warpgroups, with one block per
multiprocessor.
"""


def begin(products: DotLowering, low: CudaLowering, plan: WarpSpecialisation) -> None:
    """Split the roles: producers copy and return, consumers continue."""
    products.use(helpers.SHARED_MEMORY, helpers.BARRIERS, helpers.WARPGROUP, helpers.WARP_SPECIALISATION)
    place = low.take_shared(plan.shared)
    out, tiles = low.out, plan.held + plan.stages * plan.stage
    count = len(plan.staged)
    out.add(f"const uint32 tiles = shared_address({place}), ready = tiles + {tiles}, full = ready + 8;")
    out.add(f"const uint32 empty = full + {8 * plan.stages * count};")
    with out.block("if (threadIdx.x == 0)"):
        out.add("init_barrier(ready, 1);")
        out.add(f"for (int n = 0; n < {plan.stages * count}; ++n) init_barrier(full + n * 8, 1);")
        out.add(f"for (int n = 0; n < {plan.stages}; ++n) init_barrier(empty + n * 8, {plan.tiling.down});")
        out.add('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
    out.add("__syncthreads();")
    few, many = ROLE_REGISTERS[plan.tiling.down]
    reassigns_registers = plan.blocks == 1
    with out.block(f"if (threadIdx.x >= {plan.tiling.threads})"):
        if reassigns_registers:
            out.add(f'asm volatile("setmaxnreg.dec.sync.aligned.u32 {few};");')
        with out.block(f"if (threadIdx.x == {plan.tiling.threads})"):
            _copy_all(products, low, plan)
        out.add("return;")
    products.roles_split_at = len(out.lines)
    if reassigns_registers:
        out.add(f'asm volatile("setmaxnreg.inc.sync.aligned.u32 {many};");')
    out.add("const int group = threadIdx.x / 128;")
    out.add("int stage = 0, phase = 0;")
    out.add("wait(ready, 0);")


def _copy_all(products: DotLowering, low: CudaLowering, plan: WarpSpecialisation) -> None:
    """Write the producer: one thread starts all copies."""
    out = low.out
    if plan.resident:
        out.add(f"arrive_and_expect(ready, {plan.held});")
    else:
        out.add("arrive(ready);")
    at = 0
    for n, tile in enumerate(plan.resident):
        source = str(low.elements.of(tile.memory.pointer, (ORIGIN, ORIGIN), tile.memory.dtype))
        _copy(products, low, tile, n, source, f"tiles + {at}", "ready")
        at += tile.bytes
    out.add("int stage = 0, phase = 0;")
    for loop_plan in plan.loops:
        iteration = products.iteration_of(low, [loop_plan.loop], [tile.memory for tile in loop_plan.tiles])
        ((type, k, start, stop, step),) = iteration.loops
        with out.block(f"for ({type} {k} = {start}; {k} < {stop}; {k} += {step})"):
            out.extend(iteration.numbers)
            out.add("wait(empty + stage * 8, phase ^ 1);")
            at = plan.held
            for n, (tile, source) in enumerate(zip(loop_plan.tiles, iteration.sources, strict=True)):
                barrier = f"full + (stage * {len(loop_plan.tiles)} + {n}) * 8"
                out.add(f"arrive_and_expect({barrier}, {tile.bytes});")
                place = f"tiles + {at} + stage * {plan.stage}"
                _copy(products, low, tile, len(plan.resident) + n, source, place, barrier)
                at += tile.bytes
            out.add(f"if (++stage == {plan.stages}) stage = 0, phase ^= 1;")


def _copy(
    products: DotLowering, low: CudaLowering, tile: CopiedTile, map: int, source: str, place: str, barrier: str
) -> None:
    """Copy a tile panel by panel; a line that may continue in the next line of memory computes its own coordinates."""
    name, offset = f"tile{map}", f"{source} - {low.names.of(tile.memory.parameter)}"
    within_lines = products.analysis.is_within_lines(tile.memory)
    low.out.extend(
        unmasked_coordinate_lines(name, tile.memory, offset)
        if within_lines
        else [f"const int64 {name}_first = {offset};"]
    )
    for panel in range(tile.panels):
        to = f"{place} + {panel * tile.lines * LINE_BYTES}" if panel else place
        across = f" + {panel * tile.map.box[0]}" if panel else ""
        column, row = f"{name}_column{across}", f"{name}_line"
        if not within_lines:
            first, pitch = f"({name}_first{across})", tile.memory.pitch
            column, row = f"int({first} % {pitch})", f"int({first} / {pitch})"
        low.out.add(f"copy_box({to}, map_{map}, {column}, {row}, {barrier});")


def write_loop(products: DotLowering, low: CudaLowering, plan: WarpSpecialisation, loop: ir.For) -> None:
    """Write a loop of the consumers."""
    index, dtype = low.names.of(loop.index), low.types.variables[loop.index].dtype
    start, stop, step = (x.within(9) for x in low.loop_bounds(loop))
    with (
        low.loop_scope(loop),
        low.out.block(f"for ({TYPES[dtype.name]} {index} = {start}; {index} < {stop}; {index} += {step})"),
        low.scope(loop.index),
    ):
        IterationWriter(products, low, plan).write(loop.body)
        low.out.add("if (threadIdx.x % 128 == 0) arrive(empty + stage * 8);")
        low.out.add(f"if (++stage == {plan.stages}) stage = 0, phase ^= 1;")


class IterationWriter:
    """Writes the statements of an iteration; waits for products lazily, so that adjacent ones overlap."""

    def __init__(self, products: DotLowering, low: CudaLowering, plan: WarpSpecialisation) -> None:
        self.products, self.low, self.plan = products, low, plan
        self.running: list[str] = []
        """Accumulators of products in flight."""
        self.arrived: set[int] = set()
        """Tiles of the stage that have been waited for."""

    def write(self, body: Sequence[ir.Statement]) -> None:
        self.low.statements(body, self._intercept, self._wait)
        self._wait()

    def _intercept(self, low: CudaLowering, s: ir.Statement, flush: Callable[[], None]) -> bool:
        """Begin products, and leave out what is copied by others."""
        if is_dot(s):
            flush()
            self._begin(self.plan.products[id(s)])
        return is_dot(s) or id(s) in self.plan.skipped

    def _begin(self, product: SpecialisedProduct) -> None:
        low, out = self.low, self.low.out
        self.products.use(helpers.specialised_product(product))
        sums = low.declare(product.sums, product.tiling.layout).text
        held = low.elements.register_tiles[product.left].text if isinstance(product.left, str) else ""
        if {sums, held} & set(self.running):
            self._wait()
        for side in (product.left, product.right):
            if isinstance(side, SharedOperand) and side.place >= 0 and side.place not in self.arrived:
                self.arrived.add(side.place)
                out.add(f"wait(full + (stage * {len(self.plan.staged)} + {side.place}) * 8, phase);")
        left = "packed[step]" if isinstance(product.left, str) else self._address(product.left, own=True)
        with out.block(""):
            if isinstance(product.left, str):
                self.products.use(helpers.packing(product.dtype.name))
                out.add(f"uint32 packed[{product.depth // 16}][4];")
                out.add(f"pack(packed, {held});")
            out.add("fence_products();")
            with out.block(f"for (int step = 0; step < {product.depth // 16}; ++step)", unrolled=True):
                more = "step" if product.fresh else "1"
                out.add(f"{product.function}({sums}, {left}, {self._address(product.right, own=False)}, {more});")
            out.add("commit_products();")
        self.running.append(sums)

    def _address(self, side: SharedOperand, own: bool) -> str:
        """Return the address of an operand in a step; a warpgroup has its own 64 rows of the left one."""
        plan, tile = self.plan, side.tile
        if side.place < 0:
            at = sum(t.bytes for t in plan.resident[: plan.resident.index(tile)])
            place = f"tiles + {at}"
        else:
            at = plan.held + sum(t.bytes for t in plan.staged[: side.place])
            place = f"tiles + {at} + stage * {plan.stage}"
        panel = tile.lines * LINE_BYTES
        if own and plan.tiling.down > 1:
            place += f" + group * {panel if side.transposed else 64 * LINE_BYTES}"
        if side.transposed:
            return f"operand_descriptor({place} + step * {16 * LINE_BYTES}, {panel}, {8 * LINE_BYTES})"
        return f"operand_descriptor({place} + step / 4 * {panel} + step % 4 * 32, 16, {8 * LINE_BYTES})"

    def _wait(self) -> None:
        if self.running:
            self.low.out.add("wait_for_products<0>();")
            for sums in self.running:
                self.low.out.add(f"fence_registers({sums});")
            self.running = []
