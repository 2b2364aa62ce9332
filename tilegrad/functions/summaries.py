"""Define quantiles, modes, histograms, covariances, distances and sets of unique elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError, AxisError, DTypeError, ShapeError
from ..ir.dtype import DType, bool_, float32, float64, int64
from ..lazy.handle import Handle, wrap
from ..lazy.kept_formats import keeping_strides
from ..lazy.layout import in_order, lay, row_by_row
from ..ops import selection, sorting
from ..ops.broadcasting import normal_axis, shown
from ..ops.creation import positions
from .creation import arange, linspace, zeros
from .declared import publish
from .promotion import floating, floats_of, kind_of, numbers_of, value_of
from .selecting import Sorted, count_nonzeros, nonzero, scatter, shared_among_equals
from .views import numpy_names

if TYPE_CHECKING:
    from ..tensor import Tensor

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


# --- in order --------------------------------------------------------------------------------------


@numpy_names
def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Compute the q-quantile along a dimension; NaN where an element is NaN.

    >>> import tilegrad as tg
    >>> quantile(tg.tensor([3.0, 1.0, 2.0]), 0.25)
    tensor(1.5000)
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


@numpy_names
def nanquantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Compute the q-quantile of the elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


def _quantile(
    input: Tensor, q: float | Tensor, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    if interpolation not in INTERPOLATIONS:
        raise ArgumentError(f"quantile: interpolation is one of {', '.join(INTERPOLATIONS)}, not {interpolation!r}")
    x = wrap(floats_of(input, "quantile"))
    if x.dtype not in (float32, float64):
        raise DTypeError(f"quantile takes float32 or float64 elements, not {x.dtype.name}; convert them: x.float()")
    fractions, rank = _fractions(q, x), x.dim()
    flat = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    ordered = flat.sort(-1).values  # NaN stands last
    count = (~flat.isnan()).sum(-1, keepdim=True)
    place = fractions.reshape(-1).to(x.dtype) * (count - 1).clamp(min=0).to(x.dtype)
    found = _between(ordered, place, interpolation)
    unknown = count == 0 if skip_nan else flat.isnan().any(-1, keepdim=True)
    found = found.masked_fill(unknown, math.nan).movedim(-1, 0)
    if keepdim:
        found = found.reshape(-1, *[1] * rank) if dim is None else found.unsqueeze(dim if dim < 0 else dim + 1)
    return (found if fractions.dim() else found.squeeze(0)) if rank else found.reshape(fractions.shape)


def _fractions(q: float | Tensor, x: Tensor) -> Tensor:
    """Return q as a tensor beside x, if it is one fraction or several."""
    fractions = q if isinstance(q, Handle) else x.new_tensor(q)
    if fractions.dim() > 1:
        raise ShapeError(f"quantile: q has shape {shown(fractions.shape)}; it is a number or a vector")
    if not bool(((fractions >= 0) & (fractions <= 1)).all()):
        raise ArgumentError(f"quantile: q is {q}; fractions are from 0 to 1")
    return fractions


def _between(ordered: Tensor, place: Tensor, interpolation: str) -> Tensor:
    """Interpolate sorted elements at fractional positions."""
    if interpolation == "nearest":
        return ordered.gather(-1, place.round().long())
    low, high = place.floor().long(), place.ceil().long()
    if interpolation == "lower":
        return ordered.gather(-1, low)
    if interpolation == "higher":
        return ordered.gather(-1, high)
    part = place - low if interpolation == "linear" else (high - low).to(place.dtype) / 2
    return ordered.gather(-1, low).lerp(ordered.gather(-1, high), part)


@numpy_names
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | Sorted:
    """Compute the median of the elements that are not NaN."""
    numbers_of(input, "nanmedian")
    if dim is None:
        return shared_among_equals(input, nanmedian(input.reshape(-1), 0).values)  # type: ignore[union-attr]
    ordered, order = input.sort(dim)
    count = (~input.isnan()).sum(dim, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    values, indices = ordered.gather(dim, middle), order.gather(dim, middle)
    return Sorted(values, indices) if keepdim else Sorted(values.squeeze(dim), indices.squeeze(dim))


@numpy_names
def nanmean(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Compute the mean of the elements that are not NaN."""
    floats_of(input, "nanmean")
    bad = input.isnan()
    return input.masked_fill(bad, 0.0).sum(dim, keepdim, dtype=dtype) / (~bad).sum(dim, keepdim)


@numpy_names
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Sorted:
    """Return the most frequent element along a dimension, the smallest of several, and its last index."""
    if not input.dim():
        return Sorted(input.clone(), zeros((), dtype=int64, device=input.device))
    ordered, order = input.movedim(dim, -1).sort(-1)
    place = arange(ordered.shape[-1], device=input.device)
    new = place.new_ones(1, dtype=place.dtype).expand(*ordered.shape[:-1], 1).bool()
    starts = (ordered[..., 1:] != ordered[..., :-1]) if ordered.shape[-1] > 1 else ordered[..., 1:].bool()
    begin = _joined(new, starts).long().mul(place).cummax(-1).values
    end = (place - begin).argmax(-1, keepdim=True)
    values, indices = ordered.gather(-1, end).movedim(-1, dim), order.gather(-1, end).movedim(-1, dim)
    return Sorted(values, indices) if keepdim else Sorted(values.squeeze(dim), indices.squeeze(dim))


def _joined(*parts: Tensor) -> Tensor:
    from .joining import cat

    return cat(parts, -1)


@keeping_strides
def msort(input: Tensor) -> Tensor:
    """Sort along the first dimension."""
    return input.sort(0).values


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Return the sorted unique elements; on request with the inverse indices and the counts.

    With a dimension, the different slices along it, ordered by their first element that differs.

    >>> import tilegrad as tg
    >>> unique(tg.tensor([[2, 1], [0, 3], [2, 1]]), dim=0, return_counts=True)
    (tensor([[0, 3],
            [2, 1]]), tensor([1, 2]))
    """
    x = value_of(input, "unique")
    keys = input.reshape(-1) if dim is None else _rank(_rows(input, dim, "unique"))
    values, starts, order = sorting.sorted_runs(value_of(keys, "unique"))
    count = count_nonzeros(starts, values, order)
    if dim is None:
        found = [wrap(selection.masked_select(values, starts, count))]
    else:
        found = [_selected(input, dim, wrap(selection.masked_select(order, starts, count)))]
    if return_inverse:
        run = wrap(starts).long().cumsum(0) - 1
        inverse = scatter(run, 0, wrap(order), run)
        found.append(inverse.reshape(input.shape) if dim is None else inverse)
    if return_counts:
        first = wrap(selection.masked_select(positions(values.shape[0], x.device), starts, count))
        end = first.new_tensor([values.shape[0]])
        found.append(first.roll(-1, 0).index_copy(0, first.new_tensor([count - 1]), end) - first if count else first)
    return found[0] if len(found) == 1 else tuple(found)


def _rows(input: Tensor, dim: int, op: str) -> Tensor:
    """View the slices along a dimension as rows of a matrix."""
    x = value_of(input, op)
    if not x.shape:
        raise AxisError(f"{op}: dimension {dim} of a tensor without dimensions")
    axis = normal_axis(dim, len(x.shape), op)
    if 0 in (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise ShapeError(f"{op}: the slices along dimension {dim} of {shown(x.shape)} have no elements")
    moved = input.movedim(axis, 0)
    return moved.reshape(moved.shape[0], moved[:1].numel()) if moved.shape[0] else moved.reshape(0, 1)


def _selected(input: Tensor, dim: int, places: Tensor) -> Tensor:
    """Select slices along a dimension, dense in memory as in PyTorch."""
    rank = input.dim()
    found = lay(input.index_select(dim, places), None)
    return lay(found, in_order(found.value.shape, (dim % rank, *[n for n in range(rank) if n != dim % rank])))


def _rank(rows: Tensor) -> Tensor:
    """Return a rank for each row, in lexicographic order; equal rows have equal ranks.

    Elements are replaced by their ranks among all, neighbours by the rank of both together, until one is left.
    """
    while True:
        _, starts, order = sorting.sorted_runs(value_of(rows, "unique"))
        run = wrap(starts).long().cumsum(0) - 1
        rows = scatter(run, 0, wrap(order), run).reshape(rows.shape)
        if rows.shape[1] == 1:
            return rows.reshape(-1)
        if rows.shape[1] % 2:
            rows = _joined(rows, rows.new_zeros(rows.shape[0], 1))
        rows = rows[:, ::2] * rows.numel() + rows[:, 1::2]


def _differ(before: Tensor, after: Tensor) -> Tensor:
    changed = before != after
    return changed if changed.dim() < 2 else changed.any(1)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Drop elements that equal their predecessor; on request with the inverse indices and the counts.

    With a dimension, the slices along it.
    """
    x = input.reshape(-1) if dim is None else _rows(input, dim, "unique_consecutive")
    new = _joined(x.new_ones(1).bool(), _differ(x[1:], x[:-1])) if x.shape[0] else x.reshape(-1).bool()
    found = [x[new] if dim is None else _selected(input, dim, nonzero(new, as_tuple=True)[0])]
    run = new.long().cumsum(0) - 1
    if return_inverse:
        found.append(run.reshape(input.shape) if dim is None else run)
    if return_counts:
        count = int(found[0].shape[0 if dim is None else dim])
        found.append(run.new_zeros(count).scatter_add(0, run, run.new_ones(run.shape)))
    return found[0] if len(found) == 1 else tuple(found)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Test whether each element occurs in `test_elements`.

    >>> import tilegrad as tg
    >>> isin(tg.tensor([1, 2, 3]), tg.tensor([2, 5]))
    tensor([False,  True, False])
    """
    if not isinstance(elements, Handle):
        if not isinstance(test_elements, Handle) or not isinstance(elements, int | float):
            raise ArgumentError(f"isin: a tensor and numbers are wanted, not {kind_of(elements)}")
        elements = wrap(test_elements.value).new_tensor(elements)
    others: Any = test_elements if isinstance(test_elements, Handle) else elements.new_tensor(test_elements)
    for x in (elements, others):
        numbers_of(x, "isin")
    found: Tensor = (elements.unsqueeze(-1) == others.reshape(-1)).any(-1)
    return ~found if invert else found


# --- histograms ------------------------------------------------------------------------------------


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count the elements in `bins` equal intervals; without bounds (min = max), those of the elements are taken.

    >>> import tilegrad as tg
    >>> histc(tg.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    x = wrap(floats_of(input, "histc"))
    return _histogram(x, bins, *((min, max) if min != max else _bounds(x, 0.0, 0.0)), None, 1.0)[0]


def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Sum the counts or weights in each interval; return them with the bounds of the intervals."""
    x = wrap(floating(input, "histogram"))
    if isinstance(bins, Handle):
        hist, edges = _into(x, bins, weight), bins
    else:
        low, high = _bounds(x, 0.0, 1.0) if range is None else range
        hist, edges = _histogram(x, bins, low, high, weight, 0.5)
    if density:
        hist = hist / hist.sum() / edges.diff()
    return Histogram(hist, edges)


def _histogram(
    x: Tensor, bins: int, low: float, high: float, weight: Tensor | None, around: float
) -> tuple[Tensor, Tensor]:
    if bins < 1 or low > high:
        raise ArgumentError(f"histogram: {bins} intervals from {low} to {high}: there must be some, in order")
    if low == high:
        low, high = low - around, high + around
    edges = linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)
    flat = x.reshape(-1)
    place = ((flat - low) * (bins / (high - low))).nan_to_num(-1.0).floor().clamp(-1, bins).long()
    place = place.where(flat != high, bins - 1)
    return _counted(place, (flat >= low) & (flat <= high), bins, x, weight), edges


def _bounds(x: Tensor, low: float, high: float) -> tuple[float, float]:
    """Return the minimum and the maximum, or the default for no elements."""
    return (float(x.amin().item()), float(x.amax().item())) if x.numel() else (low, high)


def _into(x: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    """Count elements between bounds; the last interval includes its end."""
    count = edges.shape[0] - 1
    flat = x.reshape(-1)
    place = (flat.unsqueeze(-1) >= edges).sum(-1) - 1
    place = place.where(flat != edges[-1], count - 1)
    return _counted(place, (flat >= edges[0]) & (flat <= edges[-1]), count, x, weight)


def _counted(place: Tensor, inside: Tensor, bins: int, x: Tensor, weight: Tensor | None) -> Tensor:
    """Count per bin; elements outside are counted behind all bins."""
    amount = x.new_ones(place.shape) if weight is None else weight.reshape(-1).to(x.dtype)
    return x.new_zeros(bins + 1).scatter_add(0, place.clamp(0, bins - 1).where(inside, bins), amount)[:bins]


# --- of several variables --------------------------------------------------------------------------


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Compute the covariance matrix of variables (rows) over observations (columns)."""
    if input.dim() > 2:
        raise ShapeError(f"cov: takes variables in rows, not shape {shown(input.shape)}")
    if input.dtype is bool_:
        raise DTypeError("cov: takes numbers, not bools")
    x = wrap(floating(input, "cov"))
    x = x.reshape(1, -1) if input.dim() < 2 else x
    _check_weights(x, fweights, aweights)
    weight = None if fweights is None else fweights.to(x.dtype)
    if aweights is not None:
        weight = aweights if weight is None else weight * aweights
    if weight is None:
        total: Any = x.shape[1]
        centred = x - x.mean(1, keepdim=True)
        product, norm = centred @ centred.t(), max(total - correction, 0)
    else:
        total = weight.sum()
        centred = x - (x * weight).sum(1, keepdim=True) / total
        product = (centred * weight) @ centred.t()
        norm = total - correction
        if aweights is not None and correction:
            norm = total - correction * (weight * aweights).sum() / total
        norm = norm.clamp(min=0)
    result: Tensor = product / norm
    return result.squeeze()


def _check_weights(x: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> None:
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None and tuple(given.shape) != tuple(x.shape[1:]):
            raise ShapeError(f"cov: {name} has the shape {shown(given.shape)}; there are {x.shape[1]} observations")
    if fweights is not None and not fweights.dtype.is_integer:
        raise DTypeError(f"cov: fweights count how often an observation was made, not {fweights.dtype.name} elements")


def corrcoef(input: Tensor) -> Tensor:
    """Compute the correlation matrix of variables (rows) over observations (columns)."""
    c = cov(input)
    if not c.dim():
        return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation.unsqueeze(0) / deviation.unsqueeze(1)).clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Compute the p-norm of the difference."""
    return (input - other).norm(p)


MODES_OF_CDIST = (
    None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
)  # fmt: skip
"""PyTorch's `compute_mode`; all of them compute alike here."""


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Compute the distances of all pairs of rows of two matrices, or of batches of matrices."""
    if compute_mode not in MODES_OF_CDIST:
        raise ArgumentError(f"cdist: compute_mode={compute_mode!r} is none of {', '.join(map(repr, MODES_OF_CDIST))}")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: rows of {shown(x1.shape)} and {shown(x2.shape)} have different lengths")
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)


@row_by_row
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scale slices along a dimension down to a p-norm of at most `maxnorm`."""
    if maxnorm < 0:
        raise ArgumentError(f"renorm: maxnorm={maxnorm} is negative")
    if input.dim() < 2:
        raise ShapeError(f"renorm: takes at least two dimensions, not shape {shown(input.shape)}")
    others = [n for n in range(input.dim()) if n != normal_axis(dim, input.dim(), "renorm")]
    norm = input.norm(p, others, keepdim=True)
    return input * (maxnorm / (norm + 1e-7)).where(norm > maxnorm, 1.0)


# --- areas -----------------------------------------------------------------------------------------


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Integrate samples along a dimension by the trapezoidal rule."""
    return _slices(y, x, dx, dim).sum(dim)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Integrate samples cumulatively by the trapezoidal rule."""
    return _slices(y, x, dx, dim).cumsum(dim)


def _slices(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    numbers_of(y, "trapezoid")
    if not y.dim():
        raise ShapeError("trapezoid: y is one number; it takes the points of a curve")
    normal_axis(dim, y.dim(), "trapezoid")
    count = max(y.shape[dim] - 1, 0)
    heights = (y.narrow(dim, 0, count) + y.narrow(dim, 1, count)) / 2
    if x is None:
        return heights * dx
    if x.dim() == 1:
        return heights * x.diff().reshape([-1 if n == dim % y.dim() else 1 for n in range(y.dim())])
    return heights * x.diff(dim=dim)


trapz = trapezoid

publish(globals())
