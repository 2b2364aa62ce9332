"""Define matrix products and other contractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import bool_, int32, int64, uint8
from ..ir.graph import Value
from ..lazy.handle import Handle, wrap
from ..ops import contraction as ops
from ..ops.broadcasting import shown
from ..ops.cast import cast
from .autocasting import lowered, product_precision
from .declared import publish
from .promotion import Number, Tensors, kind_of, operands, result_type

if TYPE_CHECKING:
    from ..tensor import Tensor


def _same(op: str, *tensors: Any) -> list[Value]:
    """Convert operands to one dtype, or to that of autocast. PyTorch refuses mixed dtypes; here they are promoted."""
    values = lowered(operands(tensors, op))
    if any(v.type.dtype is not values[0].type.dtype for v in values):
        dtype = result_type(*[v.type.dtype for v in values])
        values = [cast(v, dtype) for v in values]
    return values


def _product(op: str, function: Callable[..., Value], *tensors: Any, precision: str | None = None) -> Tensor:
    """Apply a product in one dtype, at the precision that is given or set; sums of bools are disjunctions, unless the
    function counts them in int64.
    """
    values = _same(op, *tensors)
    if values[0].type.dtype is bool_ and len(values) > 1:
        found = function(*[cast(v, int32) for v in values], precision=None)
        return wrap(found if found.dtype is int64 else cast(found, bool_))
    return wrap(function(*values, precision=product_precision(values[0].type.dtype, precision)))


def matmul(input: Tensor, other: Tensor, *, precision: str | None = None) -> Tensor:
    """Multiply matrices. Vectors are rows on the left and columns on the right; leading dimensions broadcast.

    `precision`, of float32 ("highest", "high" or "medium"), goes before `set_float32_matmul_precision`.

    >>> import tilegrad as tg
    >>> tg.matmul(tg.ones(2, 3), tg.ones(3), precision="high")
    tensor([3., 3.])
    """
    return _product("matmul", ops.matmul, input, other, precision=precision)


def matmul_reversed(input: Tensor, other: Any) -> Tensor:
    """Compute other @ input, for a numpy array on the left."""
    return _product("matmul", ops.matmul, other, input)


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply two matrices."""
    return _product("mm", ops.mm, input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Multiply a matrix by a vector."""
    return _product("mv", ops.mv, input, vec)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Compute the dot product of two vectors."""
    return _product("dot", ops.dot, input, tensor)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Contract the last dimensions of two tensors."""
    return _product("inner", ops.inner, input, other)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Compute the outer product of two vectors."""
    x, y = _same("outer", input, vec2)
    if x.dtype is bool_:
        return wrap(cast(ops.outer(cast(x, uint8), cast(y, uint8)), bool_))
    return wrap(ops.outer(x, y))


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply batches of matrices (b, n, m) and (b, m, p)."""
    return _product("bmm", ops.bmm, input, mat2)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Compute beta * input + alpha * (mat1 @ mat2)."""
    if mat1.dim() != 2 or mat2.dim() != 2:
        raise ShapeError(
            f"addmm: takes two matrices, not shapes {shown(mat1.shape)} and {shown(mat2.shape)}; use x + a @ b"
        )
    return _product("addmm", partial(ops.baddbmm, beta=beta, alpha=alpha), input, mat1, mat2)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Compute beta * input + alpha * (mat @ vec)."""
    return _product("addmv", partial(ops.baddbmm, beta=beta, alpha=alpha), input, mat, vec)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Compute beta * input + alpha * (batch1 @ batch2) for batches of matrices."""
    return _product("baddbmm", partial(ops.baddbmm, beta=beta, alpha=alpha), input, batch1, batch2)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Compute beta * input + alpha * outer(vec1, vec2)."""
    product = outer(vec1, vec2)
    dtypes = {input.dtype, product.dtype}
    for name, given in (("beta", beta), ("alpha", alpha)):
        whole = isinstance(given, float) and not any(dtype.is_float for dtype in dtypes)
        if whole or (isinstance(given, bool) and dtypes != {bool_}):
            raise DTypeError(
                f"addr: {name}={given!r} beside {input.dtype.name} and {product.dtype.name} elements: floats go with "
                "floats, bools with bools"
            )
    if dtypes == {bool_}:
        return (product & bool(alpha)) | (input & bool(beta))
    return input * beta + product * alpha


def kron(input: Tensor, other: Tensor) -> Tensor:
    """Compute the Kronecker product."""
    x, y = _same("kron", input, other)
    if x.dtype is bool_:
        return wrap(cast(ops.kron(cast(x, uint8), cast(y, uint8)), bool_))
    return wrap(ops.kron(x, y))


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Contract pairs of dimensions; an integer counts the last of `a` and the first of `b`."""
    if isinstance(dims, int) and not 0 <= dims <= min(a.dim(), b.dim()):
        raise ArgumentError(f"tensordot: over {dims} dimensions of {a.dim()} and {b.dim()}")
    axes = dims if isinstance(dims, int) else (tuple(dims[0]), tuple(dims[1]))
    return _product("tensordot", partial(ops.tensordot, axes=axes), a, b)


def einsum(equation: str, *operands: Tensors, precision: str | None = None) -> Tensor:
    """Contract by an equation in Einstein's notation; `precision` as in `matmul`.

    >>> import tilegrad as tg
    >>> tg.einsum("ij,jk->ik", tg.ones(2, 3), tg.ones(3, 4)).shape
    (2, 4)
    """
    if not isinstance(equation, str):
        raise ArgumentError(
            f"einsum: the equation comes first, as in einsum('ij,jk->ik', x, y), not {kind_of(equation)}"
        )
    from ..ops.einsum import einsum as summed

    given = operands[0] if len(operands) == 1 and not isinstance(operands[0], Handle) else operands
    if not len(given):
        raise ArgumentError("einsum: no tensors were given")
    return _product("einsum", partial(summed, equation), *given, precision=precision)


ger = outer

publish(globals(), internal=("matmul_reversed",))
