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
from .dot_fill import clear, fill_lines, fill_rows, room
from .dot_loop import Copied, copied_loop, copied_text
from .dot_operands import Definitions, Strided
from .dot_persistent import stays, write_staying
from .dot_prefetch import Ahead, write_ahead
from .dot_specialised_warps import Flow, flow, is_early
from .dot_text import Operand, Turn, places, thread_products, warp_products
from .dot_thread import Threaded, threaded_loop, threaded_text
from .dot_tiling import Tiling, fewest_warps, operand_dtype, tiling
from .dot_warpgroup import Grouped, beginning, copies, corner, grouped, inside, parted, products
from .elements import START
from .functions import TYPES, cast
from .layout import Layout
from .writing import Lines

if TYPE_CHECKING:
    from .lower import Lowering

SHARED = 96 * 1024
"""Bytes of shared memory that every GPU since sm_80 grants a block."""
OWN = set(
    "plane within first_row rows_here in_rows lane warp row column operands full empty turns copy at turn part place "
    "stage phase before group x_map y_map x_place y_place x_from y_from x_first y_first x_column y_column x_line "
    "y_line x_spot y_spot x_own y_own x_start y_start x_at y_at x_tile y_tile values a b i j p q pp qq n step line "
    "piece multiply tile tiles ready packed".split()
) | set(re.findall(r"(\w+)\((?:uint32|int|const|float|uint64)", helpers.ALL))
"""Names that the text of products uses."""
TILE_NAMES = (("map_", ""), ("tile", "_first"), ("tile", "_column"), ("tile", "_line"))
MANY, LARGE = 8, 64 * 128
"""Warps of a kernel that holds operands in registers too: one with more than two products, or with tiles of this many
elements.
"""
LEAST = 8192
"""Smallest request for shared memory, in bytes: it gets its own place, aligned to 1024."""
TOGETHER = 16
"""Depth (along k) of the slice of operands that threads multiply without tensor cores."""


class Products:
    """Chooses and writes the scheme of each matrix product of a kernel."""

    def __init__(
        self,
        kernel: ir.Kernel,
        body: Sequence[ir.Statement],
        types: Types,
        architecture: str,
        may_stay: bool = True,
    ) -> None:
        self.types = types
        found = re.match(r"sm_(\d+)", architecture)
        self.capability = int(found[1]) if found else 0
        self.definitions = Definitions(kernel.replaced(body=tuple(body)), types, self.capability)
        assigned = [s for s in statements(tuple(body)) if isinstance(s, ir.Assign)]
        self.dots = {s.name: s.value for s in assigned if isinstance(s.value, ir.Dot)}
        self.stored = accesses(kernel.replaced(body=tuple(body)), types).stored
        self.tilings: dict[str, Tiling] = {}
        self.loops: dict[int, Grouped | Copied | Threaded | Ahead] = {}
        self.group: Grouped | None = None
        self.stays = False
        """Whether blocks are persistent: each computes tile after tile."""
        self.flow: Flow | None = None
        self.parted = 0
        """Index of the first line after the producer warps have left."""
        self.texts: dict[str, None] = {}
        if not self.dots:
            return
        if architecture == "sm_90a" and len(self.dots) == 1:
            self._find_group(body, may_stay)
        elif architecture == "sm_90a":
            self.flow = flow(self.definitions, body, self.stored)
        if self.flow is not None:
            self.tilings = {product.sums: product.tiling for product in self.flow.products.values()}
            return
        kinds = {name: self._kind(dot) for name, dot in self.dots.items()}
        if self.group is None:
            shapes = {name: types.variables[name].shape for name in self.dots}
            count = max(fewest_warps(kinds[name], *shapes[name]) for name in self.dots)
            self._tile(body, kinds, count)
            computed = len(self.dots) > sum(isinstance(plan, Copied | Threaded) for plan in self.loops.values())
            if computed and (len(self.dots) > 2 or max(m * n for m, n in shapes.values()) >= LARGE):
                self._tile(body, kinds, max(MANY, count))  # registers for operands too

    def _kind(self, dot: ir.Dot) -> str:
        return "thread" if self.operands_of(dot) is None else "warp"

    def operands_of(self, dot: ir.Dot) -> DType | None:
        """Return the dtype in which tensor cores multiply the operands of a product; None if they cannot."""
        return operand_dtype(self.types.of(dot.x).dtype, dot.precision, self.capability)

    def _find_group(self, body: Sequence[ir.Statement], may_stay: bool) -> None:
        """Find the one loop of a kernel that warpgroups can multiply."""
        for at, s in enumerate(body):
            if not isinstance(s, ir.For):
                continue
            inner = nest(s)[-1]
            product = self.product_of(inner)
            if product is not None and self._is_plain(inner) and all(map(self._is_early, body[:at])):
                assert isinstance(product.value, ir.Dot)
                plan = grouped(self.definitions, product.value, turns=_turns(nest(s)))
                if plan is not None and not self._is_overwritten(plan):
                    self.group = self.loops[id(s)] = plan
                    self.tilings[product.name] = plan.tiling
                    self.stays = may_stay and stays(plan)

    def _is_early(self, s: ir.Statement) -> bool:
        """Return whether producer warps can execute a statement too."""
        return isinstance(s, ir.Assign) and (not self.types.of(s.value).shape or not _holds(s.value))

    def _tile(self, body: Sequence[ir.Statement], kinds: dict[str, str], count: int) -> None:
        for name in self.dots:
            m, n = self.types.variables[name].shape
            self.tilings[name] = tiling(kinds[name], m, n, count)
        self.loops = {}
        for s in statements(tuple(body)):
            product = self.product_of(s) if isinstance(s, ir.For) else None
            if product is None:
                continue
            dot, held = product.value, self.tilings[product.name]
            assert isinstance(dot, ir.Dot)
            plan: Copied | Threaded | Ahead | None
            if not self._is_plain(s):
                plan = None
            elif held.kind == "warp":
                plan = copied_loop(self.definitions, dot, held, SHARED)
            else:
                plan = threaded_loop(self.definitions, dot, held)
            if plan is None or self._is_overwritten(plan):
                plan = Ahead(product.name)
            self.loops[id(s)] = plan

    def _is_overwritten(self, plan: Grouped | Copied | Threaded) -> bool:
        """Return whether the kernel stores through a parameter from which an operand is loaded."""
        return any(side.parameter in self.stored for side in _sides(plan))

    def product_of(self, loop: ir.For) -> ir.Assign | None:
        """Return the product that ends a loop whose other statements only load or compute."""
        *before, last = loop.body
        if not isinstance(last, ir.Assign) or not isinstance(last.value, ir.Dot):
            return None
        gathers = ir.Dot | ir.Reduce | ir.Scan
        if any(not isinstance(s, ir.Assign) or isinstance(s.value, gathers) for s in before):
            return None
        return last

    def _is_plain(self, loop: ir.Statement) -> bool:
        """Return whether a loop around a product does nothing besides loading its operands."""
        assert isinstance(loop, ir.For)
        *before, last = loop.body
        assert isinstance(last, ir.Assign)
        assert isinstance(last.value, ir.Dot)
        operands = {x.name for x in (last.value.x, last.value.y) if isinstance(x, ir.Name)}
        return all(isinstance(s, ir.Assign) and (s.name in operands or not _holds(s.value)) for s in before)

    # --- what the kernel needs -------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """Threads of a block as layouts count them; 0 if any number will do."""
        return max((t.threads for t in self.tilings.values()), default=0)

    @property
    def copying(self) -> int:
        """Producer threads, which only copy; layouts do not count them."""
        return next((plan.copying for plan in (self.flow, self.group) if plan is not None), 0)

    @property
    def layouts(self) -> dict[str, Layout]:
        found = {name: t.layout for name, t in self.tilings.items()}
        for product in () if self.flow is None else self.flow.products.values():
            if isinstance(product.left, str):
                found[product.left] = product.tiling._replace(n=product.depth, columns=product.depth).layout
        return found

    def is_pairs(self, layout: Layout) -> bool:
        """Return whether a layout is that of accumulators on tensor cores."""
        return any(t.kind != "thread" and t.layout == layout for t in self.tilings.values())

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        if self.flow is not None:
            return self.flow.maps
        return () if self.group is None else (self.group.x.map, self.group.y.map)

    @property
    def parameters(self) -> list[str]:
        """Parameters of the kernel after the grid."""
        names = ("x_map", "y_map") if self.flow is None else [f"map_{n}" for n in range(len(self.maps))]
        return [f"const __grid_constant__ TensorMap {name}" for name, _ in zip(names, self.maps, strict=False)]

    @property
    def names(self) -> set[str]:
        """Names that variables of the kernel must not have."""
        maps = {f"{stem}{n}{end}" for n in range(len(self.maps)) for stem, end in TILE_NAMES}
        return OWN | maps if self.dots else set()

    @property
    def bounds(self) -> str:
        """Arguments of `__launch_bounds__`: threads, and blocks that a multiprocessor should hold."""
        many = self.threads <= (128 if any(t.kind == "warp" for t in self.tilings.values()) else 256)
        blocks = 2 if many and not self.copying else 1
        blocks = next((plan.blocks for plan in (self.flow, self.group) if plan is not None), blocks)
        return f"{self.threads + self.copying}, {blocks}" if self.dots else ""

    @property
    def resident(self) -> int:
        """Persistent blocks per multiprocessor; 0 if blocks are not persistent."""
        return self.group.blocks if self.group is not None and self.stays else 0

    def ids(self, tile: str = "blockIdx.x") -> list[str]:
        """Compute program ids in groups of sixteen rows of tiles, so that operands stay in the L2 cache."""
        return [
            f"const int plane = grid_0 * grid_1, within = {tile} % plane, first_row = within / (16 * grid_0) * 16;",
            "const int rows_here = min(grid_1 - first_row, 16), in_rows = within % (16 * grid_0);",
            "const int program_0 = in_rows / rows_here, program_1 = first_row + in_rows % rows_here;",
            f"const int program_2 = {tile} / plane;",
        ]

    # --- loops -----------------------------------------------------------------------------------

    def flows(self, low: Lowering, statement: ir.Statement, before: Callable[[], None]) -> bool:
        """Write a statement of a warp-specialised kernel if it differs there; `before` flushes pending statements."""
        from .dot_specialised_warps_text import begin, write_loop

        plan = self.flow
        if plan is None:
            return False
        if not self.parted and not is_early(statement, self.types):
            before()
            begin(self, low, plan)
            low.elements.quick = {"exp2": "quick_exp2", "fma": "fmaf"}
        if id(statement) in plan.skipped:
            return True
        loop = next((turn.loop for turn in plan.turns if turn.loop is statement), None)
        if loop is not None:
            before()
            write_loop(self, low, plan, loop)
        return loop is not None

    def loop(self, low: Lowering, loop: ir.For) -> bool:
        """Write a loop that copies operands while it multiplies; return whether the loop is one."""
        plan = self.loops.get(id(loop))
        if isinstance(plan, Ahead):
            return write_ahead(self, low, loop)
        if plan is None:
            return False
        loops = nest(loop) if isinstance(plan, Grouped) else [loop]
        product = loops[-1].body[-1]
        assert isinstance(product, ir.Assign)
        sums = low.elements.kept[product.name].text
        numbers, sources, bounds, indices = self.in_turn(low, loops, _sides(plan))
        last = loops[-1].index
        index = (f"{TYPES[self.types.variables[last].dtype.name]} {low.names.of(last)}", *bounds[-1])
        turn = Turn(index, (sources[0], sources[1]), numbers)
        place = low.take(max(plan.shared, LEAST))
        self.use(helpers.SHARED)
        match plan:
            case Grouped():
                self._use_group(plan)
                pointers = [low.names.of(side.parameter) for side in _sides(plan)]
                corners = [
                    line
                    for name, side, source, pointer, index in zip(
                        "xy", (plan.x, plan.y), sources, pointers, indices, strict=True
                    )
                    for line in corner(name, side, f"{source} - {pointer}", index)
                ]
                guard = inside(plan, low.names.of(last), bounds[-1])
                inner = [[*numbers, *corners, *copies(plan)], products(plan, sums, guard)]
                both = [self._nested(low, loops, bounds, lines) for lines in inner]
                if self.stays:
                    write_staying(self, low, plan, place, sums, (both[0], both[1]))
                    return True
                text = [*beginning(plan, place), *parted(plan, sums, *both)]
            case Copied():
                dtype = _sides(plan)[0].dtype.name
                self.use(helpers.COPIES, helpers.fragments(dtype), helpers.warp_product(dtype))
                text = copied_text(plan, sums, turn, place)
            case Threaded():
                self.use(helpers.COPIES)
                text = threaded_text(plan, sums, turn, place)
        with low.out.block(""):
            for line in [*places(plan.tiling), *text]:
                low.out.add(line)
        return True

    def _use_group(self, plan: Grouped) -> None:
        left, right = plan.sides
        dtype = left.memory.dtype.name
        self.use(helpers.BARRIERS, helpers.groups(dtype))
        if plan.by_registers:
            self.use(helpers.NUMBERS)
        self.use(helpers.group_product(dtype, plan.tiling.columns, (left.turned, right.turned), plan.tiling.swapped))
        if any(side.map.anywhere for side in (plan.x, plan.y)):
            self.use(helpers.BOXES)

    def _nested(
        self, low: Lowering, loops: list[ir.For], bounds: list[tuple[str, str, str]], lines: list[str]
    ) -> list[str]:
        """Nest lines in loops."""
        for loop, (start, stop, step) in zip(reversed(loops), reversed(bounds), strict=True):
            name, type = low.names.of(loop.index), TYPES[self.types.variables[loop.index].dtype.name]
            head = f"for ({type} {name} = {start}; {name} < {stop}; {name} += {step}) {{"
            lines = [head, *[f"    {line}" for line in lines], "}"]
        return lines

    def in_turn(
        self, low: Lowering, loops: list[ir.For], sides: Sequence[Strided]
    ) -> tuple[list[str], list[str], list[tuple[str, str, str]], list[tuple[str, str]]]:
        """Return, for one iteration: scalar statements, addresses of the operands' first elements, (start, stop, step)
        of each loop, and the first values of the indices that masks compare.
        """
        bounds = []
        for loop in loops:
            dtype = self.types.variables[loop.index].dtype
            start, stop, step = [
                str(cast(low.elements.of(x, (), dtype), low.elements.dtype(x, dtype), dtype))
                for x in (loop.start, loop.stop, loop.step)
            ]
            bounds.append((start, stop, step))
        outer, low.out = low.out, Lines()
        low.out.depth = 0
        lazy = dict(low.elements.lazy)
        low.scopes.append({loop.index for loop in loops})
        for s in loops[-1].body:
            if isinstance(s, ir.Assign) and s.name in low.meanings:
                if self.types.of(s.value).shape:
                    low.elements.lazy[s.name] = s.value
                else:
                    low.number(s)
        sources = [str(low.elements.of(side.pointer, (START, START), side.dtype)) for side in sides]
        indices = [
            tuple(["" if b is None else str(low.elements.of(b.at, (START, START), int32)) for b in side.bounds])
            for side in sides
        ]
        numbers, low.out, low.elements.lazy = low.out.lines, outer, lazy
        low.scopes.pop()
        return numbers, sources, bounds, indices  # type: ignore[return-value]

    # --- single products -------------------------------------------------------------------------

    def write(self, low: Lowering, statement: ir.Assign) -> None:
        """Write `sums += x @ y` with operands stored to shared memory."""
        dot = statement.value
        assert isinstance(dot, ir.Dot)
        held = self.tilings[statement.name]
        sums = low.elements.kept[statement.name].text
        dtype = self.operands_of(dot) if held.kind == "warp" else None
        with low.out.block(""):
            for line in places(held):
                low.out.add(line)
            if dtype is not None:
                self._by_warps(low, sums, held, dot, dtype)
            else:
                self._by_threads(low, sums, held, dot)

    def _by_warps(self, low: Lowering, sums: str, held: Tiling, dot: ir.Dot, dtype: DType) -> None:
        self.use(helpers.SHARED, helpers.fragments(dtype.name), helpers.warp_product(dtype.name))
        x, y = self.operands(low, held, dot, dtype)
        place = low.take(max(room((x, y)), LEAST))
        low.out.add(f"unsigned char *x_at = {place}, *y_at = x_at + {x.size};")
        if x.depth > self.types.of(dot.x).shape[1]:
            clear(low, place, room((x, y)))
        self.fill_lines(low, dot, (x, y), dtype)
        low.meet()
        low.out.add("uint32 x_place = address_of(x_at), y_place = address_of(y_at);")
        for line in warp_products(sums, held, x, y):
            low.out.add(line)

    def operands(self, low: Lowering, held: Tiling, dot: ir.Dot, dtype: DType) -> tuple[Operand, Operand]:
        """Describe the operands of a product as tensor cores read them from shared memory."""
        step = 32 // dtype.bytes
        depth = -(-self.types.of(dot.x).shape[1] // step) * step
        x, y = (
            Operand(address, turned, dtype.bytes, depth, extent)
            for address, turned, extent in (
                ("x_place", self._turned(low, dot.x, 0, dtype), held.down * held.rows),
                ("y_place", self._turned(low, dot.y, 1, dtype), held.across * held.columns),
            )
        )
        return x, y

    def fill_lines(self, low: Lowering, dot: ir.Dot, operands: tuple[Operand, Operand], dtype: DType) -> None:
        fill_lines(low, "x_at", operands[0], dot.x, dtype, (0, 1))
        fill_lines(low, "y_at", operands[1], dot.y, dtype, (1, 0))

    def _turned(self, low: Lowering, x: ir.Tile, position: int, dtype: DType) -> bool:
        """Return whether an operand's lines run along its rows: as its vectors do, if tensor cores can transpose it."""
        layout = low.plan.of_operand(x)
        return dtype.bytes > 1 and layout.vector == position

    def _by_threads(self, low: Lowering, sums: str, held: Tiling, dot: ir.Dot) -> None:
        t = self.types.of(dot)
        kind, bytes = TYPES[t.dtype.name], t.dtype.bytes
        depth = self.types.of(dot.x).shape[1]
        pitches = (held.down * held.rows, held.across * held.columns)
        together = min(depth, TOGETHER)
        for first in range(0, depth, together):
            part = range(first, min(depth, first + together))
            place = low.take(max(together * sum(pitches) * bytes, LEAST))
            with low.out.block(""):
                x_tile = f"*x_tile = reinterpret_cast<{kind}*>({place})"
                low.out.add(f"{kind} {x_tile}, *y_tile = x_tile + {together * pitches[0]};")
                fill_rows(low, "x_tile", pitches[0], dot.x, t.dtype, (0, 1), part)
                fill_rows(low, "y_tile", pitches[1], dot.y, t.dtype, (1, 0), part)
                low.meet()
                for line in thread_products(sums, held, len(part), pitches, kind):
                    low.out.add(line)

    def use(self, *texts: str) -> None:
        """Add device functions to the source."""
        self.texts |= dict.fromkeys(texts)


def nest(loop: ir.For) -> list[ir.For]:
    """Return a loop and the loops perfectly nested in it."""
    found = [loop]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], ir.For):
        found.append(found[-1].body[0])
    return found


def _turns(loops: list[ir.For]) -> int:
    """Return the trip count of nested loops; 0 if it is not constant."""
    count = 1
    for loop in loops:
        match loop.start, loop.stop, loop.step:
            case ir.Literal(start), ir.Literal(stop), ir.Literal(step):
                count *= max(0, -(-(int(stop) - int(start)) // int(step)))
            case _:
                return 0
    return count


def _holds(value: ir.Tile) -> bool:
    """Return whether a value depends on more than its position."""
    from ....ir.tile_access import walk

    return any(isinstance(x, ir.Load | ir.Reduce | ir.Scan | ir.Dot | ir.Reshape | ir.Trans) for x in walk(value))


def _sides(plan: Grouped | Copied | Threaded) -> tuple[Strided, Strided]:
    if isinstance(plan, Copied):
        return plan.x, plan.y
    return plan.x.memory, plan.y.memory
