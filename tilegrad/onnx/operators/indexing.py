"""Operators that read and write elements at places given by tensors."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functional as tg
from ...ir.dtype import int64
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..values import Number


def _wrapped(indices: Tensor, extent: int) -> Tensor:
    """Count negative indices from the end."""
    places = indices.to(int64)
    return tg.where(places < 0, places + extent, places)


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = axis % x.dim()
    places = _wrapped(indices, x.shape[axis])
    found = tg.index_select(x, axis, places.reshape(-1))
    return found.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return tg.gather(x, axis, _wrapped(indices, x.shape[axis]))


def _flat_places(indices: Tensor, sizes: Any) -> Tensor:
    """Return positions in the flattened leading axes for indices along their last axis."""
    flat: Any = 0
    for n, size in enumerate(sizes):
        flat = flat * size + _wrapped(indices[..., n], size)
    return flat  # type: ignore[no-any-return]


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    batch, depth = list(x.shape[:batch_dims]), int(indices.shape[-1])
    rest = list(x.shape[batch_dims + depth :])
    flat = _flat_places(indices, x.shape[batch_dims : batch_dims + depth])
    count, inner = prod(batch), prod(x.shape[batch_dims : batch_dims + depth])
    flat = flat.reshape(count, -1) + tg.arange(count, device=x.device).reshape(count, 1) * inner
    found = tg.index_select(x.reshape(count * inner, -1), 0, flat.reshape(-1))
    return found.reshape([*indices.shape[:-1], *rest])


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    places = _wrapped(indices, x.shape[axis])
    if reduction == "none":
        return tg.scatter(x, axis, places, updates)
    return tg.scatter_reduce(x, axis, places, updates, REDUCTIONS[reduction])


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = int(indices.shape[-1])
    inner = prod(x.shape[depth:])
    flat = _flat_places(indices, x.shape[:depth]).reshape(-1, 1).expand(-1, inner)
    table, rows = x.reshape(-1, inner), updates.reshape(-1, inner)
    return scatter_elements(table, flat, rows, reduction=reduction).reshape(x.shape)


def _marked(marks: Tensor) -> Tensor:
    """Return the positions of marks along one axis."""
    places: Any = tg.nonzero(marks)
    return places.reshape(-1)  # type: ignore[no-any-return]


def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    x = x.reshape(-1) if axis is None else x
    places = _marked(condition)
    return tg.index_select(x, axis or 0, places)


def non_zero(x: Tensor) -> Tensor:
    places: Any = tg.nonzero(x)
    return places.t()  # type: ignore[no-any-return]


def one_hot(indices: Tensor, depth: Number, values: Tensor, *, axis: int = -1) -> Tensor:
    """Mark places along a new axis."""
    count = int(depth)
    places = indices.to(int64)
    places = tg.where(places < 0, places + count, places)
    axis = axis % (indices.dim() + 1)
    marks = tg.arange(count, device=indices.device).reshape([-1] + [1] * (indices.dim() - axis))
    return tg.where(places.unsqueeze(axis) == marks, values[1], values[0])


def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """Return different elements or slices, the place of the first of each, the inverse, and counts."""
    if axis is not None:
        x = x.moveaxis(axis, 0)
    rows = x.reshape(-1, 1) if axis is None else x.reshape(x.shape[0], -1)
    order = tg.arange(rows.shape[0], device=x.device)
    for n in reversed(range(int(rows.shape[1]))):
        order = order[tg.argsort(rows[order, n], stable=True)]
    ranked = rows[order]
    starts = tg.cat([tg.ones(1, device=x.device).bool(), (ranked[1:] != ranked[:-1]).any(1)])
    group = tg.cumsum(starts.to(int64), 0) - 1
    inverse = tg.zeros_like(order).scatter(0, order, group)
    firsts = order[_marked(starts)]
    if not sorted:
        turn = tg.argsort(firsts)
        firsts, inverse = firsts[turn], tg.argsort(turn)[inverse]
    counts = tg.bincount(inverse, minlength=int(firsts.shape[0]))
    found = x.reshape(-1)[firsts] if axis is None else x[firsts].moveaxis(0, axis)
    return found, firsts, inverse, counts


def tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write new entries of each sequence of a batch behind those that are there."""
    axis, count = axis % past.dim(), int(past.shape[0])
    starts = tg.zeros(count, dtype=int64, device=past.device) if write_indices is None else write_indices.to(int64)
    places = starts.reshape(count, 1) + tg.arange(update.shape[axis], device=past.device)
    if mode == "circular":
        places = places % past.shape[axis]
    elif mode != "linear":
        raise OnnxError(f"there is no mode {mode!r}")
    sizes = [count if n == 0 else update.shape[axis] if n == axis else 1 for n in range(past.dim())]
    return tg.scatter(past, axis, places.reshape(sizes).expand(update.shape), update)


RULES: dict[str, Function] = {
    "Compress": compress,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "Unique": unique,
}
