"""Define gather, scatter, masking, searching and sorting."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import bool_, float32, int32, int64, uint8
from ..ir.functions import identity
from ..ir.graph import Value
from ..ir.size import Shape
from ..lazy.evaluation import array_of, check_index, compute
from ..lazy.handle import Handle, wrap
from ..lazy.kept_formats import keeping_strides
from ..lazy.layout import in_order, lay, row_by_row
from ..ops import control, selection, sorting
from ..ops import indexing as ops
from ..ops.base import require_one_device
from ..ops.broadcasting import broadcast_shapes, expand, fill, normal_axis, reshape, shown
from ..ops.cast import cast
from ..ops.comparison import ne
from ..ops.reduction import count_nonzero
from .declared import publish
from .promotion import Number, as_number, constant, kind_of, numbers_of, pair, refused, value_of
from .views import numpy_names

if TYPE_CHECKING:
    from ..tensor import Tensor


class Sorted(NamedTuple):
    """Sorted elements, and their indices in the input."""

    values: Tensor
    indices: Tensor


def _index(index: Tensor, x: Value, dim: int, op: str, from_end: bool = False) -> Value:
    """Check an index and convert it to integers; negative ones count from the end where that is allowed."""
    value = value_of(index, op)
    if value.dtype.is_integer and 0 in value.shape:
        value = cast(value, int64)
    if not value.dtype.is_integer or value.dtype.bits < 32:
        raise DTypeError(
            f"{op}: the index has {value.dtype.name} elements, not int64 or int32; convert it, as in index.long()"
        )
    require_one_device(op, [x, value])
    if x.shape:
        axis = normal_axis(dim, len(x.shape), op)
        value = check_index(value, x.shape[axis], axis, op, from_end=from_end)
    return value


def _require_vector(index: Tensor, op: str) -> None:
    if len(value_of(index, op).shape) > 1:
        raise ShapeError(f"{op}: the index is a vector, not a tensor of shape {shown(index.shape)}")


def _source(src: Tensor | Number, like: Value, op: str) -> Value:
    if isinstance(src, Handle):
        return src.value
    number = as_number(src)
    if number is None:
        raise refused(op, src)
    return constant(number, like.dtype, like.device)


# --- picked ------------------------------------------------------------------------------------


@numpy_names
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Gather along a dimension: out[i, j] = input[index[i, j], j] for dim=0."""
    x = value_of(input, "gather")
    return wrap(ops.take_along(x, _index(index, x, dim, "gather"), dim))


@numpy_names
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Gather along a dimension; other dimensions broadcast, unlike in `gather`. Without `dim`, index it flattened."""
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    x, index = value_of(input, "take_along_dim"), value_of(indices, "take_along_dim")
    axis = normal_axis(dim, len(x.shape), "take_along_dim")
    others = [tuple([1 if n == axis else extent for n, extent in enumerate(v.shape)]) for v in (x, index)]
    met = broadcast_shapes(*others, op="take_along_dim")
    x, index = (
        expand(v, tuple([v.shape[axis] if n == axis else extent for n, extent in enumerate(met)])) for v in (x, index)
    )
    places = wrap(index)
    return gather(wrap(x), axis, places + (places < 0) * wrap(x).shape[axis])


def take(input: Tensor, index: Tensor) -> Tensor:
    """Index the flattened tensor."""
    whole, numbers = input.reshape(-1), index.reshape(-1)
    return gather(whole, 0, numbers + (numbers < 0) * whole.shape[0]).reshape(index.shape)


@numpy_names
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Select slices along a dimension by a vector of indices."""
    x = value_of(input, "index_select")
    return wrap(ops.index_select(x, _index(index, x, dim, "index_select"), dim))


def embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look up the rows of a table (`nn.functional.embedding` takes the indices first)."""
    table = value_of(weight, "embedding")
    return wrap(ops.embedding(table, _index(indices, table, 0, "embedding")))


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where the mask is true, as a vector."""
    x, test = value_of(input, "masked_select"), _mask(mask, "masked_select")
    shape = broadcast_shapes(x.shape, test.shape, op="masked_select")
    test = expand(test, shape)
    return wrap(selection.masked_select(x, test, count_nonzeros(test)))


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Return the indices of nonzero elements: as rows of a matrix, or as a vector for each dimension."""
    x = value_of(input, "nonzero")
    count = count_nonzeros(x)
    if as_tuple:
        if not x.shape:
            return (wrap(fill(0, (count,), int64, x.device)),)
        return tuple(map(wrap, selection.nonzero_along(x, count)))
    made = wrap(selection.nonzero(x, count))
    return lay(made, in_order((count, len(x.shape)), (1, 0))) if count > 1 and len(x.shape) > 1 else made


def argwhere(input: Tensor) -> Tensor:
    """Return the indices of nonzero elements as rows of a matrix."""
    return nonzero(input)  # type: ignore[return-value]


def count_nonzeros(x: Value, *others: Value) -> int:
    """Count the nonzero elements as a Python number, which computes them; the computed values are kept."""
    count = wrap(count_nonzero(x))
    compute(count, wrap(x), *map(wrap, others))
    return int(array_of(count))


def _mask(mask: Tensor, op: str) -> Value:
    value = value_of(mask, op)
    if value.dtype is not bool_:
        raise DTypeError(f"{op}: the mask must be bool, not {value.dtype.name}; compare it with something, as in x > 0")
    return value


# --- written -----------------------------------------------------------------------------------


def masked_fill(input: Tensor, mask: Tensor, value: Number | Tensor) -> Tensor:
    """Replace the elements where the mask is true by a number."""
    x, test = value_of(input, "masked_fill"), _mask(mask, "masked_fill")
    return wrap(selection.masked_fill(x, test, cast(_source(value, x, "masked_fill"), x.dtype)))


@row_by_row
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Replace the elements where the mask is true by those of `source`, in order."""
    _mask(mask, "masked_scatter")
    if input.dtype is not source.dtype:
        raise DTypeError(f"masked_scatter: {input.dtype.name} beside {source.dtype.name}; convert one: y.to(x.dtype)")
    met = broadcast_shapes(tuple(input.shape), tuple(mask.shape), op="masked_scatter")
    input, test = input.expand(met), mask.expand(met)
    place = (test.reshape(-1).long().cumsum(0) - 1).clamp(min=0).reshape(input.shape)
    last = (test.sum() - 1).clamp(min=0)
    check_index(last.value, max(source.numel(), 1), 0, "masked_scatter: of the source")
    return source.reshape(-1)[place].where(test, input)


@numpy_names
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    reduce: str | None = None,
    value: Number | None = None,
) -> Tensor:
    """Write src[i, j] to position index[i, j] along a dimension."""
    x = value_of(input, "scatter")
    if src is None and value is None:
        raise ArgumentError("scatter: src or value is needed")
    names = {None: "", "add": "add", "multiply": "mul"}
    if reduce not in names:
        raise ArgumentError(f"scatter: reduce is 'add' or 'multiply', not {reduce!r}")
    given = _source(value if src is None else src, x, "scatter")  # type: ignore[arg-type]
    index_ = _index(index, x, dim, "scatter")
    return wrap(ops.scatter_along(x, index_, given if given.shape else expand(given, index_.shape), dim, names[reduce]))


@numpy_names
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add src[i, j] at position index[i, j] along a dimension."""
    x = value_of(input, "scatter_add")
    return wrap(ops.scatter_along(x, _index(index, x, dim, "scatter_add"), value_of(src, "scatter_add"), dim, "add"))


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine src[i, j] at position index[i, j] by "sum", "prod", "mean", "amax" or "amin"; `include_self` includes the
    input.

    >>> from .creation import tensor
    >>> scatter_reduce(tensor([9.0, 9.0]), 0, tensor([0, 0]), tensor([1.0, 2.0]), "mean", include_self=False)
    tensor([1.5000, 9.0000])
    """
    names = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "mean": "add"}
    if reduce not in names:
        raise ArgumentError(f"scatter_reduce: {reduce!r}; 'sum', 'prod', 'mean', 'amax' and 'amin' are there")
    x = value_of(input, "scatter_reduce")
    if value_of(src, "scatter_reduce").dtype is not x.dtype:
        raise DTypeError(f"scatter_reduce: {x.dtype.name} and {src.dtype.name}; convert one, as in src.to(input.dtype)")
    index_ = _index(index, x, dim, "scatter_reduce")
    once = fill(1, index_.shape, int64, x.device)
    hits = ops.scatter_along(fill(0, x.shape, int64, x.device), index_, once, dim, "add")
    if not include_self and x.dtype is bool_:
        x = control.where(ne(hits, 0), reduce in ("prod", "amin"), x)
    elif not include_self:
        x = control.where(ne(hits, 0), identity(names[reduce], x.dtype), x)
    result = wrap(ops.scatter_along(x, index_, value_of(src, "scatter_reduce"), dim, names[reduce]))
    if reduce != "mean":
        return result
    count = (wrap(hits) + (1 if include_self else 0)).clamp(min=1)
    return result / count if x.dtype.is_float else (result // count).to(x.dtype)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """Add slices of `source` at the indices of a dimension."""
    x = value_of(input, "index_add")
    _require_vector(index, "index_add")
    if x.dtype.is_integer:
        alpha = int(alpha)
    given = value_of(source if alpha == 1 else source * alpha, "index_add")
    axis = normal_axis(dim, len(x.shape), "index_add")
    if given.shape and x.shape and _without(given.shape, axis) != _without(x.shape, axis):
        raise ShapeError(
            f"index_add: a source of the shape {shown(given.shape)} for {shown(x.shape)}: but for dimension {dim} they "
            "are equal"
        )
    return wrap(ops.index_add(x, dim, _index(index, x, dim, "index_add"), cast(given, x.dtype)))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write slices of `source` at the indices of a dimension."""
    x = value_of(input, "index_copy")
    axis = normal_axis(dim, len(x.shape), "index_copy")
    _require_vector(index, "index_copy")
    return wrap(ops.index_put(x, [_index(index, x, dim, "index_copy")], [axis], value_of(source, "index_copy")))


@keeping_strides
def index_fill(input: Tensor, dim: int, index: Tensor, value: Number | Tensor) -> Tensor:
    """Fill the slices at the indices of a dimension with a number."""
    x = value_of(input, "index_fill")
    axis = normal_axis(dim, len(x.shape), "index_fill")
    given = cast(_source(value, x, "index_fill"), x.dtype)
    _require_vector(index, "index_fill")
    if given.shape:
        raise ShapeError(f"index_fill takes one number, not a tensor of shape {shown(given.shape)}; use index_copy")
    nowhere = fill(False, x.shape[axis : axis + 1] or (1,), bool_, x.device)
    named = ops.index_put(nowhere, [_index(index.reshape(-1), x, dim, "index_fill", from_end=True)], [0], True)
    named = reshape(named, (-1, *(1,) * (len(x.shape) - axis - 1)) if x.shape else ())
    return wrap(control.where(named, given, x))  # an index that is there twice is one place: so is its gradient


def _places(index: Tensor, op: str) -> tuple[Tensor, ...]:
    """Convert an index to integers; a mask becomes a vector of indices for each of its dimensions."""
    if value_of(index, op).dtype is not bool_:
        return (index,)
    return nonzero(index, as_tuple=True)  # type: ignore[return-value]


def index_put(input: Tensor, indices: tuple[Tensor, ...], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write `values` at the positions that several index tensors give together; `accumulate` adds."""
    x = value_of(input, "index_put")
    indices = tuple([i for given in indices for i in _places(given, "index_put")])
    if not indices or len(indices) > len(x.shape):
        raise ArgumentError(f"index_put: {len(indices)} tensors of indices for {len(x.shape)} axes")
    places = [_index(i, x, n, "index_put", from_end=True) for n, i in enumerate(indices)]
    given = cast(_source(values, x, "index_put"), x.dtype)
    return wrap(ops.index_put(x, places, range(len(places)), given, "add" if accumulate else ""))


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine slices of `source` at the indices of a dimension by "prod", "mean", "amax" or "amin"."""
    axis = normal_axis(dim, len(input.shape), "index_reduce")
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError(f"index_reduce: {reduce!r}; 'prod', 'mean', 'amax' and 'amin' are there")
    along = index.reshape([-1 if n == axis else 1 for n in range(source.dim())]).expand(source.shape)
    return scatter_reduce(input, dim, along, source, reduce, include_self=include_self)


@keeping_strides
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write the elements of `source` at flat indices; `accumulate` adds."""
    whole, numbers = input.reshape(-1), index.reshape(-1)
    places = numbers + (numbers < 0) * whole.shape[0]
    return index_put(whole, (places,), source.reshape(-1), accumulate).reshape(input.shape)


# --- sorted ------------------------------------------------------------------------------------


@numpy_names
@keeping_strides
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """Sort along a dimension; return the elements and their indices."""
    return Sorted(*map(wrap, sorting.sort(value_of(input, "sort"), dim, descending)))


@numpy_names
@keeping_strides
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the indices that sort along a dimension."""
    return wrap(sorting.argsort(value_of(input, "argsort"), dim, descending))


@numpy_names
def topk(input: Tensor, k: int, dim: int | None = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """Return the `k` largest (or smallest) elements along a dimension, and their indices."""
    return Sorted(*map(wrap, sorting.topk(value_of(input, "topk"), k, -1 if dim is None else dim, largest)))


@numpy_names
def kthvalue(input: Tensor, k: int, dim: int | None = -1, keepdim: bool = False) -> Sorted:
    """Return the k-th smallest element along a dimension, and its index."""
    return Sorted(*map(wrap, sorting.kthvalue(value_of(input, "kthvalue"), k, -1 if dim is None else dim, keepdim)))


@numpy_names
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | Sorted:
    """Compute the median: of all elements, or along a dimension with its index; of two middle ones the lower."""
    x = numbers_of(input, "median")
    if dim is None and keepdim:
        raise ArgumentError("median: keepdim goes with a dimension")
    if dim is None:
        return shared_among_equals(input, wrap(sorting.median(value_of(input.reshape(-1), "median"), 0).values))
    return Sorted(*map(wrap, sorting.median(x, dim, keepdim)))


def shared_among_equals(input: Tensor, chosen: Tensor) -> Tensor:
    """Return an extreme whose gradient all elements equal to it share."""
    if not input.requires_grad or not input.numel():
        return chosen
    chosen = chosen.detach()
    return input.where((input == chosen) | (input.isnan() & chosen.isnan()), -inf).amax()


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Convert class indices to one-hot rows."""
    x = value_of(input, "one_hot")
    if x.dtype is not int64:
        raise DTypeError(f"one_hot: takes int64 indices, not {x.dtype.name}; convert them, as in x.long()")
    if num_classes < -1:
        raise ArgumentError(f"one_hot: num_classes={num_classes}: give their number, or -1 for what the indices need")
    if num_classes < 0 and not x.type.count:
        raise ArgumentError("one_hot: nothing says how many classes there are: give num_classes")
    if num_classes < 0:
        num_classes = int(array_of(wrap(x).max())) + 1  # type: ignore[arg-type]
    if x.type.count:
        x = check_index(x, num_classes, -1, "one_hot", from_end=False)
    return wrap(selection.one_hot(x, num_classes))


def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return the index of the interval between sorted boundaries that holds each element."""
    if boundaries.dim() != 1:
        raise ShapeError(f"bucketize: boundaries of the shape {shown(boundaries.shape)}; they are one vector")
    return _searched(boundaries, input, right, out_int32, "bucketize")


def _searched(edges: Tensor, values: Tensor | Number, right: bool, short: bool, op: str) -> Tensor:
    from ..ops.searching import search_sorted

    x, e = pair(values, edges, op)
    if x.dtype is bool_:
        x, e = cast(x, uint8), cast(e, uint8)
    found = search_sorted(e, x, right)
    return wrap(cast(found, int32) if short else found)


def searchsorted(
    sorted_sequence: Tensor,
    values: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Return the insertion index of each value in a sorted vector, or in the matching row of a sorted tensor.

    >>> import tilegrad as tg
    >>> searchsorted(tg.tensor([[1, 3, 5], [2, 4, 6]]), tg.tensor([[3], [3]]), side="right").tolist()
    [[2], [1]]
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError(f"searchsorted: side={side!r}, right={right}: give side='left' or side='right' alone")
    edges = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    if edges.dim() > 1:
        if not isinstance(values, Handle) or values.shape[:-1] != edges.shape[:-1]:
            met = kind_of(values) if not isinstance(values, Handle) else shown(values.value.shape)
            raise ShapeError(
                f"searchsorted: rows of {shown(edges.shape)} and values {met}; all dimensions but the last are equal, "
                "or the sorted sequence is one vector"
            )
    return _searched(edges, values, right or side == "right", out_int32, "searchsorted")


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count how often each of 0, 1, ... occurs, or sum its weights."""
    x = value_of(input, "bincount")
    if not x.dtype.is_integer or len(x.shape) != 1:
        raise DTypeError(f"bincount takes a vector of integers, not {x.dtype.name} of {len(x.shape)} dimensions")
    most = int(array_of(input.max())) + 1 if x.type.count else 0  # type: ignore[arg-type]
    if weights is not None and weights.dtype is not float32:
        weights = weights.double()
    given = input.new_ones(input.shape, dtype=int64) if weights is None else weights
    return given.new_zeros(max(most, minlength)).scatter_add(0, input.long(), given)


publish(globals(), internal=("count_nonzeros", "shared_among_equals"))
