"""Lower matrix products of tiles: `tl.dot`, and whole loops around it.

Accumulators are registers, distributed over threads by a tiling (`dot_tiling.py`). A loop whose operands are strided
tiles of memory copies them asynchronously while it multiplies: with the tensor memory accelerator (`dot_warpgroup.py`),
or by cp.async for tensor cores (`dot_loop.py`) and for plain threads (`dot_thread.py`). Any other operand is computed,
stored to shared memory, and multiplied after a barrier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import DType, int32
from ....ir.tile_access import accesses, statements
from ....ir.tile_types import Types
from ..tensor_map import TensorMap
from . import dot_helpers as helpers
from .dot_computed import MIN_SHARED_BYTES, ThreadProduct, WarpProduct
from .dot_loop import AsyncCopyLoop, plan_async_copy_loop
from .dot_operands import Bound, OperandAnalysis, Strided
from .dot_persistent import is_persistent, write_persistent
from .dot_prefetch import PrefetchedProduct, write_prefetched_loop
from .dot_specialised_warps import WarpSpecialisation, is_uniform, plan_warp_specialisation
from .dot_text import LoopIteration, warp_positions
from .dot_thread import ThreadLoop, plan_thread_loop
from .dot_tiling import Tiling, choose_tiling, fewest_warps, operand_dtype
from .dot_warpgroup import (
    WarpgroupLoop,
    barrier_lines,
    plan_warpgroup_loop,
    split_roles,
)
from .elements import ORIGIN
from .functions import TYPES
from .layout import RegisterLayout
from .writing import Lines

if TYPE_CHECKING:
    from .lower import CudaLowering

SHARED_BYTES = 96 * 1024
"""Bytes of shared memory that every GPU since sm_80 grants a block."""
TEXT_NAMES = set(
    "plane within first_row rows_here in_rows lane warp row column operands full empty iterations copy at turn part "
    "place stage phase before group x_map y_map x_place y_place x_from y_from x_first y_first x_column y_column x_line "
    "y_line x_spot y_spot x_own y_own x_start y_start x_at y_at x_tile y_tile values a b i j p q pp qq n step line "
    "piece multiply tile tiles ready packed".split()
) | set(re.findall(r"(\w+)\((?:uint32|int|const|float|uint64)", helpers.ALL))
"""Names that the text of products uses."""
MAP_NAMES = (("map_", ""), ("tile", "_first"), ("tile", "_column"), ("tile", "_line"))
MANY_WARPS, LARGE_TILE_ELEMENTS = 8, 64 * 128
"""Warps of a kernel that holds operands in registers too: one with more than two products, or with tiles of this many
elements.
"""
MAX_PAIRED_THREADS = {"warp": 128, "thread": 256}
"""Threads of a block up to which a multiprocessor should hold two, by the kind of tiling."""
LOOP_SCHEMES: dict[str, Callable[[OperandAnalysis, ir.Dot, Tiling], AsyncCopyLoop | ThreadLoop | None]] = {
    "warp": lambda analysis, dot, tiling: plan_async_copy_loop(analysis, dot, tiling, SHARED_BYTES),
    "thread": plan_thread_loop,
}
"""Plans a loop around a product, by the kind of its tiling; None if its operands cannot be copied unchanged."""


class DotLowering:
    """Chooses and writes the scheme of each matrix product of a kernel."""

    def __init__(
        self,
        kernel: ir.Kernel,
        types: Types,
        architecture: str,
        allow_persistent: bool = True,
    ) -> None:
        self.types, body = types, kernel.body
        found = re.match(r"sm_(\d+)", architecture)
        self.capability = int(found[1]) if found else 0
        self.analysis = OperandAnalysis(kernel, types, self.capability)
        assigned = [s for s in statements(body) if isinstance(s, ir.Assign)]
        self.dots = {s.name: s.value for s in assigned if isinstance(s.value, ir.Dot)}
        self.stored = accesses(kernel, types).stored
        self.tilings: dict[str, Tiling] = {}
        self.loops: dict[int, WarpgroupLoop | AsyncCopyLoop | ThreadLoop | PrefetchedProduct] = {}
        self.warpgroup: WarpgroupLoop | None = None
        self.persistent = False
        """Whether blocks are persistent: each computes tile after tile."""
        self.specialised: WarpSpecialisation | None = None
        self.roles_split_at = 0
        """Index of the first line after the producer warps have left."""
        self.texts: dict[str, None] = {}
        if not self.dots:
            return
        if architecture == "sm_90a" and len(self.dots) == 1:
            self._plan_warpgroup(body, allow_persistent)
        elif architecture == "sm_90a":
            self.specialised = plan_warp_specialisation(self.analysis, body, self.stored)
        if self.specialised is not None:
            self.tilings = {product.sums: product.tiling for product in self.specialised.products.values()}
            return
        kinds = {name: self._kind(dot) for name, dot in self.dots.items()}
        if self.warpgroup is None:
            shapes = {name: types.variables[name].shape for name in self.dots}
            count = max(fewest_warps(kinds[name], *shapes[name]) for name in self.dots)
            self._plan_tilings(body, kinds, count)
            computed = len(self.dots) > sum(
                isinstance(plan, AsyncCopyLoop | ThreadLoop) for plan in self.loops.values()
            )
            if computed and (len(self.dots) > 2 or max(m * n for m, n in shapes.values()) >= LARGE_TILE_ELEMENTS):
                self._plan_tilings(body, kinds, max(MANY_WARPS, count))  # more warps, to keep operands in registers

    def _kind(self, dot: ir.Dot) -> str:
        return "thread" if self.operand_dtype_for(dot) is None else "warp"

    def operand_dtype_for(self, dot: ir.Dot) -> DType | None:
        """Return the dtype in which tensor cores multiply the operands of a product; None if they cannot."""
        return operand_dtype(self.types.of(dot.x).dtype, dot.precision, self.capability)

    def _plan_warpgroup(self, body: Sequence[ir.Statement], allow_persistent: bool) -> None:
        """Find the one loop of a kernel that warpgroups can multiply."""
        for at, s in enumerate(body):
            if not isinstance(s, ir.For):
                continue
            inner = nest(s)[-1]
            product = self.product_of(inner)
            if (
                product is not None
                and self._only_loads_operands(inner)
                and all(map(self._producers_can_run, body[:at]))
            ):
                assert isinstance(product.value, ir.Dot)
                plan = plan_warpgroup_loop(self.analysis, product.value, iterations=_trip_count(nest(s)))
                if plan is not None and not self._is_overwritten(plan):
                    self.warpgroup = self.loops[id(s)] = plan
                    self.tilings[product.name] = plan.tiling
                    self.persistent = allow_persistent and is_persistent(plan)

    def _producers_can_run(self, s: ir.Statement) -> bool:
        """Return whether producer warps can execute a statement too."""
        return isinstance(s, ir.Assign) and (not self.types.of(s.value).shape or not _needs_data(s.value))

    def _plan_tilings(self, body: Sequence[ir.Statement], kinds: dict[str, str], count: int) -> None:
        for name in self.dots:
            m, n = self.types.variables[name].shape
            self.tilings[name] = choose_tiling(kinds[name], m, n, count)
        self.loops = {}
        for s in statements(tuple(body)):
            product = self.product_of(s) if isinstance(s, ir.For) else None
            if product is None:
                continue
            dot, tiling = product.value, self.tilings[product.name]
            assert isinstance(dot, ir.Dot)
            plan = LOOP_SCHEMES[tiling.kind](self.analysis, dot, tiling) if self._only_loads_operands(s) else None
            fits = plan is not None and not self._is_overwritten(plan)
            self.loops[id(s)] = plan if plan is not None and fits else PrefetchedProduct(product.name)

    def _is_overwritten(self, plan: WarpgroupLoop | AsyncCopyLoop | ThreadLoop) -> bool:
        """Return whether the kernel stores through a parameter from which an operand is loaded."""
        return any(side.parameter in self.stored for side in plan.strided)

    def product_of(self, loop: ir.For) -> ir.Assign | None:
        """Return the product that ends a loop whose other statements only load or compute."""
        *before, last = loop.body
        if not isinstance(last, ir.Assign) or not isinstance(last.value, ir.Dot):
            return None
        gathers = ir.Dot | ir.Reduce | ir.Scan
        if any(not isinstance(s, ir.Assign) or isinstance(s.value, gathers) for s in before):
            return None
        return last

    def _only_loads_operands(self, loop: ir.Statement) -> bool:
        """Return whether a loop around a product does nothing besides loading its operands."""
        assert isinstance(loop, ir.For)
        *before, last = loop.body
        assert isinstance(last, ir.Assign)
        assert isinstance(last.value, ir.Dot)
        operands = {x.name for x in (last.value.x, last.value.y) if isinstance(x, ir.Name)}
        return all(isinstance(s, ir.Assign) and (s.name in operands or not _needs_data(s.value)) for s in before)

    # --- what the kernel needs -------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """Threads of a block as layouts count them; 0 if any number will do."""
        return max((t.threads for t in self.tilings.values()), default=0)

    @property
    def roles(self) -> WarpSpecialisation | WarpgroupLoop | None:
        """The plan of a kernel whose warps are producers and consumers."""
        return self.specialised or self.warpgroup

    @property
    def producer_threads(self) -> int:
        """Producer threads, which only copy; layouts do not count them."""
        return 0 if self.roles is None else self.roles.producer_threads

    @property
    def layouts(self) -> dict[str, RegisterLayout]:
        found = {name: t.layout for name, t in self.tilings.items()}
        for product in () if self.specialised is None else self.specialised.products.values():
            if isinstance(product.left, str):
                found[product.left] = product.tiling._replace(n=product.depth, columns=product.depth).layout
        return found

    def is_accumulator(self, layout: RegisterLayout) -> bool:
        """Return whether a layout is that of accumulators on tensor cores."""
        return any(t.kind != "thread" and t.layout == layout for t in self.tilings.values())

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return () if self.roles is None else self.roles.maps

    @property
    def parameters(self) -> list[str]:
        """Parameters of the kernel after the grid."""
        names = ("x_map", "y_map") if self.specialised is None else [f"map_{n}" for n in range(len(self.maps))]
        return [f"const __grid_constant__ TensorMap {name}" for name, _ in zip(names, self.maps, strict=False)]

    @property
    def names(self) -> set[str]:
        """Names that variables of the kernel must not have."""
        maps = {f"{stem}{n}{end}" for n in range(len(self.maps)) for stem, end in MAP_NAMES}
        return TEXT_NAMES | maps if self.dots else set()

    @property
    def bounds(self) -> str:
        """Arguments of `__launch_bounds__`: threads, and blocks that a multiprocessor should hold."""
        kind = "warp" if any(t.kind == "warp" for t in self.tilings.values()) else "thread"
        small = self.threads <= MAX_PAIRED_THREADS[kind]
        blocks = (2 if small else 1) if self.roles is None else self.roles.blocks
        return f"{self.threads + self.producer_threads}, {blocks}" if self.dots else ""

    @property
    def resident(self) -> int:
        """Persistent blocks per multiprocessor; 0 if blocks are not persistent."""
        return self.warpgroup.blocks if self.warpgroup is not None and self.persistent else 0

    def ids(self, tile: str = "blockIdx.x") -> list[str]:
        """Compute program ids in groups of sixteen rows of tiles, so that operands stay in the L2 cache."""
        return [
            f"const int plane = grid_0 * grid_1, within = {tile} % plane, first_row = within / (16 * grid_0) * 16;",
            "const int rows_here = min(grid_1 - first_row, 16), in_rows = within % (16 * grid_0);",
            "const int program_0 = in_rows / rows_here, program_1 = first_row + in_rows % rows_here;",
            f"const int program_2 = {tile} / plane;",
        ]

    # --- loops -----------------------------------------------------------------------------------

    def write_specialised(self, low: CudaLowering, statement: ir.Statement, before: Callable[[], None]) -> bool:
        """Write a statement of a warp-specialised kernel if it differs there; `before` flushes pending statements."""
        from .dot_specialised_warps_text import begin, write_loop

        plan = self.specialised
        if plan is None:
            return False
        if not self.roles_split_at and not is_uniform(statement, self.types):
            before()
            begin(self, low, plan)
            low.elements.fast_functions = {"exp2": "fast_exp2", "fma": "fmaf"}
        if id(statement) in plan.skipped:
            return True
        loop = next((iteration.loop for iteration in plan.loops if iteration.loop is statement), None)
        if loop is not None:
            before()
            write_loop(self, low, plan, loop)
        return loop is not None

    def loop(self, low: CudaLowering, loop: ir.For) -> bool:
        """Write a loop that copies operands while it multiplies; return whether the loop is one."""
        plan = self.loops.get(id(loop))
        if isinstance(plan, PrefetchedProduct):
            return write_prefetched_loop(self, low, loop)
        if plan is None:
            return False
        loops = nest(loop) if isinstance(plan, WarpgroupLoop) else [loop]
        product = loops[-1].body[-1]
        assert isinstance(product, ir.Assign)
        sums = low.elements.register_tiles[product.name].text
        iteration = self.iteration_of(low, loops, plan.strided)
        shared = low.take_shared(max(plan.shared, MIN_SHARED_BYTES))
        self.use(helpers.SHARED_MEMORY, *plan.device_functions)
        if isinstance(plan, WarpgroupLoop):
            roles = plan.roles(sums, iteration, [low.names.of(side.parameter) for side in plan.strided])
            if self.persistent:
                write_persistent(self, low, plan, shared, sums, roles)
                return True
            text = [*barrier_lines(plan, shared), *split_roles(plan, sums, *roles)]
        else:
            text = plan.lines(sums, iteration, shared)
        with low.out.block(""):
            low.out.extend([*warp_positions(plan.tiling), *text])
        return True

    def iteration_of(self, low: CudaLowering, loops: list[ir.For], sides: Sequence[Strided]) -> LoopIteration:
        """Write the parts of an iteration of nested loops whose operands are strided tiles."""
        heads = []
        for loop in loops:
            dtype = self.types.variables[loop.index].dtype
            start, stop, step = map(str, low.loop_bounds(loop))
            heads.append((TYPES[dtype.name], low.names.of(loop.index), start, stop, step))
        lines = Lines()
        lines.depth = 0
        with low.writing(lines), low.scope(*(loop.index for loop in loops)):
            for s in loops[-1].body:
                if isinstance(s, ir.Assign) and s.name in low.affine.definitions:
                    if self.types.of(s.value).shape:
                        low.elements.inlined[s.name] = s.value
                    else:
                        low.assign_scalar(s)
            sources = [str(low.elements.of(side.pointer, (ORIGIN, ORIGIN), side.dtype)) for side in sides]
            indices = [(self._first_index(low, s.bounds[0]), self._first_index(low, s.bounds[1])) for s in sides]
        return LoopIteration(heads, lines.lines, sources, indices)

    def _first_index(self, low: CudaLowering, bound: Bound | None) -> str:
        return "" if bound is None else str(low.elements.of(bound.at, (ORIGIN, ORIGIN), int32))

    # --- single products -------------------------------------------------------------------------

    def write(self, low: CudaLowering, statement: ir.Assign) -> None:
        """Write `sums += x @ y` with operands stored to shared memory."""
        with low.out.block(""):
            low.out.extend(warp_positions(self.tilings[statement.name]))
            self.computed(low, statement).write(low.elements.register_tiles[statement.name].text)

    def computed(self, low: CudaLowering, statement: ir.Assign) -> WarpProduct | ThreadProduct:
        """Return the scheme of a product whose operands are computed."""
        dot, tiling = statement.value, self.tilings[statement.name]
        assert isinstance(dot, ir.Dot)
        dtype = self.operand_dtype_for(dot) if tiling.kind == "warp" else None
        return ThreadProduct(low, tiling, dot) if dtype is None else WarpProduct(low, tiling, dot, dtype)

    def use(self, *texts: str) -> None:
        """Add device functions to the source."""
        self.texts |= dict.fromkeys(texts)


def nest(loop: ir.For) -> list[ir.For]:
    """Return a loop and the loops perfectly nested in it."""
    found = [loop]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], ir.For):
        found.append(found[-1].body[0])
    return found


def _trip_count(loops: list[ir.For]) -> int:
    """Return the trip count of nested loops; 0 if it is not constant."""
    count = 1
    for loop in loops:
        match loop.start, loop.stop, loop.step:
            case ir.Literal(start), ir.Literal(stop), ir.Literal(step):
                count *= max(0, -(-(int(stop) - int(start)) // int(step)))
            case _:
                return 0
    return count


def _needs_data(value: ir.Tile) -> bool:
    """Return whether a value depends on more than its position."""
    from ....ir.tile_access import walk

    return any(isinstance(x, ir.Load | ir.Reduce | ir.Scan | ir.Dot | ir.Reshape | ir.Trans) for x in walk(value))
