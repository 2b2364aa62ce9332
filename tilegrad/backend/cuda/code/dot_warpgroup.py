"""Warpgroup products on Hopper (sm_90a), of 8-bit, 16-bit and tf32 operands, fed by a producer thread.

The last warps of a block are producers, the others consumers. Stages of shared memory pass between them with two
barriers each: `full` when the bytes of a stage have arrived, `empty` when its products are done. The tensor memory
accelerator copies a box of a tensor with one instruction, already swizzled for tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import float32
from ..tensor_map import MATRIX_ALIGNMENT, TensorMap
from . import dot_helpers as helpers
from .dot_operands import OperandAnalysis, Strided
from .dot_text import LoopIteration
from .dot_tiling import Tiling, operand_dtype
from .hardware import LINE_BYTES, MAX_WARPGROUP_COLUMNS, WARPGROUP_ROWS

SHARED_BYTES = 218 * 1024
"""Bytes of shared memory for stages: 227 KiB less a reserve for reductions after the loop."""
MAX_STAGES = 8
"""Largest number of stages in flight."""
STAGE_BARRIERS_BYTES = 16
"""Bytes of the two barriers of a stage."""
MAX_PAIRED_COLUMNS = 128
"""Columns of a tile of 16-bit operands up to which two blocks share a multiprocessor."""
MAX_UNROLLED_ITERATIONS = 4
"""Iterations up to which the compiler unrolls the loop completely."""
HEIGHTS = (WARPGROUP_ROWS, 2 * WARPGROUP_ROWS)
"""Rows of a tile: those of one or of two warpgroups."""


class BoxedOperand(NamedTuple):
    """An operand: the part of it copied in a stage."""

    memory: Strided
    transposed: bool
    """Whether lines do not run along k."""
    extent: int
    map: TensorMap

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return self.extent * LINE_BYTES

    @property
    def boxes(self) -> int:
        return self.bytes // (self.map.box[1] * LINE_BYTES)


class WarpgroupLoop(NamedTuple):
    """The plan of a loop whose product warpgroups compute."""

    tiling: Tiling
    x: BoxedOperand
    y: BoxedOperand
    depth: int
    """Depth of the operands of one product."""
    stages: int

    @property
    def stage(self) -> int:
        return self.x.bytes + self.y.bytes

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the stages, aligned to 1024, and their barriers."""
        return self.stages * (self.stage + STAGE_BARRIERS_BYTES)

    @property
    def piece(self) -> int:
        """Elements of k in a stage."""
        return LINE_BYTES // self.x.memory.dtype.bytes

    @property
    def blocks(self) -> int:
        """Blocks per multiprocessor: small tiles leave registers for two, of which one multiplies while the other
        stores.
        """
        narrow = self.tiling.columns <= MAX_PAIRED_COLUMNS and self.x.memory.dtype.bytes <= 2
        return 2 if self.tiling.down == 1 or narrow else 1

    @property
    def producer_threads(self) -> int:
        """Producer threads. Only whole warpgroups can give registers away; where blocks share them, one warp copies."""
        return 32 if self.blocks > 1 else 128

    @property
    def limits(self) -> tuple[str, str]:
        """Instructions that move registers from producers to consumers, if the producers are a warpgroup."""
        if self.tiling.down == 1 or self.blocks > 1:
            return "", ""
        changes = (("dec", 40), ("inc", 232))
        text = [f'asm volatile("setmaxnreg.{change}.sync.aligned.u32 {count};");' for change, count in changes]
        return text[0], text[1]

    @property
    def sides(self) -> tuple[BoxedOperand, BoxedOperand]:
        """The left and the right operand as tensor cores see them."""
        return (self.y, self.x) if self.tiling.swapped else (self.x, self.y)

    @property
    def left_in_registers(self) -> bool:
        """Whether the left operand goes through registers: 32-bit numbers that are not contiguous along k."""
        return self.sides[0].transposed and self.x.memory.dtype.bytes == 4

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.tiling.threads + self.producer_threads

    @property
    def strided(self) -> tuple[Strided, Strided]:
        return self.x.memory, self.y.memory

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return self.x.map, self.y.map

    @property
    def device_functions(self) -> tuple[str, ...]:
        left, right = self.sides
        dtype, transposed = left.memory.dtype.name, (left.transposed, right.transposed)
        return (
            helpers.BARRIERS,
            helpers.warpgroup_helpers(dtype),
            *[helpers.NUMBERS] * self.left_in_registers,
            helpers.warpgroup_product(dtype, self.tiling.columns, transposed, self.tiling.swapped),
            *[helpers.BOXES] * any(side.map.anywhere for side in (self.x, self.y)),
        )

    def roles(self, sums: str, iteration: LoopIteration, pointers: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the loops of the producer and of the consumers; `pointers` are the operands' parameters."""
        coordinates = [
            line
            for name, side, source, pointer, index in zip(
                "xy", (self.x, self.y), iteration.sources, pointers, iteration.indices, strict=True
            )
            for line in coordinate_lines(name, side, f"{source} - {pointer}", index)
        ]
        _, index, *bounds = iteration.loops[-1]
        producer = [*iteration.numbers, *coordinates, *producer_lines(self)]
        consumer = consumer_lines(self, sums, end_guard(self, index, (bounds[0], bounds[1], bounds[2])))
        return iteration.nested(producer), iteration.nested(consumer)


def _multiplies(analysis: OperandAnalysis, product: ir.Dot, x: Strided, y: Strided) -> bool:
    """Return whether warpgroups multiply operands of these dtypes and memory orders at the product's precision."""
    dtype, transposed = x.dtype, (x.along == 0, y.along == 1)
    if y.dtype is not dtype or operand_dtype(dtype, product.precision, analysis.capability) is not dtype:
        return False
    if dtype is float32:
        return not all(transposed)  # tf32 needs lines along k, except in a left operand read from registers
    if dtype.bytes > 1:
        return True
    exact = not dtype.is_float or product.precision != "highest"
    return exact and not any(transposed)  # tensor cores accumulate 8-bit floats with less than float32 precision


def plan_warpgroup_loop(
    analysis: OperandAnalysis, product: ir.Dot, shared: int = SHARED_BYTES, iterations: int = 0
) -> WarpgroupLoop | None:
    """Return the plan of a product loop for warpgroups, or None; `iterations` is its trip count, 0 if unknown."""
    x, y = analysis.strided(product.x), analysis.strided(product.y)
    if x is None or y is None or not _multiplies(analysis, product, x, y):
        return None
    transposed = (x.along == 0, y.along == 1)
    m, n, depth = x.shape[0], y.shape[1], x.shape[1]
    swapped = transposed[1] if x.dtype is float32 and any(transposed) else m not in HEIGHTS
    high, wide = (n, m) if swapped else (m, n)
    if high not in HEIGHTS or wide % 16 or wide > MAX_WARPGROUP_COLUMNS or depth % (LINE_BYTES // x.dtype.bytes):
        return None
    sides = (_boxed_operand(analysis, x, transposed[0], m), _boxed_operand(analysis, y, transposed[1], n))
    if sides[0] is None or sides[1] is None:
        return None
    made = WarpgroupLoop(Tiling("group", m, n, high // 64, 1, 64, wide, swapped), sides[0], sides[1], depth, 0)
    stages = min(MAX_STAGES, shared // made.blocks // (made.stage + STAGE_BARRIERS_BYTES))
    return made._replace(
        stages=min(stages, max(2, iterations * depth * x.dtype.bytes // LINE_BYTES)) if iterations else stages
    )


def _boxed_operand(analysis: OperandAnalysis, memory: Strided, transposed: bool, extent: int) -> BoxedOperand | None:
    line = LINE_BYTES // memory.dtype.bytes
    within, above = memory.bounds[memory.along], memory.bounds[1 - memory.along]
    if memory.pitch * memory.dtype.bytes % MATRIX_ALIGNMENT:
        return None
    if transposed:  # copies whole boxes; products may ignore their end
        extent = -(-extent // line) * line
    parameter = list(analysis.parameters).index(memory.parameter)
    map = TensorMap(parameter, memory.dtype, memory.pitch, (line, line) if transposed else (line, extent))
    if above is not None:
        map = map._replace(lines=above.extent)
    if not memory.placed or (within is None and not analysis.is_within_lines(memory)):
        if analysis.starts(memory) * memory.dtype.bytes % MATRIX_ALIGNMENT:
            return None
        if any(memory.bounds) and not analysis.starts_inside(memory):
            return None
        map = map._replace(columns=memory.shape[memory.along], anywhere=True)
    if within is not None:
        map = map._replace(columns=within.extent)
    return BoxedOperand(memory, transposed, extent, map)


def coordinate_lines(name: str, side: BoxedOperand, offset: str, indices: tuple[str, str]) -> list[str]:
    """Return lines that compute the coordinates of a tile in its matrix: the indices of its mask, or its offset."""
    pitch, along = side.memory.pitch, side.memory.along
    column, line = indices[along], indices[1 - along]
    if side.map.anywhere:
        each = MATRIX_ALIGNMENT // side.memory.dtype.bytes
        return [
            f"const int {name}_column = {column or 0}, {name}_line = {line or 0};",
            f"const int {name}_start = ({offset} - {name}_column - int64({name}_line) * {pitch}) / {each};",
        ]
    text = [] if column and line else [f"const int64 {name}_first = {offset};"]
    first = f"({name}_first - {name}_column)" if column else f"{name}_first"
    text.append(f"const int {name}_column = {column or f'{name}_first % {pitch}'};")
    return [*text, f"const int {name}_line = {line or f'{first} / {pitch}'};"]


def unmasked_coordinate_lines(name: str, memory: Strided, offset: str) -> list[str]:
    """Return lines that compute the coordinates of an unmasked tile of memory."""
    first = f"const int64 {name}_first = {offset};"
    column, line = f"int({name}_first % {memory.pitch})", f"int({name}_first / {memory.pitch})"
    return [first, f"const int {name}_column = {column}, {name}_line = {line};"]


def producer_lines(plan: WarpgroupLoop) -> list[str]:
    """Return the producer's part of an iteration: copies the operands stage by stage."""
    text = []
    text += [
        f"for (int part = 0; part < {plan.depth // plan.piece}; ++part) {{",
        f"    uint32 place = operands + stage * {plan.stage};",
        "    wait(empty + stage * 8, phase ^ 1);",
        f"    arrive_and_expect(full + stage * 8, {plan.stage});",
    ]
    at = 0
    for name, side in zip("xy", (plan.x, plan.y), strict=True):
        for box in range(side.boxes):
            column, line = f"{name}_column", f"{name}_line"
            if side.transposed:
                column, line = f"{column} + {box * side.map.box[0]}" if box else column, f"{line} + part * {plan.piece}"
            else:
                column += f" + part * {plan.piece}"
            corner = f"{column}, {line}, {name}_start" if side.map.anywhere else f"{column}, {line}"
            text.append(f"    copy_box(place + {at}, {name}_map, {corner}, full + stage * 8);")
            at += side.map.box[1] * LINE_BYTES
    return [*text, f"    if (++stage == {plan.stages}) stage = 0, phase ^= 1;", "}"]


def end_guard(plan: WarpgroupLoop, index: str, bounds: tuple[str, str, str]) -> str:
    """Return a condition that skips steps beyond the end of a short loop, which the compiler unrolls."""
    start, stop, step = bounds
    if plan.depth != plan.piece or step != str(plan.depth) or not (start.isdigit() and stop.isdigit()):
        return ""
    length = int(stop) - int(start)
    is_short = length % plan.piece and length < MAX_UNROLLED_ITERATIONS * plan.piece
    return f"if ({index} + step * {plan.piece // 4} < {stop}) " if is_short else ""


def consumer_lines(plan: WarpgroupLoop, sums: str, guard: str) -> list[str]:
    """Return the consumers' part of an iteration; a stage is released when the next products have begun."""
    if plan.left_in_registers:
        return _register_consumer_lines(plan, sums)
    places = [_address(plan, side) for side in plan.sides]
    return [
        f"for (int part = 0; part < {plan.depth // plan.piece}; ++part) {{",
        f"    uint32 place = operands + stage * {plan.stage};",
        "    wait(full + stage * 8, phase);",
        "    fence_products();",
        "    #pragma unroll",
        "    for (int step = 0; step < 4; ++step)",
        f"        {guard}multiply({sums}, {places[0]}, {places[1]});",
        "    commit_products();",
        "    wait_for_products<1>();",
        "    if (before >= 0 && threadIdx.x % 128 == 0) arrive(empty + before * 8);",
        "    before = stage;",
        f"    if (++stage == {plan.stages}) stage = 0, phase ^= 1;",
        "}",
    ]


def _address(plan: WarpgroupLoop, side: BoxedOperand) -> str:
    """Return the address of an operand in a step."""
    step = 32 // side.memory.dtype.bytes
    own = "place" if side is plan.x else f"place + {plan.x.bytes}"
    if side is plan.sides[0] and plan.tiling.down > 1:
        own += f" + group * {64 * LINE_BYTES}"
    advance, panel = (step * LINE_BYTES, plan.piece * LINE_BYTES) if side.transposed else (32, 16)
    return f"operand_descriptor({own} + step * {advance}, {panel}, {8 * LINE_BYTES})"


def _register_consumer_lines(plan: WarpgroupLoop, sums: str) -> list[str]:
    """Return the consumers' part with a left operand read to registers first, after the preceding products."""
    left, right = plan.sides
    first = "place" if left is plan.x else f"place + {plan.x.bytes}"
    return [
        "const int lane = threadIdx.x % 32, row = group * 64 + threadIdx.x / 32 % 4 * 16;",
        f"for (int part = 0; part < {plan.depth // plan.piece}; ++part) {{",
        f"    uint32 place = operands + stage * {plan.stage};",
        "    wait(full + stage * 8, phase);",
        "    wait_for_products<0>();",
        "    if (before >= 0 && threadIdx.x % 128 == 0) arrive(empty + before * 8);",
        f"    uint32 left[4][4], panel = {first} + row / 32 * {plan.piece * LINE_BYTES};",
        "    #pragma unroll",
        "    for (int step = 0; step < 4; ++step)",
        "        read_words<true>(left[step], panel, step * 8, row % 32 / 4, lane);",
        "    fence_products();",
        "    #pragma unroll",
        "    for (int step = 0; step < 4; ++step)",
        f"        multiply({sums}, left[step], {_address(plan, right)});",
        "    commit_products();",
        "    before = stage;",
        f"    if (++stage == {plan.stages}) stage = 0, phase ^= 1;",
        "}",
    ]


def barrier_lines(plan: WarpgroupLoop, shared: str) -> list[str]:
    """Return the lines before the roles of the warps split."""
    return [
        f"const uint32 operands = shared_address({shared}), "
        f"full = operands + {plan.stages * plan.stage}, empty = full + {8 * plan.stages};",
        f"if (threadIdx.x == {plan.tiling.threads}) prefetch_map(x_map), prefetch_map(y_map);",
        "if (threadIdx.x == 0) {",
        f"    for (int stage = 0; stage < {plan.stages}; ++stage) {{",
        "        init_barrier(full + stage * 8, 1);",
        f"        init_barrier(empty + stage * 8, {plan.tiling.down});",
        "    }",
        '    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");',
        "}",
        "__syncthreads();",
    ]


def split_roles(plan: WarpgroupLoop, sums: str, producer: list[str], consumer: list[str]) -> list[str]:
    """Return the two roles, each with its loop; producers return after theirs."""
    limits = plan.limits
    return [
        f"if (threadIdx.x >= {plan.tiling.threads}) {{  // these warps copy",
        f"    {limits[0]}",
        f"    if (threadIdx.x == {plan.tiling.threads}) {{",
        "        int stage = 0, phase = 0;",
        *[f"        {line}" for line in producer],
        "    }",
        "    return;",
        "}",
        limits[1],
        "{",
        "    int stage = 0, phase = 0, before = -1;",
        "    const int group = threadIdx.x / 128;",
        f"    fence_registers({sums});",
        *[f"    {line}" for line in consumer],
        f"    finish_products({sums});",
        "}",
    ]
