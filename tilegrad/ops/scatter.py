"""The tile kernel of scatters: copy the base, then write the source at the indices.

Results are deterministic: one instance writes all entries with the same destination, in order. An instance has some
columns (positions along the axes without indices) and loops over the index.
"""

from __future__ import annotations

import re
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
"""How old and new elements are combined; None replaces the old one."""


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
    """How the index is checked, if it is."""


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


SCATTER = """
@tg.kernel
def scatter(PARAMETERS):
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < COLUMNS
    out_at = OUT_COLUMN
    base_at = BASE_COLUMN

    # The columns of the base, some rows at a time.
    for first in range(LOWER, UPPER, STEP):
        row = first + tl.arange(0, STEP)
        copied = (row < UPPER)[:, None] & inside[None, :]
        old = tl.load(base + ((BASE_ROW)[:, None] + base_at[None, :]), mask=copied)
        tl.store(out + ((OUT_ROW)[:, None] + out_at[None, :]), old, mask=copied)

    # The index, entry by entry.
    reached = LIMITS
    index_at = INDEX_COLUMN
    source_at = SOURCE_COLUMN
    for entry in range((0).to(tl.int64), COUNT):
PLACES
        place = out_at + OUT_PLACE
        new = tl.load(source + (source_at + entry * SOURCE_STEP), mask=reached)
        tl.store(out + place, NEW, mask=reached)
"""

SHARED = """\
    lower = tl.program_id(1).to(tl.int64) * SPAN
    upper = tl.minimum(lower + SPAN, ROWS)
    out_at ="""

PLACE = """
        to = tl.load(INDEX).to(tl.int64)
        to = tl.where(to < 0, to + EXTENT, to)
        to = KEPT
"""
NEAREST = "tl.minimum(tl.maximum(to, (0).to(tl.int64)), (EXTENT).to(tl.int64) - 1)"

MEETING = {
    "": "new",
    "add": "tl.load(out + place, mask=reached) + new",
    "mul": "tl.load(out + place, mask=reached) * new",
    "maximum": "tl.maximum(tl.load(out + place, mask=reached), new)",
    "minimum": "tl.minimum(tl.load(out + place, mask=reached), new)",
}


def _block(columns: Dim, instances: int) -> int:
    if not isinstance(columns, int):
        return BLOCKS[-1]
    fitting = [block for block in BLOCKS if block * instances <= columns]
    return max(1, min(columns, fitting[-1] if fitting else BLOCKS[0]))


def scatter_kernel(work: ScatterSpec, inputs: dict[str, TensorType], output: TensorType) -> TileCode:
    """Generate the kernel; the inputs are called `base`, `source` and as the indexed axes say."""
    columns, rows = product(c.extent for c in work.columns), product(r.extent for r in work.rows)
    beside = not work.columns or work.columns[-1].out == 1  # in memory; if not, tiles would only gather
    target = device(output.device).target
    block = _block(columns, target.scatter_instances) if beside else 1
    step = max(1, COPY_ELEMENTS // block)
    step = max(1, min(step, rows)) if isinstance(rows, int) else step
    column = unravel("column", tuple(c.extent for c in work.columns))
    row = unravel("row", tuple(r.extent for r in work.rows))
    limits = [f"({p} < {show_size(c.limit)})" for p, c in zip(column, work.columns, strict=True) if c.limit is not None]
    whole = isinstance(columns, int) and columns % block == 0
    mask = "" if whole and not limits else ", mask=reached, other=0"
    parts = {
        "BLOCK": str(block),
        "COLUMNS": show_size(columns),
        "OUT_COLUMN": flat_offset(column, [c.out for c in work.columns], "column * 0"),
        "BASE_COLUMN": flat_offset(column, [c.base for c in work.columns], "column * 0"),
        "ROWS": show_size(rows),
        "STEP": str(step),
        "BASE_ROW": flat_offset(row, [r.base for r in work.rows], "row * 0"),
        "OUT_ROW": flat_offset(row, [r.out for r in work.rows], "row * 0"),
        "LIMITS": " & ".join(limits if whole else ["inside", *limits]),
        "INDEX_COLUMN": flat_offset(column, [c.index for c in work.columns], "column * 0"),
        "SOURCE_COLUMN": flat_offset(column, [c.source for c in work.columns], "column * 0"),
        "COUNT": show_size(work.count),
        "PLACES": "".join(_place(work, n, mask) for n in range(len(work.rows))),
        "OUT_PLACE": flat_offset([f"to{n}" for n in range(len(work.rows))], [r.out for r in work.rows]),
        "SOURCE_STEP": show_size(work.source_step),
        "NEW": MEETING[work.fn].replace(", mask=reached", "") if whole and not limits else MEETING[work.fn],
    }
    text = _unmasked(SCATTER, not limits) if whole else SCATTER
    text = re.sub("|".join(rf"\b{name}\b" for name in parts), lambda m: parts[m[0]], text)
    text = text.replace("scatter(", f"scatter_{work.fn}(" if work.fn else "scatter(")
    span = _span(work, rows, output)
    if not span:
        text = re.sub(r"\bLOWER\b", "(0).to(tl.int64)", text).replace("UPPER", show_size(rows))
        return tile_code(text, inputs, output, (Tiles(columns, block),))
    text = re.sub(r"\bLOWER\b", "lower", text).replace("UPPER", "upper").replace("    out_at =", SHARED, 1)
    text = text.replace("SPAN", str(span)).replace("ROWS", show_size(rows))
    head, own = text.split("        place = out_at")
    own = "            place = out_at" + own.replace("\n        ", "\n            ")
    text = f"{head}        if (to0 >= lower) & (to0 < upper):\n{own}"
    return tile_code(text, inputs, output, (Tiles(columns, block), Tiles(rows, span)))


def _unmasked(text: str, everywhere: bool) -> str:
    """The kernel where all columns of an instance exist; `everywhere`: and all have as many entries."""
    text = text.replace("    inside = column < COLUMNS\n", "").replace(" & inside[None, :]", "")
    return text.replace("    reached = LIMITS\n", "").replace(", mask=reached", "") if everywhere else text


def _span(work: ScatterSpec, rows: Dim, output: TensorType) -> int:
    """Return the rows of an instance on targets that need many instances: each visits all entries and writes those of
    its rows. 0: all rows.
    """
    alone = len(work.rows) == 1 and not work.per_column
    if not alone or not isinstance(rows, int) or not isinstance(work.count, int):
        return 0
    if rows < 2 * MIN_ROWS_PER_INSTANCE or device(output.device).target.min_instances == 1:
        return 0
    return max(MIN_ROWS_PER_INSTANCE, -(-rows // MAX_ROW_PARTS))


def _place(work: ScatterSpec, n: int, mask: str) -> str:
    """The statements that find where an entry goes along the n-th axis."""
    row, here = work.rows[n], f"entry * {show_size(work.index_step)}"
    pointer = f"{row.index} + (index_at + {here}){mask}" if work.per_column else f"{row.index} + {here}"
    text, kept = PLACE, NEAREST
    if row.check is not None:
        number, from_end = row.check
        kept = f"tl.inside(to, (EXTENT).to(tl.int64), {number})"
        text = text if from_end else "\n".join(line for line in text.split("\n") if "where" not in line)
    text = text.replace("KEPT", kept).replace("INDEX", pointer).replace("EXTENT", show_size(row.extent))
    return re.sub(r"\bto\b(?!\()", f"to{n}", text)


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
