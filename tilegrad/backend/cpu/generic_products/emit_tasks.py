"""Emit the functions that threads run: pad operands, take tasks, multiply, add up parts of the depth, store results."""

from __future__ import annotations

from .. import vectors
from ..emit import I64, PTR, LlvmValue, Type, constant
from ..native import WORD_BYTES
from .description import MAX_DEPTH, METHODS, ROW_BLOCKS, ROWS, WORDS, BlockShape
from .element_format import ElementFormat
from .emit_blocks import choose, dot_blocks
from .function_builder import FunctionBuilder

LEFT, RIGHT, OUT = 1, 2, 3
"""Words of an axis with its strides."""
BLOCK_KEY, LEFT_KEY, RIGHT_KEY, LEFT_RUNS, RIGHT_RUNS, COLUMN_RUNS = range(6)
"""Words of a thread that say which tables are filled (0: none), and how many runs they have."""
ARGUMENTS = [("arguments", PTR), ("begin", I64), ("end", I64)]
TASK = [("described", PTR), ("left", PTR), ("right", PTR), ("memory", PTR), ("tile", PTR)]


class TaskBuilder(FunctionBuilder):
    """Emits a function that reads a description."""

    described: LlvmValue

    def word(self, name: str) -> LlvmValue:
        """Load a word of the description by its name."""
        at = self.offset(self.described, "i64", constant(WORDS.index(name), I64))
        return self.load_invariant(at, I64, WORD_BYTES)

    def place(self, memory: LlvmValue, name: str) -> LlvmValue:
        """Return the address of a part of the memory of a thread."""
        return self.offset(memory, "i8", self.word(name))

    def words(self, pointer: LlvmValue, index: LlvmValue) -> LlvmValue:
        return self.offset(pointer, "i64", index)

    def fill(
        self, axes: str, field: int, start: LlvmValue, count: LlvmValue, padded: LlvmValue, table: LlvmValue
    ) -> None:
        """Fill a table with the offsets of some positions of the axes of rows, columns, sums or the batch."""
        at = self.words(self.described, self.word(f"{axes}_axes"))
        self.run("offsets", at, self.word(f"{axes}_rank"), constant(field, I64), start, count, padded, table)

    def remaining(self, total: LlvmValue, start: LlvmValue, most: LlvmValue | int) -> LlvmValue:
        return self.least(self.minus(total, start), most)


def _entry(name: str) -> tuple[TaskBuilder, list[LlvmValue]]:
    """Begin a function that threads call: its arguments are the description, three operands and memory."""
    f = TaskBuilder(name, ARGUMENTS)
    loaded = []
    for n in range(5):
        at = f.words(f.arguments[0], constant(n, I64))
        loaded.append(f.instruction(f"load ptr, ptr {at}, align 8", PTR, "argument"))
    f.described = loaded[0]
    return f, loaded


def prepare_function(format: ElementFormat) -> FunctionBuilder:
    """Emit `prepare`: sets the counter back, and copies operands that are read beyond their borders into zeros."""
    f, (described, left, right, _, scratch) = _entry("prepare")
    _, begin, end = f.arguments
    with f.when(f.compare("eq", begin, constant(0, I64))):  # a process may have been forked in the middle of a run
        f.effect(f"store atomic i64 0, ptr {described} monotonic, align 8")
    for side, operand in (("left", left), ("right", right)):
        padding = f.word(f"{side}_padding")
        with f.when(f.compare("ne", padding, constant(0, I64))):
            rows, instances = f.word(f"{side}_padded_rows"), f.word("instances")
            first = f.instruction(f"udiv i64 {f.times(rows, begin)}, {instances}", I64)
            last = f.instruction(f"udiv i64 {f.times(rows, end)}, {instances}", I64)
            f.run("pad", f.words(described, padding), operand, f.place(scratch, f"{side}_padded"), first, last)
    return f


def multiply_function(format: ElementFormat) -> FunctionBuilder:
    """Emit `multiply`: takes tasks by the counter until there are none."""
    f, (described, left, right, out, scratch) = _entry("multiply")
    _, begin, end = f.arguments
    sides = []
    for side, operand in (("left", left), ("right", right)):
        whole = f.compare("eq", f.word(f"{side}_padding"), constant(0, I64))
        sides.append(f.select(whole, operand, f.place(scratch, f"{side}_padded")))
    tasks, splits = f.word("tasks"), f.word("splits")
    first = f.offset(scratch, "i8", f.word("instance_start"))
    partials = f.offset(scratch, "i8", f.word("partials"))
    with f.counted("instance", begin, end) as instance:
        memory = f.offset(first, "i8", f.times(instance, f.word("instance_bytes")))
        own, keys = f.place(memory, "tile"), f.place(memory, "keys")
        for key in (BLOCK_KEY, LEFT_KEY, RIGHT_KEY):
            f.set_word(keys, key, constant(0, I64))
        label, _ = f.open_while([])
        task = f.instruction(f"atomicrmw add ptr {described}, i64 1 monotonic, align 8", I64)
        f.enter_while(f.compare("slt", task, tasks))
        alone = f.compare("eq", splits, constant(1, I64))
        tile = f.select(alone, own, f.offset(partials, "i8", f.times(task, f.word("tile_bytes"))))
        f.run("tables", described, memory, task)
        f.run("task", described, *sides, memory, tile, task)
        with f.when(alone):
            f.run("store", described, out, memory, tile, task)
        f.close_while(label, [], [], [])
    return f


def finish_function(format: ElementFormat) -> FunctionBuilder:
    """Emit `finish`: adds up the parts of split sums, in order."""
    f, (described, _, _, out, scratch) = _entry("finish")
    _, begin, end = f.arguments
    splits, element = f.word("splits"), str(format.sum)
    type = Type(element, format.lanes)
    with f.when(f.compare("sgt", splits, constant(1, I64))):
        first = f.offset(scratch, "i8", f.word("instance_start"))
        partials = f.offset(scratch, "i8", f.word("partials"))
        bytes = f.word("tile_bytes")
        count = f.instruction(f"udiv i64 {bytes}, {format.bytes}", I64)
        with f.counted("instance", begin, end) as instance:
            memory = f.offset(first, "i8", f.times(instance, f.word("instance_bytes")))
            start, step = f.times(instance, splits), f.times(f.word("instances"), splits)
            with f.counted("task", start, f.word("tasks"), step) as task:
                tile = f.offset(partials, "i8", f.times(task, bytes))
                with f.counted("part", 1, splits) as part:
                    other = f.offset(tile, "i8", f.times(part, bytes))
                    with f.counted("n", 0, count, format.lanes) as n:
                        at = f.offset(tile, element, n)
                        x = f.instruction(f"load {type}, ptr {at}, align 4", type)
                        y = f.instruction(f"load {type}, ptr {f.offset(other, element, n)}, align 4", type)
                        total = f.op("fadd" if type.is_float else "add", x, y)
                        f.effect(f"store {type} {total}, ptr {at}, align 4")
                f.run("tables", described, memory, task)
                f.run("store", described, out, memory, tile, task)
    return f


def alone_function() -> FunctionBuilder:
    """Emit `alone`: a whole product on the thread that calls."""
    f = FunctionBuilder("alone", ARGUMENTS)
    for name in ("prepare", "multiply", "finish"):
        f.run(name, *f.arguments)
    return f


class _Block:
    """The position of a task: its part of the batch, of rows, of columns and of the depth."""

    def __init__(self, f: TaskBuilder, task: LlvmValue) -> None:
        def split(x: LlvmValue, by: str) -> tuple[LlvmValue, LlvmValue]:
            count = f.word(by)
            return (
                f.instruction(f"urem i64 {x}, {count}", I64, by),
                f.instruction(f"udiv i64 {x}, {count}", I64, "rest"),
            )

        self.split, rest = split(task, "splits")
        self.batch, self.number = split(rest, "batch_count")
        column, row = split(self.number, "column_blocks")
        self.row, self.column = f.times(row, f.word("block_rows")), f.times(column, f.word("block_columns"))
        self.rows = f.remaining(f.word("rows"), self.row, f.word("block_rows"))
        self.columns = f.remaining(f.word("columns"), self.column, f.word("block_columns"))

    def batch_offset(self, f: TaskBuilder, field: int, first: str, memory: LlvmValue) -> LlvmValue:
        one = constant(1, I64)
        table = f.place(memory, "runs")
        f.fill("batch", field, self.batch, one, one, table)
        return f.plus(f.word_at(table, 0), f.word(first))


def tables_function(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `tables`: fill the tables of the rows and columns of a task, unless they are those of the last task."""
    f = TaskBuilder("tables", [("described", PTR), ("memory", PTR), ("task", I64)])
    f.described, memory, task = f.arguments
    block = _Block(f, task)
    keys, key = f.place(memory, "keys"), f.plus(block.number, 1)
    with f.when(f.compare("ne", f.word_at(keys, BLOCK_KEY), key)):
        f.set_word(keys, BLOCK_KEY, key)
        columns = f.place(memory, "right_columns")
        f.fill("row", LEFT, block.row, block.rows, f.plus(block.rows, format.lanes), f.place(memory, "left_rows"))
        f.fill("column", RIGHT, block.column, block.columns, f.rounded_up(block.columns, shape.columns), columns)
        f.fill("row", OUT, block.row, block.rows, block.rows, f.place(memory, "out_rows"))
        f.fill("column", OUT, block.column, block.columns, block.columns, f.place(memory, "out_columns"))
        with f.when(f.compare("eq", f.word("method"), constant(ROWS, I64))):
            number = f.run_for_word("runs", columns, block.columns, f.place(memory, "column_runs"))
            f.set_word(keys, COLUMN_RUNS, number)
    return f


def task_function(format: ElementFormat, shape: BlockShape, method: int) -> FunctionBuilder:
    """Emit `task`: the sums of one task, into a tile, by a method."""
    f = TaskBuilder("task", [*TASK, ("task", I64)])
    f.described, left, right, memory, tile, task = f.arguments
    block = _Block(f, task)
    stored = str(format.stored)
    x = f.offset(left, stored, block.batch_offset(f, LEFT, "left_first", memory))
    y = f.offset(right, stored, block.batch_offset(f, RIGHT, "right_first", memory))
    start = f.times(block.split, f.word("split_depth"))
    depth = f.remaining(f.word("depth"), start, f.word("split_depth"))
    f.run(METHODS[method], f.described, x, y, memory, tile, block.rows, block.columns, start, depth)
    return f


PART = [*TASK, ("rows", I64), ("columns", I64), ("start", I64), ("depth", I64)]


def packed_function(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `packed`: pack panels of both operands for each part of the depth, and multiply them."""
    f = TaskBuilder("packed", PART)
    f.described, left, right, memory, tile, rows, columns, start, depth = f.arguments
    once = f.intrinsic("smax", depth, constant(1, I64))
    cached = f.word("cached_rows")
    with f.counted("k", 0, once, MAX_DEPTH) as k:
        here = f.remaining(depth, k, MAX_DEPTH)
        fresh = f.convert("zext", f.compare("eq", k, constant(0, I64)), "i64")
        position = f.plus(start, k)
        _pack_right(f, (right, memory, columns, position, here), format, shape)
        left_runs = _depth_table(f, LEFT, "left", (memory, position, here), format)
        with f.counted("first", 0, rows, cached) as first:
            count = f.remaining(rows, first, cached)
            _pack_left(f, (left, memory, first, count, here, left_runs), format, shape)
            _multiply_panels(f, (memory, tile, first, count, columns, here, fresh), format, shape)
    return f


def _depth_table(
    f: TaskBuilder, field: int, side: str, values: tuple[LlvmValue, ...], format: ElementFormat
) -> LlvmValue:
    """Fill the table of a part of the depth for an operand, unless it is filled; return the number of its runs."""
    memory, position, depth = values
    table, keys, key = f.place(memory, f"{side}_depth"), f.place(memory, "keys"), f.plus(position, 1)
    slot, count = (LEFT_KEY, LEFT_RUNS) if field == LEFT else (RIGHT_KEY, RIGHT_RUNS)
    with f.when(f.compare("ne", f.word_at(keys, slot), key)):
        f.set_word(keys, slot, key)
        with f.when(f.compare("sgt", depth, constant(0, I64))):
            f.fill("sum", field, position, depth, f.rounded_up(depth, format.lanes), table)
        f.set_word(keys, count, f.run_for_word("runs", table, depth, f.place(memory, f"{side}_runs")))
    return f.word_at(keys, count)


def _pack_right(f: TaskBuilder, values: tuple[LlvmValue, ...], format: ElementFormat, shape: BlockShape) -> None:
    right, memory, columns, position, depth = values
    depth_runs = _depth_table(f, RIGHT, "right", (memory, position, depth), format)
    table, panels, runs = (f.place(memory, name) for name in ("right_columns", "right_panels", "runs"))
    with f.counted("column", 0, columns, shape.columns) as column:
        count = f.remaining(columns, column, shape.columns)
        here = f.words(table, column)
        number = f.run_for_word("runs", here, count, runs)
        panel = f.offset(panels, str(format.sum), f.times(column, MAX_DEPTH))
        f.run(
            *("pack", right, f.place(memory, "right_depth"), depth, here, count),
            *(panel, constant(shape.columns, I64), runs, number, f.place(memory, "right_runs"), depth_runs),
        )


def _pack_left(f: TaskBuilder, values: tuple[LlvmValue, ...], format: ElementFormat, shape: BlockShape) -> None:
    left, memory, first, count, depth, depth_runs = values
    table, panels, runs = (f.place(memory, name) for name in ("left_rows", "left_panels", "runs"))
    with f.counted("row", 0, count, shape.rows) as row:
        rows = f.remaining(count, row, shape.rows)
        here = f.words(table, f.plus(first, row))
        number = f.run_for_word("runs", here, rows, runs)
        panel = f.offset(panels, str(format.sum), f.times(row, shape.left_row))
        f.run(
            *("pack", left, here, rows, f.place(memory, "left_depth"), depth),
            *(panel, constant(shape.left_row, I64), f.place(memory, "left_runs"), depth_runs, runs, number),
        )


def _multiply_panels(f: TaskBuilder, values: tuple[LlvmValue, ...], format: ElementFormat, shape: BlockShape) -> None:
    memory, tile, first, count, columns, depth, fresh = values
    element, panel = str(format.sum), f.word("panel_elements")
    of_left, of_right = f.place(memory, "left_panels"), f.place(memory, "right_panels")
    with f.counted("column", 0, columns, shape.columns) as column:
        width = f.remaining(columns, column, shape.columns)
        number = f.op("udiv", column, constant(shape.columns, I64))
        right = f.offset(of_right, element, f.times(column, MAX_DEPTH))
        sums = f.offset(tile, element, f.times(number, panel))
        with f.counted("row", 0, count, shape.rows) as row:
            rows = f.remaining(count, row, shape.rows)
            left = f.offset(of_left, element, f.times(row, shape.left_row))
            at = f.offset(sums, element, f.times(f.plus(first, row), shape.columns))
            f.run("block", left, right, at, depth, fresh, rows, width)


def dots_task(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `dots`: a task whose operands are both contiguous along the depth."""
    f = TaskBuilder("dots", PART)
    f.described, left, right, memory, tile, rows, columns, start, depth = f.arguments
    stored, element, panel = str(format.stored), str(format.sum), f.word("panel_elements")
    x, y = f.offset(left, stored, start), f.offset(right, stored, start)
    left_rows, right_columns = f.place(memory, "left_rows"), f.place(memory, "right_columns")

    def of_rows(height: int, width: int) -> None:
        with f.counted("row", 0, rows, height) as row, f.counted("column", 0, columns, width) as column:
            of_panel = f.times(f.op("udiv", column, constant(shape.columns, I64)), panel)
            within = f.op("urem", column, constant(shape.columns, I64))
            at = f.plus(f.plus(of_panel, f.times(row, shape.columns)), within)
            f.run(
                f"dots_{height}",
                *(x, f.words(left_rows, row), y, f.words(right_columns, column), depth, f.offset(tile, element, at)),
            )

    widths = dict(dot_blocks(shape))
    choose(f, list(widths), rows, lambda n: of_rows(n, widths[n]))
    return f


def rows_task(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `rows`: a task of few rows whose right operand is contiguous along its columns; for one row, in runs."""
    f = TaskBuilder("rows", PART)
    f.described, left, right, memory, tile, rows, _, start, depth = f.arguments
    runs, number = f.place(memory, "column_runs"), f.word_at(f.place(memory, "keys"), COLUMN_RUNS)
    with f.counted("k", 0, f.intrinsic("smax", depth, constant(1, I64)), MAX_DEPTH) as k:
        here = f.remaining(depth, k, MAX_DEPTH)
        fresh = f.convert("zext", f.compare("eq", k, constant(0, I64)), "i64")
        for field, side in ((LEFT, "left"), (RIGHT, "right")):
            _depth_table(f, field, side, (memory, f.plus(start, k), here), format)
        with f.counted("run", 0, number) as n:
            run = f.words(runs, f.times(n, 2))
            _multiply_run(f, (left, right, memory, tile, rows, here, fresh), run, format, shape)
    return f


def _multiply_run(
    f: TaskBuilder, values: tuple[LlvmValue, ...], run: LlvmValue, format: ElementFormat, shape: BlockShape
) -> None:
    """Multiply rows by a run of columns, strip by strip."""
    left, right, memory, tile, rows, depth, fresh = values
    stored, element, panel = str(format.stored), str(format.sum), f.word("panel_elements")
    left_rows, right_columns = f.place(memory, "left_rows"), f.place(memory, "right_columns")
    tables = f.place(memory, "left_depth"), f.place(memory, "right_depth")
    first, length = f.word_at(run, 0), f.word_at(run, 1)
    y = f.offset(right, stored, f.word_at(right_columns, first))

    def strips(height: int, vectors: int) -> None:
        wide = vectors * format.lanes
        with f.counted("row", 0, rows, height) as row, f.counted("column", 0, length, wide) as column:
            at, count = f.plus(first, column), f.minus(length, column)
            of_panel = f.times(f.op("udiv", at, constant(shape.columns, I64)), panel)
            within = f.op("urem", at, constant(shape.columns, I64))
            sums = f.offset(tile, element, f.plus(f.plus(of_panel, within), f.times(row, shape.columns)))
            here = f.offset(y, stored, column)
            arguments = (left, f.words(left_rows, row), tables[0], here, tables[1], sums, depth, panel, fresh, count)
            name = f"rows_{height}_{vectors}"
            if format.has_masks:
                f.run(f"{name}_masked", *arguments)
            else:
                f.open_branch("whole")
                f.run(name, *arguments)
                side = f.close_branch()
                f.open_branch("partial")
                f.run(f"{name}_masked", *arguments)
                f.close_branches(f.compare("sge", count, constant(wide, I64)), side, f.close_branch())

    def of_rows(height: int) -> None:
        widths = [vectors for n, vectors in ROW_BLOCKS if n == height]
        choose(f, [v * format.lanes for v in widths], length, lambda wide: strips(height, wide // format.lanes))

    choose(f, sorted({n for n, _ in ROW_BLOCKS}), rows, of_rows)


def store_function(format: ElementFormat, shape: BlockShape) -> FunctionBuilder:
    """Emit `store`: rounds the sums of a tile and stores them where the result has them."""
    f = TaskBuilder("store", [("described", PTR), ("out", PTR), ("memory", PTR), ("tile", PTR), ("task", I64)])
    f.described, out, memory, tile, task = f.arguments
    block = _Block(f, task)
    stored, element, panel = str(format.stored), str(format.sum), f.word("panel_elements")
    base = f.offset(out, stored, block.batch_offset(f, OUT, "out_first", memory))
    out_rows, out_columns, runs = (f.place(memory, name) for name in ("out_rows", "out_columns", "runs"))
    dense_columns = f.word("dense_columns")
    with f.counted("column", 0, block.columns, shape.columns) as column:
        count = f.remaining(block.columns, column, shape.columns)
        here = f.words(out_columns, column)
        within = f.instruction(f"urem i64 {f.plus(block.column, column)}, {dense_columns}", I64)
        is_dense = f.compare("sle", f.plus(within, count), dense_columns)
        f.open_branch("dense")
        f.set_word(runs, 0, constant(0, I64))
        f.set_word(runs, 1, count)
        dense = f.close_branch()
        f.open_branch("searched")
        found = f.run_for_word("runs", here, count, runs)
        results = [(constant(1, I64), found)]
        (number,) = f.close_branches(is_dense, dense, f.close_branch(), results)
        sums = f.offset(tile, element, f.times(f.op("udiv", column, constant(shape.columns, I64)), panel))
        with f.counted("row", 0, block.rows) as row:
            source = f.offset(sums, element, f.times(row, shape.columns))
            target = f.offset(base, stored, f.word_at(out_rows, row))
            f.open_branch("runs")
            _store_runs(f, (source, target, here, runs, number), format)
            side = f.close_branch()
            f.open_branch("elements")
            _store_elements(f, (source, target, here, count), format)
            f.close_branches(f.compare("sle", f.times(number, 4), f.plus(count, 3)), side, f.close_branch())
    return f


def _store_runs(f: TaskBuilder, values: tuple[LlvmValue, ...], format: ElementFormat) -> None:
    source, target, columns, runs, number = values
    stored, element, type = str(format.stored), str(format.sum), Type(str(format.sum), format.lanes)
    with f.counted("r", 0, number) as r:
        run = f.words(runs, f.times(r, 2))
        first, length = f.word_at(run, 0), f.word_at(run, 1)
        x, y = f.offset(source, element, first), f.offset(target, stored, f.word_at(columns, first))
        with f.counted("n", 0, length, format.lanes) as n:
            found = f.instruction(f"load {type}, ptr {f.offset(x, element, n)}, align {format.bytes}", type)
            f.store_first(found, f.offset(y, stored, n), f.minus(length, n), format)


def _store_elements(f: TaskBuilder, values: tuple[LlvmValue, ...], format: ElementFormat) -> None:
    source, target, columns, count = values
    stored, element = str(format.stored), str(format.sum)
    with f.counted("n", 0, count) as n:
        x = f.instruction(f"load {element}, ptr {f.offset(source, element, n)}, align {format.bytes}", format.sum)
        made = vectors.cast(f, x, format.accumulated, format.dtype)
        at = f.offset(target, stored, f.word_at(columns, n))
        f.effect(f"store {format.stored} {made}, ptr {at}, align {format.stored_bytes}")
