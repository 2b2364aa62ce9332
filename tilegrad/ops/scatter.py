"""The tile kernel of scatters: copy the base, then write the source at the indices.

Results are deterministic: one instance writes all entries with the same destination, in order. An instance has some
columns (positions along the axes without indices) and loops over the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.graph import TensorType
from ..ir.node import Node
from ..ir.position import row_major
from ..ir.size import Dim, product
from ..runtime.device import device
from .control import Check
from .tile_code import TileCode, Tiles, flat_offset, show_size, tile_code, unravel

BLOCKS = (16, 32, 64)
"""Columns of an instance: at least a cache line of each row, more if enough instances are left."""
MIN_ROWS_PER_INSTANCE, MAX_ROW_PARTS = 64, 32
"""Fewest rows of an instance that shares columns with others, and the most instances that share them."""
COPY_ELEMENTS = 512
"""Elements that are copied at a time."""

FUNCTIONS = {"": None, "add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
"""Function that combines old and new elements; None replaces the old one."""


class ColumnAxis(Node):
    """An axis without indices, with the strides of base, source, index and result."""

    extent: Dim
    out: Dim
    base: Dim
    source: Dim
    index: Dim = 0
    """Stride of the index, if it differs between columns."""
    limit: Dim | None = None
    """Length of the index along this axis, if shorter than the axis."""


class IndexedAxis(Node):
    """An axis with indices."""

    extent: Dim
    out: Dim
    base: Dim
    index: str
    """Name of the index."""
    check: Check | None = None
    """The check of the index, if any."""


class ScatterSpec(Node):
    """The parameters that a scatter kernel is generated from."""

    fn: str
    columns: tuple[ColumnAxis, ...]
    rows: tuple[IndexedAxis, ...]
    per_column: bool
    """Whether each column has its own index."""
    count: Dim
    """Entries of the index for each column."""
    index_step: Dim
    source_step: Dim


COMBINED = {
    "": "new",
    "add": "{old} + new",
    "mul": "{old} * new",
    "maximum": "tl.maximum({old}, new)",
    "minimum": "tl.minimum({old}, new)",
}
"""The element stored at a destination, from the old and the new one."""


def _block(columns: Dim, instances: int) -> int:
    if not isinstance(columns, int):
        return BLOCKS[-1]
    fitting = [block for block in BLOCKS if block * instances <= columns]
    return max(1, min(columns, fitting[-1] if fitting else BLOCKS[0]))


def scatter_kernel(spec: ScatterSpec, inputs: dict[str, TensorType], output: TensorType) -> TileCode:
    """Generate the kernel; the inputs are called `base`, `source` and as the indexed axes say."""
    columns, rows = product(c.extent for c in spec.columns), product(r.extent for r in spec.rows)
    contiguous = not spec.columns or spec.columns[-1].out == 1  # if not, tiles would only gather
    block = _block(columns, device(output.device).target.scatter_instances) if contiguous else 1
    whole = isinstance(columns, int) and columns % block == 0
    span = _span(spec, rows, output)
    text = "\n".join(
        [
            "@tg.kernel",
            f"def scatter{'_' * bool(spec.fn)}{spec.fn}(PARAMETERS):",
            f"    column = tl.program_id(0).to(tl.int64) * {block} + tl.arange(0, {block})",
            *([] if whole else [f"    inside = column < {show_size(columns)}"]),
            *_indented(_row_range(rows, span)),
            *_indented(_copy(spec, rows, block, whole, span)),
            *_indented(_entries(spec, whole, span)),
        ]
    )
    grid = (Tiles(columns, block), *((Tiles(rows, span),) if span else ()))
    return tile_code(text, inputs, output, grid)


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _row_range(rows: Dim, span: int) -> list[str]:
    """The rows of an instance, if instances share columns."""
    if not span:
        return []
    return [
        f"lower = tl.program_id(1).to(tl.int64) * {span}",
        f"upper = tl.minimum(lower + {span}, {show_size(rows)})",
    ]


def _copy(spec: ScatterSpec, rows: Dim, block: int, whole: bool, span: int) -> list[str]:
    """Copy the columns of the base, some rows at a time."""
    column = unravel("column", tuple(c.extent for c in spec.columns))
    row = unravel("row", tuple(r.extent for r in spec.rows))
    lower, upper = ("lower", "upper") if span else ("(0).to(tl.int64)", show_size(rows))
    step = max(1, COPY_ELEMENTS // block)
    step = max(1, min(step, rows)) if isinstance(rows, int) else step
    base_row = flat_offset(row, [r.base for r in spec.rows], "row * 0")
    out_row = flat_offset(row, [r.out for r in spec.rows], "row * 0")
    return [
        f"out_at = {flat_offset(column, [c.out for c in spec.columns], 'column * 0')}",
        f"base_at = {flat_offset(column, [c.base for c in spec.columns], 'column * 0')}",
        f"for first in range({lower}, {upper}, {step}):",
        f"    row = first + tl.arange(0, {step})",
        f"    copied = (row < {upper})[:, None]{'' if whole else ' & inside[None, :]'}",
        f"    old = tl.load(base + (({base_row})[:, None] + base_at[None, :]), mask=copied)",
        f"    tl.store(out + (({out_row})[:, None] + out_at[None, :]), old, mask=copied)",
    ]


def _entries(spec: ScatterSpec, whole: bool, span: int) -> list[str]:
    """Write the source, entry by entry."""
    column = unravel("column", tuple(c.extent for c in spec.columns))
    conditions = [] if whole else ["inside"]
    for at, axis in zip(column, spec.columns, strict=True):
        if axis.limit is not None:
            conditions.append(f"({at} < {show_size(axis.limit)})")
    mask = ", mask=reached" if conditions else ""
    stored = COMBINED[spec.fn].format(old=f"tl.load(out + place{mask})")
    place = flat_offset([f"to{n}" for n in range(len(spec.rows))], [r.out for r in spec.rows])
    write = [
        f"place = out_at + {place}",
        f"new = tl.load(source + (source_at + entry * {show_size(spec.source_step)}){mask})",
        f"tl.store(out + place, {stored}{mask})",
    ]
    if span:
        write = ["if (to0 >= lower) & (to0 < upper):", *_indented(write)]
    destinations = [line for n in range(len(spec.rows)) for line in _destination(spec, n, mask)]
    return [
        *([f"reached = {' & '.join(conditions)}"] if conditions else []),
        f"index_at = {flat_offset(column, [c.index for c in spec.columns], 'column * 0')}",
        f"source_at = {flat_offset(column, [c.source for c in spec.columns], 'column * 0')}",
        f"for entry in range((0).to(tl.int64), {show_size(spec.count)}):",
        *_indented([*destinations, *write]),
    ]


def _destination(spec: ScatterSpec, n: int, mask: str) -> list[str]:
    """Load the index along the n-th axis, clamped or checked."""
    axis, to, extent = spec.rows[n], f"to{n}", show_size(spec.rows[n].extent)
    entry = f"entry * {show_size(spec.index_step)}"
    if spec.per_column:
        load = f"tl.load({axis.index} + (index_at + {entry}){mask}{', other=0' * bool(mask)})"
    else:
        load = f"tl.load({axis.index} + {entry})"
    position = f"tl.minimum(tl.maximum({to}, (0).to(tl.int64)), ({extent}).to(tl.int64) - 1)"
    from_end = True
    if axis.check is not None:
        number, from_end = axis.check
        position = f"tl.inside({to}, ({extent}).to(tl.int64), {number})"
    return [
        f"{to} = {load}.to(tl.int64)",
        *([f"{to} = tl.where({to} < 0, {to} + {extent}, {to})"] if from_end else []),
        f"{to} = {position}",
    ]


def _span(spec: ScatterSpec, rows: Dim, output: TensorType) -> int:
    """Return the rows of an instance on targets that need many instances: each visits all entries and writes those of
    its rows. 0: all rows.
    """
    alone = len(spec.rows) == 1 and not spec.per_column
    if not alone or not isinstance(rows, int) or not isinstance(spec.count, int):
        return 0
    if rows < 2 * MIN_ROWS_PER_INSTANCE or device(output.device).target.min_instances == 1:
        return 0
    return max(MIN_ROWS_PER_INSTANCE, -(-rows // MAX_ROW_PARTS))


def broadcast_strides(shape: tuple[Dim, ...], to: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the strides that read a tensor as if it were broadcast to a larger shape."""
    strides = [0 if extent == 1 else s for s, extent in zip(row_major(shape), shape, strict=True)]
    return (*(0 for _ in range(len(to) - len(shape))), *strides)


def scatter_reference(fn: str, base: Any, shape: Sequence[int], at: tuple[Any, ...], source: Any) -> Any:
    """Scatter on numpy arrays; `at` indexes the result, with indices clamped."""
    result = np.array(np.broadcast_to(base, shape))
    ufunc = FUNCTIONS[fn]
    if ufunc is None:
        result[at] = source
    elif result.dtype.kind == "V" or result.dtype.name == "bfloat16":
        _one_by_one(ufunc, result, at, source)
    else:
        ufunc.at(result, at, source)
    return result


def _one_by_one(ufunc: Any, result: Any, at: tuple[Any, ...], source: Any) -> None:
    """`ufunc.at` for element types that numpy does not know."""
    flat = np.arange(result.size).reshape(result.shape)[at]
    elements = result.reshape(-1)
    for place, value in zip(flat.ravel(), np.broadcast_to(source, flat.shape).ravel(), strict=True):
        elements[place] = ufunc(elements[place], value)


def clamp_positions(index: Any, length: int) -> Any:
    """Return indices as positions: `indexing.wrap_index` on numpy arrays."""
    index = np.asarray(index).astype(np.int64)
    return np.clip(np.where(index < 0, index + length, index), 0, max(length - 1, 0))
