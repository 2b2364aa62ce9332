"""Scatters: the parameters of their kernel (`kernels/scatter.py`), which copies the base and writes the source.

Results are deterministic: one instance writes all entries with the same destination, in order. An instance has some
columns (positions along the axes without indices) and loops over the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.graph import TensorType, Value
from ..ir.node import Structure
from ..ir.position import row_major
from ..ir.size import Dim, product
from ..runtime.device import device
from .control import Check
from .tile_code import TileCode, Tiles

BLOCKS = (16, 32, 64)
"""Columns of an instance: at least a cache line of each row, more if enough instances are left."""
MIN_ROWS_PER_INSTANCE, MAX_ROW_PARTS = 64, 32
"""Fewest rows of an instance that shares columns with others, and the most instances that share them."""
COPY_ELEMENTS = 512
"""Elements that are copied at a time."""

FUNCTIONS = {"": None, "add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
"""Function that combines old and new elements; None replaces the old one."""


class ColumnAxis(Structure):
    """An axis without indices, with the strides of base, source, index and result."""

    extent: Dim
    out: Dim
    base: Dim
    source: Dim
    index: Dim = 0
    """Stride of the index, if it differs between columns."""
    limit: Dim | None = None
    """Length of the index along this axis, if shorter than the axis."""


class IndexedAxis(Structure):
    """An axis with indices."""

    extent: Dim
    out: Dim
    base: Dim
    check: Check | None = None
    """The check of the index, if any."""


class ScatterSpec(Structure):
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


def _block(columns: Dim, instances: int) -> int:
    if not isinstance(columns, int):
        return BLOCKS[-1]
    fitting = [block for block in BLOCKS if block * instances <= columns]
    return max(1, min(columns, fitting[-1] if fitting else BLOCKS[0]))


def scatter_kernel(
    spec: ScatterSpec, base: Value, indices: Sequence[Value], source: Value, output: TensorType
) -> TileCode:
    """Return the kernel of a scatter."""
    from .kernels.scatter import scatter

    columns, rows = product(c.extent for c in spec.columns), product(r.extent for r in spec.rows)
    contiguous = not spec.columns or spec.columns[-1].out == 1  # if not, tiles would only gather
    block = _block(columns, device(output.device).target.scatter_instances) if contiguous else 1
    step = max(1, COPY_ELEMENTS // block)
    step = max(1, min(step, rows)) if isinstance(rows, int) else step
    span = _span(spec, rows, output)
    return scatter.code(
        {"base": base.type, "index": tuple([x.type for x in indices]), "source": source.type},
        output,
        (Tiles(columns, block), *((Tiles(rows, span),) if span else ())),
        FN=spec.fn,
        SPEC=spec,
        COLUMNS=columns,
        ROWS=rows,
        BLOCK=block,
        STEP=step,
        SPAN=span,
        WHOLE=isinstance(columns, int) and columns % block == 0,
    )


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
