"""The tile kernel of scattering: a copy of a base, into which a source is written where indices say.

Results are the same in every run: what may meet in one place is written by one instance, in order. An
instance has some columns (positions along the axes without indices) and goes through the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.graph import TensorType
from ..ir.node import Node
from ..ir.position import row_major
from ..ir.program import Tiles
from ..ir.size import Dim, product
from ..ir.tile import (
    Apply,
    Arange,
    Assign,
    BroadcastTo,
    Expand,
    For,
    Literal,
    Load,
    Name,
    ProgramId,
    Statement,
    Store,
    Tile,
)
from .opaque import TileCode, extent, offset, tile_code, where_is, wide

COLUMNS = 64
"""Columns of an instance: a cache line or more of each row, and still many instances."""
COPIED = 512
"""Elements that are copied at a time."""

FUNCTIONS = {"": None, "add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
"""What becomes of the old and the new element: the new one, or a function of both."""


class Column(Node):
    """An axis without indices, with the strides of what is read and written along it."""

    extent: Dim
    out: Dim
    base: Dim
    source: Dim
    index: Dim = 0
    """The stride of the index, if it differs from column to column."""
    limit: Dim | None = None
    """How far the index reaches, if not as far as the axis."""


class Row(Node):
    """An axis along which an index says where to write."""

    extent: Dim
    out: Dim
    base: Dim
    index: str
    """The name of the index."""


class Scattering(Node):
    """What a kernel scatters."""

    fn: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    per_column: bool
    """Whether each column has its own index."""
    count: Dim
    """How many entries the index has, for each column."""
    index_step: Dim
    source_step: Dim


def scatter_kernel(work: Scattering, inputs: dict[str, TensorType], output: TensorType) -> TileCode:
    """The kernel; the inputs are called `base`, `source` and as the rows say."""
    columns = product(c.extent for c in work.columns)
    block = min(COLUMNS, columns) if isinstance(columns, int) else COLUMNS
    block = max(1, block)
    at = where_is(Name("column"), tuple(c.extent for c in work.columns))
    limited = [(p, c.limit) for p, c in zip(at, work.columns, strict=True) if c.limit is not None]


    def along(strides: list[Dim]) -> Tile:
        return wide(BroadcastTo(offset(at, strides), (block,)))

    body: list[Statement] = [
        Assign("column", wide(ProgramId(0) * block + Arange(0, block))),
        Assign("inside", Name("column") < extent(columns)),
        Assign("out_at", along([c.out for c in work.columns])),
        Assign("base_at", along([c.base for c in work.columns])),
        *_copying(work, block),
        *[Assign("inside", Name("inside") & (p < extent(limit))) for p, limit in limited],
        Assign("source_at", along([c.source for c in work.columns])),
    ]
    if work.per_column:
        body.append(Assign("index_at", along([c.index for c in work.columns])))
    body.append(For("entry", wide(Literal(0)), extent(work.count), Literal(1), tuple(_entry(work))))
    name = f"scatter_{work.fn}" if work.fn else "scatter"
    return tile_code(name, inputs, output, body, (Tiles(columns, block),))


def _copying(work: Scattering, block: int) -> list[Statement]:
    """The columns of the base, some rows at a time."""
    rows = product(r.extent for r in work.rows)
    step = max(1, COPIED // block)
    step = min(step, max(1, rows)) if isinstance(rows, int) else step
    at = where_is(Name("row"), tuple(r.extent for r in work.rows))
    mask = Expand(Name("row") < extent(rows), (1,)) & Expand(Name("inside"), (0,))

    def both(strides: list[Dim], columns: str) -> Tile:
        return Expand(wide(BroadcastTo(offset(at, strides), (step,))), (1,)) + Expand(Name(columns), (0,))

    copy = (
        Assign("row", Name("first") + Arange(0, step)),
        Assign("copied", Load(Name("base") + both([r.base for r in work.rows], "base_at"), mask)),
        Store(Name("out") + both([r.out for r in work.rows], "out_at"), Name("copied"), mask),
    )
    return [For("first", wide(Literal(0)), extent(rows), Literal(step), copy)]


def _entry(work: Scattering) -> list[Statement]:
    """One entry of the index, for all columns of an instance."""
    here = offset([Name("entry")], [work.index_step])
    mask = Name("inside") if work.per_column else None
    body: list[Statement] = []
    place: Tile = Name("out_at")
    for n, row in enumerate(work.rows):
        name = f"to{n}"
        pointer = Name(row.index) + ((Name("index_at") + here) if work.per_column else here)
        last = extent(row.extent)
        body += [
            Assign(name, wide(Load(pointer, mask, Literal(0) if work.per_column else None))),
            Assign(name, Apply("where", (Name(name) < 0, Name(name) + last, Name(name)))),
            Assign(name, Apply("minimum", (Apply("maximum", (Name(name), wide(Literal(0)))), wide(last - 1)))),
        ]
        place = place + offset([Name(name)], [row.out])
    body += [
        Assign("place", place),
        Assign("new", Load(Name("source") + Name("source_at") + offset([Name("entry")], [work.source_step]), Name("inside"))),
    ]
    new: Tile = Name("new")
    if work.fn:
        new = Apply(work.fn, (Load(Name("out") + Name("place"), Name("inside")), new))
    return [*body, Store(Name("out") + Name("place"), new, Name("inside"))]


def broadcast_strides(shape: tuple[Dim, ...], to: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The strides with which something of a shape is read as if it were larger."""
    strides = [0 if extent == 1 else s for s, extent in zip(row_major(shape), shape, strict=True)]
    return (*(0 for _ in range(len(to) - len(shape))), *strides)


def scatter_reference(fn: str, base: Any, shape: Sequence[int], at: tuple[Any, ...], source: Any) -> Any:
    """The meaning with numpy; `at` indexes the result, with negative indices and those beyond the end kept inside."""
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


def kept_inside(index: Any, length: int) -> Any:
    """Indices as positions: what `indexing.wrapped` means."""
    index = np.asarray(index).astype(np.int64)
    return np.clip(np.where(index < 0, index + length, index), 0, max(length - 1, 0))
