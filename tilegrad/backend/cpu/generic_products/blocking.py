"""Sort the axes of a product into rows, columns, depth and batch, and choose the sizes of its blocks and tasks."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ....ops.product_form import AxisStep, ProductForm
from ..costs import MIN_SPLIT_NS
from ..native import WORD_BYTES
from ..target import Target
from .description import DOTS, MAX_DEPTH, PACKED, ROW_BLOCKS, ROWS, WORDS, BlockShape
from .element_format import ElementFormat

if TYPE_CHECKING:
    from .code import ProductCode
    from .product import StridedOperand

MAX_DOT_ROWS = 16
"""Rows up to which contiguous rows of both operands are multiplied as they are in memory."""
MAX_UNPACKED_ROWS, UNPACKED_VECTORS = (max(sizes) for sizes in zip(*ROW_BLOCKS, strict=True))
"""Rows up to which the right operand is not packed, and the vectors of the widest block of it."""
MIN_RUN = 8
"""Contiguous columns that one row takes without packing."""
MAX_TASK_ROWS, MAX_TASK_COLUMNS, MAX_UNPACKED_COLUMNS = 1024, 512, 2048
MIN_TASK_ROWS, MIN_TASK_COLUMNS = 112, 128
TASKS_PER_THREAD = 4
"""Tasks of a thread, so that others can do the work of one that loses its core."""
MAX_UNEVEN_TASKS = 16
"""Tasks of a thread from which on threads need not have equally many."""
MIN_SPLIT_DEPTH, MIN_TASKS = 1024, 16
"""Least depth of a part of split sums, and tasks up to which sums are split; not a number of threads, which no result
may depend on.
"""
OPERATIONS_PER_NS = 60.0
"""Assumed speed of a core, which decides whether a product is run by all threads."""
LEFT_CACHE_SHARE, RIGHT_CACHE_SHARE = 1 / 4, 1 / 2
"""Shares of the second cache for packed operands."""


class StridedAxis(NamedTuple):
    """An axis of a product: its strides in elements."""

    extent: int
    left: int
    right: int
    out: int

    @property
    def swapped(self) -> StridedAxis:
        return StridedAxis(self.extent, self.right, self.left, self.out)


Axes = tuple[StridedAxis, ...]


class PaddedAxis(NamedTuple):
    """An axis of an operand that is copied into a frame of zeros."""

    padded: int
    before: int
    extent: int
    stride: int


class Padding(NamedTuple):
    """A copy of an operand with zeros around it; no axes if none is needed."""

    axes: tuple[PaddedAxis, ...] = ()

    @property
    def elements(self) -> int:
        return prod([a.padded for a in self.axes]) if self.axes else 0


class Groups(NamedTuple):
    """A product of matrices whose rows, columns, depth and batch are any number of axes."""

    batch: Axes
    row_axes: Axes
    column_axes: Axes
    sum_axes: Axes
    first: tuple[int, int, int]
    """Offsets of the first elements of the left operand, the right operand and the result."""
    padding: tuple[Padding, Padding]
    method: int
    is_swapped: bool
    """Whether the left operand is the second one."""

    @property
    def batch_count(self) -> int:
        return _count(self.batch)

    @property
    def rows(self) -> int:
        return _count(self.row_axes)

    @property
    def columns(self) -> int:
        return _count(self.column_axes)

    @property
    def depth(self) -> int:
        return _count(self.sum_axes)


def _count(axes: Axes) -> int:
    return prod([a.extent for a in axes])


def grouped(
    form: ProductForm, x: StridedOperand, y: StridedOperand, out: StridedOperand, format: ElementFormat
) -> Groups:
    """Sort the axes of a form, and choose which operand is the left one."""
    strides_x, first_x, padding_x = _operand(form, 0, form.x_first, x)
    strides_y, first_y, padding_y = _operand(form, 1, form.y_first, y)
    first_out = sum(at * s for at, s in zip(form.out_first, out.strides, strict=True))
    groups: list[list[StridedAxis]] = [[], [], [], []]
    for (extent, of_x, of_y, (along, step)), left, right in zip(form.axes, strides_x, strides_y, strict=True):
        if extent != 1:
            kind = 3 if along < 0 else 2 if of_x.axis < 0 else 1 if of_y.axis < 0 else 0
            groups[kind].append(StridedAxis(extent, left, right, step * out.strides[along] if along >= 0 else 0))
    batch, rows, columns = (merged(sorted(g, key=lambda a: -abs(a.out))) for g in groups[:3])
    sums = merged(sorted(groups[3], key=lambda a: (-min(abs(a.left), abs(a.right)), -abs(a.right))))
    made = Groups(batch, rows, columns, sums, (first_x, first_y, first_out), (padding_x, padding_y), PACKED, False)
    return _with_method(made, format)


def _operand(
    form: ProductForm, side: int, first: tuple[int, ...], operand: StridedOperand
) -> tuple[list[int], int, Padding]:
    """Return the stride of each axis of the form, the offset of the first element, and the padding."""
    shape, strides = operand
    moves = [axis.y if side else axis.x for axis in form.axes]
    before, padding = (0,) * len(shape), Padding()
    if not form.is_inside:
        before, padded = _frame(form, moves, first, shape)
        if padded != shape:
            padding = Padding(tuple([PaddedAxis(*each) for each in zip(padded, before, shape, strides, strict=True)]))
            strides = tuple([prod(padded[n + 1 :]) for n in range(len(padded))])
    offset = sum([(at + b) * s for at, b, s in zip(first, before, strides, strict=True)])
    return [step * strides[axis] if axis >= 0 else 0 for axis, step in moves], offset, padding


def _frame(
    form: ProductForm, moves: list[AxisStep], first: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the zeros before each axis of an operand, and the extents with all zeros that are read."""
    low, high = list(first), list(first)
    for axis, (along, step) in zip(form.axes, moves, strict=True):
        if along >= 0 and axis.extent:
            reach = step * (axis.extent - 1)
            low[along] += min(reach, 0)
            high[along] += max(reach, 0)
    before = tuple([max(0, -n) for n in low])
    return before, tuple([b + max(h + 1, extent) for b, h, extent in zip(before, high, shape, strict=True)])


def merged(axes: list[StridedAxis]) -> Axes:
    """Merge neighbouring axes that one axis can replace.

    >>> merged([StridedAxis(4, 6, 0, 12), StridedAxis(3, 2, 0, 4)])
    (StridedAxis(extent=12, left=2, right=0, out=4),)
    """
    if len(axes) < 2:
        return tuple(axes)
    if not all(a.extent for a in axes):
        return (StridedAxis(0, 0, 0, 0),)
    found: list[StridedAxis] = []
    for axis in axes:
        if found and all(f == axis.extent * s for f, s in zip(found[-1][1:], axis[1:], strict=True)):
            found[-1] = axis._replace(extent=axis.extent * found[-1].extent)
        else:
            found.append(axis)
    return tuple(found)


def _with_method(groups: Groups, format: ElementFormat) -> Groups:
    """Choose a method, and the operand whose elements are broadcast."""
    few = min(groups.rows, groups.columns)
    flat = _swapped(groups) if groups.columns < groups.rows else groups
    if _is_contiguous(flat.sum_axes, 1) and _is_contiguous(flat.sum_axes, 2) and few <= MAX_DOT_ROWS:
        return flat._replace(method=DOTS)
    columns = flat.column_axes
    unpacked = few <= MAX_UNPACKED_ROWS and _is_contiguous(columns, 2)
    if unpacked or (few == 1 and _has_runs(columns, 2, flat.depth)):
        return flat._replace(method=ROWS)
    if few < format.lanes:
        return flat
    return _swapped(groups) if _stores_rows(groups.row_axes) and not _stores_rows(groups.column_axes) else groups


def _is_contiguous(axes: Axes, field: int) -> bool:
    return not axes or (len(axes) == 1 and axes[0][field] == 1)


def _has_runs(axes: Axes, field: int, depth: int) -> bool:
    """Whether columns are contiguous in parts, for sums in one part: code for one row takes them as they are."""
    return bool(axes) and axes[-1][field] == 1 and axes[-1].extent >= MIN_RUN and depth <= MAX_DEPTH


def _stores_rows(axes: Axes) -> bool:
    return bool(axes) and axes[-1].out == 1


def _swapped(groups: Groups) -> Groups:
    """Exchange the operands."""
    batch, rows, columns, sums = (
        tuple([a.swapped for a in axes])
        for axes in (groups.batch, groups.column_axes, groups.row_axes, groups.sum_axes)
    )
    x, y, out = groups.first
    return Groups(batch, rows, columns, sums, (y, x, out), groups.padding[::-1], groups.method, not groups.is_swapped)


def _dense_columns(axes: Axes) -> int:
    """Return the number of columns that are contiguous in the result, again and again."""
    count = 1
    for axis in reversed(axes):
        if axis.out != count:
            break
        count *= axis.extent
    return max(1, count)


class BlockPlan(NamedTuple):
    """The words of a description, those behind them, and the bytes of memory that a run needs."""

    numbers: dict[str, int]
    further: list[int]
    scratch_bytes: int


class TaskSizes(NamedTuple):
    """Rows and columns of a task, and how many parts sums have, of which depth."""

    rows: int
    columns: int
    splits: int
    split_depth: int


def choose_blocks(groups: Groups, code: ProductCode) -> BlockPlan:
    """Choose tasks, and lay out the description and the memory of a product."""
    shape = code.shape
    rows, columns, depth, batch = groups.rows, groups.columns, groups.depth, groups.batch_count
    copied = sum([p.elements for p in groups.padding])
    nanoseconds = 2.0 * batch * rows * columns * depth / OPERATIONS_PER_NS + copied
    threads = code.threads if nanoseconds >= MIN_SPLIT_NS else 1
    tasks = _task_sizes((batch, max(1, rows), max(1, columns), depth), groups.method, shape, threads)
    row_blocks, column_blocks = -(-rows // tasks.rows), -(-columns // tasks.columns)
    count = batch * row_blocks * column_blocks * tasks.splits
    left, right, out = groups.first
    numbers = {
        "tasks": count,
        "batch_count": batch,
        "instances": threads if count > 1 else 1,
        "method": groups.method,
        "splits": tasks.splits,
        "row_blocks": row_blocks,
        "column_blocks": column_blocks,
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "block_rows": tasks.rows,
        "block_columns": tasks.columns,
        "split_depth": tasks.split_depth,
        "cached_rows": code.cached_rows,
        "left_first": left,
        "right_first": right,
        "out_first": out,
        "dense_columns": _dense_columns(groups.column_axes),
    }
    further = _further_words(groups, numbers)
    return BlockPlan(numbers, further, _lay_out_memory(groups, numbers, tasks, code))


def cached_rows(shape: BlockShape, format: ElementFormat, machine: Target) -> int:
    """Return the rows of packed left panels that stay in the second cache."""
    rows = int(LEFT_CACHE_SHARE * machine.l2_bytes) // (shape.left_row * format.bytes)
    return max(1, rows // shape.rows) * shape.rows


def _task_sizes(extents: tuple[int, int, int, int], method: int, shape: BlockShape, threads: int) -> TaskSizes:
    batch, rows, columns, _ = extents
    splits, depth = _split_depth(extents)
    max_columns = MAX_UNPACKED_COLUMNS if method == ROWS else MAX_TASK_COLUMNS
    row_blocks, column_blocks = -(-rows // MAX_TASK_ROWS), -(-columns // max_columns)
    while not _is_balanced(batch * splits * row_blocks * column_blocks, threads):
        height, width = rows // row_blocks, columns // column_blocks
        tall, wide = height >= 2 * MIN_TASK_ROWS, width >= 2 * MIN_TASK_COLUMNS
        if tall and (not wide or height > width):
            row_blocks += 1
        elif wide:
            column_blocks += 1
        else:
            break
    return TaskSizes(_part(rows, row_blocks, shape.rows), _part(columns, column_blocks, shape.columns), splits, depth)


def _split_depth(extents: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return the number of parts of each sum, and their depth: several where there are few tasks without."""
    batch, rows, columns, total = extents
    tasks = max(1, batch * -(-rows // MIN_TASK_ROWS) * -(-columns // MIN_TASK_COLUMNS))
    if tasks >= MIN_TASKS or total < 2 * MIN_SPLIT_DEPTH:
        return 1, max(1, total)
    parts = min(-(-MIN_TASKS // tasks), total // MIN_SPLIT_DEPTH)
    depth = -(-total // (parts * MAX_DEPTH)) * MAX_DEPTH
    return -(-total // depth), depth


def _is_balanced(tasks: int, threads: int) -> bool:
    """Whether threads have enough tasks, and equally many unless each has plenty."""
    enough = tasks >= (TASKS_PER_THREAD * threads if threads > 1 else 1)
    return enough and (tasks % threads == 0 or tasks >= MAX_UNEVEN_TASKS * threads)


def _part(extent: int, parts: int, multiple: int) -> int:
    """Return the size of equal parts, a multiple of a block unless there is one part."""
    return extent if parts == 1 else -(-extent // (parts * multiple)) * multiple


def _further_words(groups: Groups, numbers: dict[str, int]) -> list[int]:
    """List the words of axes and padding, which come behind the numbers."""
    further: list[int] = []
    named = (
        ("batch", groups.batch),
        ("row", groups.row_axes),
        ("column", groups.column_axes),
        ("sum", groups.sum_axes),
    )
    for name, axes in named:
        kept = [a for a in axes if a.extent] or [StridedAxis(1, 0, 0, 0)]
        numbers[f"{name}_axes"], numbers[f"{name}_rank"] = len(WORDS) + len(further), len(kept)
        further += [word for axis in kept for word in axis]
    for side, padding in zip(("left", "right"), groups.padding, strict=True):
        if padding.axes:
            numbers[f"{side}_padding"] = len(WORDS) + len(further)
            numbers[f"{side}_padded_rows"] = prod(a.padded for a in padding.axes[:-1])
            further += [len(padding.axes), *[word for axis in padding.axes for word in axis]]
    return further


def _lay_out_memory(groups: Groups, numbers: dict[str, int], tasks: TaskSizes, code: ProductCode) -> int:
    """Place the memory of each thread, padded operands and parts of sums; return the bytes of all."""
    shape, format = code.shape, code.format
    rows = max(-(-tasks.rows // height) * height for height in (shape.rows, MAX_UNPACKED_ROWS))
    if groups.method == ROWS and groups.rows == 1:
        rows = 1  # panels follow one another without gaps: runs of columns may cross their borders
    wide = max(shape.columns, UNPACKED_VECTORS * format.lanes)
    columns = (-(-tasks.columns // wide) + 1) * wide
    numbers["panel_elements"] = rows * shape.columns
    tile = _aligned(rows * columns * format.bytes)
    packs = groups.method == PACKED
    left_rows = min(rows, numbers["cached_rows"]) + format.lanes
    parts = {
        "left_rows": (rows + 2 * format.lanes) * WORD_BYTES,
        "right_columns": (columns + format.lanes) * WORD_BYTES,
        "out_rows": (rows + format.lanes) * WORD_BYTES,
        "out_columns": (columns + format.lanes) * WORD_BYTES,
        **dict.fromkeys(("left_depth", "right_depth"), (MAX_DEPTH + format.lanes) * WORD_BYTES),
        **dict.fromkeys(("left_runs", "right_runs"), 2 * MAX_DEPTH * WORD_BYTES),
        "runs": 2 * max(shape.columns, shape.rows) * WORD_BYTES,
        "keys": 8 * WORD_BYTES,
        "column_runs": 2 * columns * WORD_BYTES if groups.method == ROWS else 0,
        "left_panels": left_rows * shape.left_row * format.bytes * packs,
        "right_panels": (columns * MAX_DEPTH + format.lanes * shape.columns) * format.bytes * packs,
        "tile": tile if tasks.splits == 1 else 0,
    }
    end = 0
    for name, bytes in parts.items():
        numbers[name] = end
        end = _aligned(end + bytes)
    numbers["instance_bytes"], numbers["tile_bytes"] = end, tile
    numbers["instance_start"] = 0
    at = end * numbers["instances"]
    for side, padding in zip(("left", "right"), groups.padding, strict=True):
        numbers[f"{side}_padded"] = at
        at = _aligned(at + padding.elements * format.stored_bytes)
    numbers["partials"] = at
    return at + (tile * numbers["tasks"] if tasks.splits > 1 else 0)


def _aligned(bytes: int) -> int:
    return -(-bytes // 64) * 64
