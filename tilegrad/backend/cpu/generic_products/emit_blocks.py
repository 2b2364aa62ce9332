"""Emit the functions that multiply: blocks of the result whose sums stay in registers along k.

Sums of a task are in its *tile*: panels of columns, row by row, each row of a panel at a constant distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..emit import I64, PTR, LlvmValue, Type, constant
from .description import MAX_DOT_COLUMNS, BlockShape
from .element_format import ElementFormat
from .emit_packing import load_element
from .function_builder import FunctionBuilder

FENCE = 'call void asm sideeffect "", "~{memory}"()'
"""A barrier that keeps LLVM from loading operands of the next step early, for which there are no registers."""


def multiply_add(f: FunctionBuilder, x: LlvmValue, y: LlvmValue, z: LlvmValue) -> LlvmValue:
    """Emit x * y + z, in one instruction where the processor has one."""
    if not x.type.is_float:
        return f.op("add", f.op("mul", x, y), z)
    return f.op("fadd contract", f.op("fmul contract", x, y), z)


def zeros(format: ElementFormat) -> LlvmValue:
    return constant(0, Type(format.sum.element, format.lanes))


def block_function(format: ElementFormat, shape: BlockShape, rows: int, vectors: int) -> FunctionBuilder:
    """Emit `block_ROWS_VECTORS(left, right, depth, sums, fresh)` for packed operands."""
    f = FunctionBuilder(
        f"block_{rows}_{vectors}", [("left", PTR), ("right", PTR), ("depth", I64), ("sums", PTR), ("fresh", I64)]
    )
    left, right, depth, sums, fresh = f.arguments
    element, lanes = str(format.sum), format.lanes
    type = Type(element, lanes)
    carried = [(f"sum{r}_{v}", zeros(format)) for r in range(rows) for v in range(vectors)]
    loop = f.open_loop("k", constant(0, I64), depth, constant(1, I64), carried, guarded=True, pinned=True)
    row = f.offset(right, element, f.times(loop.index, shape.columns))
    y = [
        f.instruction(
            f"load {type}, ptr {f.offset(row, element, constant(v * lanes, I64))}, align {format.bytes}", type
        )
        for v in range(vectors)
    ]
    column = f.offset(left, element, loop.index)
    made = []
    for r in range(rows):
        at = f.offset(column, element, constant(r * shape.left_row, I64))
        x = f.splat(f.instruction(f"load {element}, ptr {at}, align {format.bytes}", format.sum), lanes)
        made += [multiply_add(f, x, y[v], loop.carried[r * vectors + v]) for v in range(vectors)]
    f.effect(FENCE)
    made = list(f.close_loop(loop, made))
    places = [r * shape.columns + v * lanes for r in range(rows) for v in range(vectors)]
    add_to_tile(f, made, [f.offset(sums, element, constant(at, I64)) for at in places], fresh)
    return f


def add_to_tile(f: FunctionBuilder, made: Sequence[LlvmValue], places: Sequence[LlvmValue], fresh: LlvmValue) -> None:
    """Store sums into the tile, or add them to what is there."""

    def store(x: LlvmValue, at: LlvmValue) -> None:
        f.effect(f"store {x.type} {x}, ptr {at}, align 4")

    f.open_branch("first")
    for x, at in zip(made, places, strict=True):
        store(x, at)
    side = f.close_branch()
    f.open_branch("further")
    for x, at in zip(made, places, strict=True):
        before = f.instruction(f"load {x.type}, ptr {at}, align 4", x.type)
        store(f.op("fadd" if x.type.is_float else "add", before, x), at)
    f.close_branches(f.compare("ne", fresh, constant(0, I64)), side, f.close_branch())


def choose(f: FunctionBuilder, sizes: Sequence[int], wanted: LlvmValue, body: Callable[[int], None]) -> None:
    """Emit code for the smallest size that is at least what is wanted, or for the last one."""
    if len(sizes) == 1:
        body(sizes[0])
        return
    f.open_branch("fits")
    body(sizes[0])
    side = f.close_branch()
    f.open_branch("more")
    choose(f, sizes[1:], wanted, body)
    f.close_branches(f.compare("sle", wanted, constant(sizes[0], I64)), side, f.close_branch())


def blocks_function(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `block(left, right, depth, sums, fresh, rows, columns)`, which chooses the code for a block."""
    names = ("depth", "fresh", "rows", "columns")
    f = FunctionBuilder("block", [("left", PTR), ("right", PTR), ("sums", PTR), *[(name, I64) for name in names]])
    left, right, sums, depth, fresh, rows, columns = f.arguments

    def of_rows(n: int) -> None:
        choose(
            f,
            [k * format.lanes for k in range(1, shape.vectors + 1)],
            columns,
            lambda width: f.run(f"block_{n}_{width // format.lanes}", left, right, depth, sums, fresh),
        )

    choose(f, shape.row_variants, rows, of_rows)
    return f


def dot_blocks(shape: BlockShape) -> tuple[tuple[int, int], ...]:
    """Return rows and columns of blocks of dot products, which are in one panel."""
    return ((1, min(MAX_DOT_COLUMNS, shape.columns)), (2, 4), (4, 4))


def dots_function(format: ElementFormat, shape: BlockShape, rows: int, columns: int) -> FunctionBuilder:
    """Emit `dots_ROWS(left, left_rows, right, right_columns, depth, sums)`: dot products of contiguous rows."""
    pointers = [("left", PTR), ("left_rows", PTR), ("right", PTR), ("right_columns", PTR)]
    f = FunctionBuilder(f"dots_{rows}", [*pointers, ("depth", I64), ("sums", PTR)])
    left, left_rows, right, right_columns, depth, sums = f.arguments
    stored, element, lanes = str(format.stored), str(format.sum), format.lanes
    x = [f.offset(left, stored, f.word_at(left_rows, n)) for n in range(rows)]
    y = [f.offset(right, stored, f.word_at(right_columns, n)) for n in range(columns)]
    carried = [(f"sum{n}", zeros(format)) for n in range(rows * columns)]

    def step(k: LlvmValue, sums: Sequence[LlvmValue], load: Callable[[LlvmValue], LlvmValue]) -> list[LlvmValue]:
        of_y = [load(f.offset(at, stored, k)) for at in y]
        made = []
        for n, at in enumerate(x):
            of_x = load(f.offset(at, stored, k))
            made += [multiply_add(f, of_x, each, sums[n * columns + m]) for m, each in enumerate(of_y)]
        return made

    whole = f.op("and", depth, constant(-lanes, I64))
    loop = f.open_loop("k", constant(0, I64), whole, constant(lanes, I64), carried, guarded=True, pinned=True)
    full = f.close_loop(loop, step(loop.index, loop.carried, lambda at: f.load_vector(at, format)))
    rest = f.minus(depth, whole)
    f.open_branch("rest")
    made = step(whole, full, lambda at: f.load_first(at, rest, format))
    side = f.close_branch()
    f.open_branch("whole")
    merged = f.close_branches(
        f.compare("sgt", rest, constant(0, I64)), side, f.close_branch(), list(zip(made, full, strict=True))
    )
    for n, total in enumerate(merged):
        at = f.offset(sums, element, constant(n // columns * shape.columns + n % columns, I64))
        f.effect(f"store {format.sum} {lane_sum(f, total, format)}, ptr {at}, align {format.bytes}")
    return f


def lane_sum(f: FunctionBuilder, x: LlvmValue, format: ElementFormat) -> LlvmValue:
    """Add up the lanes of a vector, in halves."""
    lanes = format.lanes
    while lanes > 1:
        lanes //= 2
        other = f.shuffle(x, x, [n + lanes if n < lanes else -1 for n in range(format.lanes)])
        x = f.op("fadd" if x.type.is_float else "add", x, other)
    return f.extract(x, 0)


def row_masks(format: ElementFormat) -> tuple[bool, ...]:
    """Return which code for unpacked columns there is: masked loads cost nothing where the processor has them."""
    return (True,) if format.has_masks else (False, True)


def rows_function(format: ElementFormat, shape: BlockShape, rows: int, vectors: int, masked: bool) -> FunctionBuilder:
    """Emit `rows_ROWS_VECTORS(left, left_rows, left_depth, right, right_depth, depth, sums, panel, fresh, columns)`.

    Few rows, each element of which is multiplied by contiguous columns of the right operand as it is in memory.
    """
    pointers = [("left", PTR), ("left_rows", PTR), ("left_depth", PTR), ("right", PTR), ("right_depth", PTR)]
    numbers = [("depth", I64), ("panel", I64), ("fresh", I64), ("columns", I64)]
    name = f"rows_{rows}_{vectors}" + "_masked" * masked
    f = FunctionBuilder(name, [*pointers, ("sums", PTR), *numbers])
    left, left_rows, left_depth, right, right_depth, sums, depth, panel, fresh, columns = f.arguments
    stored, element, lanes = str(format.stored), str(format.sum), format.lanes
    x = [f.offset(left, stored, f.word_at(left_rows, n)) for n in range(rows)]
    carried = [(f"sum{n}", zeros(format)) for n in range(rows * vectors)]
    loop = f.open_loop("k", constant(0, I64), depth, constant(1, I64), carried, guarded=True, pinned=True)
    row = f.offset(right, stored, f.word_at(right_depth, loop.index))
    k = f.word_at(left_depth, loop.index)
    places = [f.offset(row, stored, constant(v * lanes, I64)) for v in range(vectors)]
    if masked:
        y = [f.load_first(at, f.minus(columns, v * lanes), format) for v, at in enumerate(places)]
    else:
        y = [f.load_vector(at, format) for at in places]
    made = []
    for n, at in enumerate(x):
        here = f.splat(load_element(f, f.offset(at, stored, k), format), lanes)
        made += [multiply_add(f, here, each, loop.carried[n * vectors + v]) for v, each in enumerate(y)]
    made = list(f.close_loop(loop, made))
    targets = []
    for n in range(rows):
        for v in range(vectors):
            of_panel = f.offset(sums, element, f.times(panel, v // shape.vectors))
            targets.append(f.offset(of_panel, element, constant(n * shape.columns + v % shape.vectors * lanes, I64)))
    add_to_tile(f, made, targets, fresh)
    return f
