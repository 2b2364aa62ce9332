"""Matrix products and other sums of products, as functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .amp_casts import lowered
from .errors import ArgumentError, ShapeError
from .handle import Handle, wrap
from .ir.graph import Value
from .ops import contraction as ops
from .ops.broadcasting import shown
from .ops.cast import cast
from .ops.einsum import einsum as summed
from .promotion import Number, kind_of, result_type, value_of

if TYPE_CHECKING:
    from .tensor import Tensor


def _same(op: str, *tensors: Any) -> list[Value]:
    """Values of one dtype: PyTorch refuses others; here they are promoted. In autocast's, where that is on."""
    values = lowered([value_of(x, op) for x in tensors])
    if any(v.type.dtype is not values[0].type.dtype for v in values):
        dtype = result_type(*[v.type.dtype for v in values])
        values = [cast(v, dtype) for v in values]
    return values


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product; vectors are rows on the left and columns on the right, leading dimensions broadcast."""
    return wrap(ops.matmul(*_same("matmul", input, other)))


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    return wrap(ops.mm(*_same("mm", input, mat2)))


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return wrap(ops.mv(*_same("mv", input, vec)))


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    return wrap(ops.dot(*_same("dot", input, tensor)))


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimensions."""
    return wrap(ops.inner(*_same("inner", input, other)))


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of an element of one vector with an element of another."""
    return wrap(ops.outer(*_same("outer", input, vec2)))


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of matrices, pair by pair."""
    return wrap(ops.bmm(*_same("bmm", input, mat2)))


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    if mat1.dim() != 2 or mat2.dim() != 2:
        raise ShapeError(
            f"addmm: takes two matrices, not shapes {shown(mat1.shape)} and {shown(mat2.shape)}; use x + a @ b"
        )
    x, y, z = _same("addmm", input, mat1, mat2)
    return wrap(ops.baddbmm(x, y, z, beta, alpha))


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    x, y, z = _same("addmv", input, mat, vec)
    return wrap(ops.baddbmm(x, y, z, beta, alpha))


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), matrix by matrix."""
    x, y, z = _same("baddbmm", input, batch1, batch2)
    return wrap(ops.baddbmm(x, y, z, beta, alpha))


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    return input * beta + outer(vec1, vec2) * alpha


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    return wrap(ops.kron(*_same("kron", input, other)))


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sums of products over pairs of dimensions."""
    axes = dims if isinstance(dims, int) else (tuple(dims[0]), tuple(dims[1]))
    x, y = _same("tensordot", a, b)
    return wrap(ops.tensordot(x, y, axes))


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products in Einstein's notation.

    >>> import tilegrad as tg
    >>> tg.einsum("ij,jk->ik", tg.ones(2, 3), tg.ones(3, 4)).shape
    (2, 4)
    """
    if not isinstance(equation, str):
        raise ArgumentError(
            f"einsum: the equation comes first, as in einsum('ij,jk->ik', x, y), not {kind_of(equation)}"
        )
    given = operands[0] if len(operands) == 1 and not isinstance(operands[0], Handle) else operands
    return wrap(summed(equation, *_same("einsum", *given)))


ger = outer

__all__ = [
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "dot",
    "einsum",
    "ger",
    "inner",
    "kron",
    "matmul",
    "mm",
    "mv",
    "outer",
    "tensordot",
]
