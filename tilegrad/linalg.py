"""Define linear algebra made of products and sums (`tilegrad.linalg`); there are no factorisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import ArgumentError, ShapeError
from .functions.arithmetic import where
from .functions.contractions import dot, einsum, matmul
from .functions.declared import publish
from .functions.joining import stack
from .functions.promotion import floats_of
from .ir.dtype import DType, bool_
from .lazy.handle import wrap
from .lazy.layout import contiguous_format
from .ops.broadcasting import shown

if TYPE_CHECKING:
    from .tensor import Tensor


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Compute the cross products of vectors of three elements.

    >>> import tilegrad as tg
    >>> cross(tg.tensor([1.0, 0.0, 0.0]), tg.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if input.dim() != other.dim():
        raise ShapeError(f"cross: {shown(input.shape)} and {shown(other.shape)} have not the same number of dimensions")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise ShapeError(
            f"cross: dimension {dim} of {shown(input.shape)} and {shown(other.shape)} must have 3 elements"
        )
    x, y = input.unbind(dim), other.unbind(dim)
    return stack([x[n - 2] * y[n - 1] - x[n - 1] * y[n - 2] for n in range(3)], dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Compute dot products along a dimension."""
    if x.dim() == y.dim() == 1 and x.shape != y.shape:
        raise ShapeError(f"vecdot: vectors of the shapes {shown(x.shape)} and {shown(y.shape)}")
    return (wrap(floats_of(x, "vecdot")) * wrap(floats_of(y, "vecdot"))).sum(dim)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Compute the dot product of two vectors."""
    return dot(input, other)


def first_cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """`tilegrad.cross`: by default along the first dimension of 3 elements."""
    if dim is None:
        found = [n for n, extent in enumerate(input.shape) if extent == 3]
        if not found:
            raise ShapeError(f"cross: no dimension of {shown(input.shape)} has 3 elements")
        dim = found[0]
    return cross(input, other, dim=dim)


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute beta * input + alpha * the sum of the matrix products of two batches."""
    if not input.dtype.is_float:
        beta, alpha = int(beta), int(alpha)
    return input * beta + einsum("bik,bkj->ij", batch1, batch2) * alpha


def chain_matmul(*matrices: Tensor) -> Tensor:
    """Multiply several matrices; see `multi_dot`."""
    return multi_dot(matrices) if len(matrices) > 1 else matrices[0]


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute the norm of all elements, or along dimensions."""
    return x.norm(ord, dim, keepdim, dtype)


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute the norm of matrices: "fro", or 1, -1, inf or -inf (sums of rows or columns)."""
    row, column = (n % A.dim() for n in dim)
    x = wrap(floats_of(A, "matrix_norm")) if dtype is None else A.to(dtype)
    if ord == "fro":
        return x.norm(2, (row, column), keepdim)
    if ord not in (1, -1, float("inf"), float("-inf")):
        raise ArgumentError(f"matrix_norm: ord {ord!r} needs singular values; 'fro', 1, -1, inf and -inf are there")
    summed, other = (row, column) if abs(ord) == 1 else (column, row)
    sums = x.abs().sum(summed, keepdim=True)
    extreme = sums.amax(other, keepdim=True) if ord > 0 else sums.amin(other, keepdim=True)
    if keepdim:
        return extreme
    for n in sorted((row, column), reverse=True):
        extreme = extreme.squeeze(n)
    return extreme


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute the norm of vectors, or of matrices if two dimensions are given."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    axes = range(A.dim()) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if len(axes) == 2:
        return matrix_norm(A, ord, tuple(axes), keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ArgumentError(f"norm: {ord!r} is of matrices; {len(axes)} dimensions are no matrix")
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


def matrix_power(A: Tensor, n: int) -> Tensor:
    """Raise square matrices to the n-th power, n >= 0."""
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"matrix_power: {shown(A.shape)} is no square matrix")
    if n < 0:
        raise ArgumentError(f"matrix_power: n is {n}; inverses are not there")
    result: Tensor | None = None
    square = A
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        square = matmul(square, square) if n else square
    if result is None:
        always = A.new_ones((), dtype=bool_)  # so that A has a gradient: zeros
        return where(always, A.new_ones(A.shape[-1]).diag(), A).contiguous()
    return result if result is not A else A.clone(memory_format=contiguous_format)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Multiply several matrices in the order that takes the fewest multiplications."""
    given = list(tensors)
    if len(given) < 2:
        raise ArgumentError(f"multi_dot: {len(given)} tensors; at least two are multiplied")
    first, last = given[0].dim() == 1, given[-1].dim() == 1
    given[0] = given[0].unsqueeze(0) if first else given[0]
    given[-1] = given[-1].unsqueeze(1) if last else given[-1]
    sizes = [given[0].shape[0], *[x.shape[1] for x in given]]
    best: dict[tuple[int, int], tuple[int, int]] = {(n, n + 1): (0, n) for n in range(len(given))}
    for length in range(2, len(given) + 1):
        for i in range(len(given) - length + 1):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k, j][0] + sizes[i] * sizes[k] * sizes[j], k) for k in range(i + 1, j)
            )

    def product(i: int, j: int) -> Tensor:
        k = best[i, j][1]
        return given[i] if j == i + 1 else matmul(product(i, k), product(k, j))

    result = product(0, len(given))
    result = result.squeeze(0) if first else result
    return result.squeeze(-1) if last else result


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Take the diagonals of matrices."""
    return A.diagonal(offset, dim1, dim2)


publish(globals(), internal=("vdot", "first_cross", "addbmm", "chain_matmul"), others=("matmul",))
