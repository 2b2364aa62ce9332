"""Define reductions (sums, extremes, means, norms) and scans."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import ArgumentError, AxisError, DTypeError, ShapeError
from ..ir.dtype import DType, bool_, int64, uint8
from ..ir.graph import Value
from ..lazy.handle import Handle, wrap
from ..ops import broadcasting
from ..ops.cast import cast, to_bool
from .autocasting import widened
from .creation import typed
from .declared import integers, publish
from .pointwise import Ops, at_once_or_recorded, few, named
from .promotion import Number, floating, floats_of, kind_of, numbers_of, value_of
from .views import numpy_names, sizes_of

if TYPE_CHECKING:
    from ..tensor import Tensor

reduction, scan, statistics = Ops("reduction"), Ops("scan"), Ops("statistics")

Dims: TypeAlias = "int | Sequence[int] | None"
DimsOrFlag: TypeAlias = "bool | int | Sequence[int] | None"
"""`x.var(False)` says that it is not corrected."""


class Extreme(NamedTuple):
    """The largest or smallest elements along a dimension, and their indices."""

    values: Tensor
    indices: Tensor


class VarMean(NamedTuple):
    var: Tensor
    mean: Tensor


class StdMean(NamedTuple):
    std: Tensor
    mean: Tensor


def _axes(dim: Dims, op: str) -> Dims:
    """Return the axes to reduce; none means all, as in PyTorch."""
    if dim is None or isinstance(dim, int):
        return dim
    if not builtins.all(isinstance(n, int) for n in dim):
        raise ArgumentError(f"{op}: dim is an integer or several, not {kind_of(dim)}")
    return tuple(dim) or None


def _summed(x: Value, dtype: DType | None) -> Value:
    """Convert to the dtype of sums: int64 for bools and integers."""
    wanted = typed(dtype)
    if wanted is not None:
        return cast(x, wanted)
    return widened(x) if x.type.dtype.kind == "float" else cast(x, int64)


def _averaged(x: Value, dtype: DType | None, op: str) -> Value:
    x = cast(x, typed(dtype) or x.dtype)
    if not x.dtype.is_float:
        raise DTypeError(
            f"{op} takes floating-point elements, not {x.dtype.name}; convert them: x.float().{op}(), or "
            f"{op}(x, dtype=...)"
            if op == "mean"
            else f"{op} takes floating-point elements, not {x.dtype.name}; convert them: x.float().{op}()"
        )
    return x


# --- sums and products -------------------------------------------------------------------------


@numpy_names
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over all dimensions, or over `dim`."""
    if dim is None and not keepdim and dtype is None and (made := few.total(input)) is not None:
        return made
    x = value_of(input, "sum")
    if typed(dtype) is bool_:
        return wrap(reduction.reduce_any(cast(x, bool_), _axes(dim, "sum"), keepdim))
    return at_once_or_recorded(broadcasting.reduce_sum(_summed(x, dtype), _axes(dim, "sum"), keepdim))


def sum_to_size(input: Tensor, *size: int) -> Tensor:
    """Sum over the dimensions along which a shape would be broadcast to the tensor's own."""
    x, wanted = value_of(input, "sum_to_size"), sizes_of(size, "sum_to_size")
    if len(wanted) > len(x.shape) or broadcasting.broadcast_shapes(wanted, x.shape, op="sum_to_size") != x.shape:
        raise ShapeError(
            f"sum_to_size: {broadcasting.shown(wanted)} is no size that could be broadcast to the tensor's "
            f"{broadcasting.shown(x.shape)}"
        )
    summed = not wanted or x.shape != wanted
    return wrap(broadcasting.sum_to(cast(x, int64) if summed and not x.dtype.is_float else x, wanted))


@numpy_names
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum the elements that are not NaN."""
    return sum(input.masked_fill(input.isnan(), 0) if input.dtype.is_float else input, dim, keepdim, dtype=dtype)


@numpy_names
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Multiply all elements, or those along a dimension."""
    x = value_of(input, "prod")
    if typed(dtype) is bool_:
        return wrap(reduction.reduce_all(cast(x, bool_), dim, keepdim))
    return wrap(reduction.reduce_prod(_summed(x, dtype), dim, keepdim))


@numpy_names
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Average over all dimensions, or over `dim`."""
    if dim is None and not keepdim and dtype is None and (made := few.total(input, True)) is not None:
        return made
    return wrap(statistics.mean(_averaged(value_of(input, "mean"), dtype, "mean"), _axes(dim, "mean"), keepdim))


def _spread(
    op: Callable[..., Any], doc: str, pair: Callable[[Tensor, Tensor], Any] | None = None
) -> Callable[..., Any]:
    """Return a function of the squared deviations from the mean; `pair` holds the two results of the op."""
    name = op.__name__

    def spread(
        input: Tensor,
        dim: DimsOrFlag = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: Number | None = None,
    ) -> Any:
        dim, unbiased = _flag(dim, unbiased)
        x, less = _averaged(value_of(input, name), None, name), int(unbiased) if correction is None else correction
        found = op(x, _axes(dim, name), less, keepdim)
        return wrap(found) if pair is None else pair(*map(wrap, found))

    spread.__annotations__["return"] = "Tensor" if pair is None else pair.__name__
    return numpy_names(named(spread, name, doc))


var = _spread(
    statistics.var,
    "Compute the variance: the sum of squared deviations from the mean, divided by the count less `correction`.",
)
std = _spread(statistics.std, "Compute the standard deviation: the square root of the variance.")
var_mean = _spread(statistics.var_mean, "Compute the variance and the mean.", VarMean)
std_mean = _spread(statistics.std_mean, "Compute the standard deviation and the mean.", StdMean)


def _flag(dim: DimsOrFlag, unbiased: bool) -> tuple[Dims, bool]:
    """Take a bool in the place of `dim` as `unbiased`: `x.var(False)` is `x.var(unbiased=False)`."""
    if isinstance(dim, bool):
        return None, dim
    return integers(dim, "var", "dim"), unbiased


@numpy_names
def norm(
    input: Tensor, p: float | str = 2, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """Compute the p-norm: the p-th root of the sum of the p-th powers of the magnitudes."""
    order = {"fro": 2.0, "inf": float("inf")}.get(p) if isinstance(p, str) else float(p)
    if order is None:
        raise ArgumentError(f"norm: p is a number, 'fro' or 'inf', not {p!r}")
    return wrap(
        statistics.norm(_averaged(widened(value_of(input, "norm")), dtype, "norm"), order, _axes(dim, "norm"), keepdim)
    )


@numpy_names
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Compute log(sum(exp(input))) without overflow."""
    if dim is None:
        raise ArgumentError("logsumexp: the dimensions are missing; all of them are dim=()")
    return wrap(statistics.logsumexp(floating(input, "logsumexp"), _axes(dim, "logsumexp"), keepdim))


# --- extremes ----------------------------------------------------------------------------------


@numpy_names
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Compute the maximum along dimensions; equal maxima share the gradient."""
    return at_once_or_recorded(reduction.amax(value_of(input, "amax"), _axes(dim, "amax"), keepdim))


@numpy_names
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Compute the minimum along dimensions; equal minima share the gradient."""
    return at_once_or_recorded(reduction.amin(value_of(input, "amin"), _axes(dim, "amin"), keepdim))


@numpy_names
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Compute the minimum and the maximum."""
    return amin(input, dim, keepdim), amax(input, dim, keepdim)


@numpy_names
def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """Compute the maximum: of all elements; along a dimension, with its indices; or element-wise, of two tensors."""
    if dim is None:
        _no_keepdim(keepdim, "max")
        return at_once_or_recorded(reduction.reduce_max(value_of(input, "max")))
    if isinstance(dim, Handle):
        return input.maximum(dim)
    return Extreme(*map(at_once_or_recorded, reduction.max_along(value_of(input, "max"), dim, keepdim)))


@numpy_names
def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """Compute the minimum: of all elements; along a dimension, with its indices; or element-wise, of two tensors."""
    if dim is None:
        _no_keepdim(keepdim, "min")
        return at_once_or_recorded(reduction.reduce_min(value_of(input, "min")))
    if isinstance(dim, Handle):
        return input.minimum(dim)
    return Extreme(*map(at_once_or_recorded, reduction.min_along(value_of(input, "min"), dim, keepdim)))


def _no_keepdim(keepdim: bool, op: str) -> None:
    if keepdim:
        raise ArgumentError(f"{op}: keepdim goes with a dimension; of all elements, amax and amin keep dimensions")


@numpy_names
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the maximum: the first of equal ones."""
    return at_once_or_recorded(reduction.argmax(numbers_of(input, "argmax"), dim, keepdim))


@numpy_names
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the minimum: the first of equal ones."""
    return at_once_or_recorded(reduction.argmin(numbers_of(input, "argmin"), dim, keepdim))


# --- truth -------------------------------------------------------------------------------------


@numpy_names
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Test whether all elements are nonzero."""
    x = value_of(input, "all")
    return _as_asked(input, to_bool(x) if _none(dim) else reduction.reduce_all(x, _axes(dim, "all"), keepdim))


@numpy_names
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Test whether any element is nonzero."""
    x = value_of(input, "any")
    return _as_asked(input, to_bool(x) if _none(dim) else reduction.reduce_any(x, _axes(dim, "any"), keepdim))


def _none(dim: Dims) -> bool:
    """Test whether no dimension is reduced; in other reductions () means all dimensions."""
    return isinstance(dim, Sequence) and not dim


def _as_asked(x: Tensor, truth: Value) -> Tensor:
    """Convert the result for uint8 to uint8, as in PyTorch."""
    return at_once_or_recorded(cast(truth, uint8) if x.dtype is uint8 else truth)


@numpy_names
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """Count the nonzero elements."""
    return at_once_or_recorded(reduction.count_nonzero(value_of(input, "count_nonzero"), _axes(dim, "count_nonzero")))


# --- running -----------------------------------------------------------------------------------


@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Compute the cumulative sum along a dimension."""
    if typed(dtype) is bool_:
        return _running(scan.cummax, input.bool(), dim, "cumsum").values
    return wrap(scan.cumsum(_summed(value_of(input, "cumsum"), dtype), dim))


@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Compute the cumulative product along a dimension."""
    if typed(dtype) is bool_:
        return _running(scan.cummin, input.bool(), dim, "cumprod").values
    return wrap(scan.cumprod(_summed(value_of(input, "cumprod"), dtype), dim))


@numpy_names
def cummax(input: Tensor, dim: int) -> Extreme:
    """Compute the cumulative maximum along a dimension, and its indices."""
    return _running(scan.cummax, input, dim, "cummax")


@numpy_names
def cummin(input: Tensor, dim: int) -> Extreme:
    """Compute the cumulative minimum along a dimension, and its indices."""
    return _running(scan.cummin, input, dim, "cummin")


def _running(op: Callable[[Value, int], Sequence[Value]], input: Tensor, dim: int, name: str) -> Extreme:
    x = value_of(input, name)
    values, indices = op(cast(x, uint8) if x.dtype is bool_ else x, dim)
    return Extreme(wrap(cast(values, x.dtype)), wrap(indices))


@numpy_names
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Compute the logarithm of the cumulative sum of exp(input), without overflow."""
    return wrap(scan.logcumsumexp(floats_of(input, "logcumsumexp"), dim))


@numpy_names
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Compute differences of neighbours along a dimension, `n` times, after `prepend` and `append` are joined to it."""
    from .joining import cat

    if n < 0:
        raise ArgumentError(f"diff: n is {n}; differences are taken no, one or several times")
    if n and (prepend is not None or append is not None):
        input = cat([x for x in (prepend, input, append) if x is not None], dim)
    if not input.dim():
        raise AxisError("diff: a single number has no neighbours: it needs at least one dimension")
    if n == 0:
        return input.clone()
    for _ in range(n):
        extent = input.shape[dim]
        if extent == 0:
            break
        later, former = (input.narrow(dim, k, builtins.max(extent - 1, 0)) for k in (1, 0))
        input = later ^ former if input.dtype is bool_ else later - former
    return input if n else input.clone()


def gradient(
    input: Tensor,
    *,
    spacing: Any = 1.0,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Estimate derivatives of samples along dimensions: central differences, one-sided at the ends.

    `spacing` is the distance of neighbours: a number, one for each dimension, or vectors of coordinates.

    >>> import tilegrad as tg
    >>> tg.gradient(tg.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    if input.dtype is bool_ or input.dtype is uint8:
        raise DTypeError(f"gradient: differences of {input.dtype.name} have no sign; convert it first, as in x.float()")
    spacing = 1.0 if spacing is None else spacing
    named = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = [broadcasting.normal_axis(axis, input.dim(), "gradient") for axis in named]
    if len(set(dims)) < len(dims):
        raise AxisError(f"gradient: dim={dim!r} names a dimension twice")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is 1 or 2, not {edge_order!r}")
    distances = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(distances) != len(dims):
        raise ArgumentError(f"gradient: {len(distances)} spacings for {len(dims)} dimensions")
    x = input if input.dtype.is_float else input.float()
    return tuple([_slope(x, axis, h, edge_order) for axis, h in zip(dims, distances, strict=True)])


def _slope(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    """Estimate the derivative along one dimension; unevenly spaced samples use the parabola through three points."""
    from .joining import cat

    extent: Any = x.shape[axis]
    if extent < edge_order + 1:
        raise ShapeError(f"gradient: dimension {axis} has {extent} elements; it needs at least {edge_order + 1}")
    is_coordinates = isinstance(spacing, Handle) and bool(spacing.value.shape)
    if is_coordinates and tuple(spacing.value.shape) != (extent,):
        raise ShapeError(f"gradient: {tuple(spacing.shape)} coordinates for {extent} elements")
    step: Any = diff(spacing) if is_coordinates else x.new_ones(extent - 1) * spacing
    step = step.reshape([-1 if n == axis else 1 for n in range(x.dim())])
    rise = diff(x, dim=axis) / step  # between neighbours
    first, last = rise.narrow(axis, 0, 1), rise.narrow(axis, extent - 2, 1)
    if extent == 2:
        return cat([first, last], axis)
    before, after = step.narrow(axis, 0, extent - 2), step.narrow(axis, 1, extent - 2)
    left, right = rise.narrow(axis, 0, extent - 2), rise.narrow(axis, 1, extent - 2)
    middle = (left * after + right * before) / (before + after)
    if edge_order == 2:
        share = before / (before + after)
        first = first + ((left - right) * share).narrow(axis, 0, 1)
        last = last + ((right - left) * (1 - share)).narrow(axis, extent - 3, 1)
    return cat([first, middle, last], axis)


publish(globals(), internal=("sum_to_size",))
