"""Contractions of two tensors, written as an einsum.

One class covers matmul, batched matmul, tensordot and einsum: a letter for each axis says which axes are paired, which
are summed, and the order of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..errors import ShapeError
from ..ir.dtype import bool_, float32
from ..ir.graph import Reader, TensorType, Value
from ..ir.precision import PRODUCTS, Precision
from ..ir.scalar import Expr, Position, apply, cast, fresh_index, reduce
from ..ir.size import Dim
from .arithmetic import add, mul
from .base import require_alike
from .bits import bitwise_and
from .broadcasting import ZERO, accumulator, reduce_sum, require, reshape, shown
from .movement import squeeze, unsqueeze


@final
class Contract(Value):
    """Products of elements of x and y, summed over the letters that the result lacks.

    Each letter occurs once in an operand; a summed one occurs in both. An extent of 1 broadcasts unless it is summed.
    Half precision is multiplied and accumulated in float32; float32 products have a precision.

    >>> from ..ir.dtype import bool_, float32
    >>> from ..ir.graph import Input
    >>> x, y = (Input(TensorType(float32, shape)) for shape in ((7, 2, 3), (3, 5)))
    >>> Contract(x, y, "bik,kj->bij")
    <contract[bik,kj->bij]: f32[7,2,5]>
    """

    contracts = True
    cost = "expensive"
    x: Value
    y: Value
    equation: str
    precision: Precision = "highest"

    def infer(self) -> TensorType:
        require_alike("contraction", (self.x, self.y))
        require("if", self.x.dtype, "contraction")
        of_x, of_y, out = letters(self.equation)
        extents: dict[str, Dim] = {}
        for letter, extent in [*zip(of_x, self.x.shape, strict=True), *zip(of_y, self.y.shape, strict=True)]:
            known = extents.setdefault(letter, extent)
            if known == 1 and letter in out:
                extents[letter] = extent
            elif known != extent and (extent != 1 or letter not in out):
                raise ShapeError(
                    f"{self.equation}: {shown(self.x.shape)} and {shown(self.y.shape)} do not fit: "
                    f"axis {letter} has {known} elements in one and {extent} in the other"
                )
        return self.x.type.with_shape(tuple([extents[letter] for letter in out]))

    def element(self, position: Position, read: Reader) -> Expr:
        of_x, of_y, out = letters(self.equation)
        at: dict[str, Expr] = dict(zip(out, position, strict=True))
        over = [(n, letter) for n, letter in enumerate(of_x) if letter not in at]
        indices = {letter: fresh_index(self.x.shape[n]) for n, letter in over}
        at.update(indices)
        factors = []
        for value, axes in ((self.x, of_x), (self.y, of_y)):
            places = [ZERO if n == 1 and a in out else at[a] for a, n in zip(axes, value.shape, strict=True)]
            factors.append(cast(read(value, tuple(places)), accumulator(value.dtype)))
        result = multiply(factors[0], factors[1], self.precision)
        for _, letter in reversed(over):
            result = reduce("add", indices[letter], result)
        return cast(result, self.x.dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        of_x, of_y, out = letters(self.equation)
        to_x = self._share(upstream, out, self.y, of_y, self.x, of_x) if self.x.tracked else None
        to_y = self._share(upstream, out, self.x, of_x, self.y, of_y) if self.y.tracked else None
        return to_x, to_y

    def _share(self, upstream: Value, out: str, other: Value, of_other: str, x: Value, of_x: str) -> Value:
        """Return the gradient of x: the upstream gradient contracted with the other operand."""
        wide = "".join(a for a, n in zip(of_x, x.shape, strict=True) if n != 1 or a not in out)
        return reshape(contract(upstream, other, f"{out},{of_other}->{wide}", self.precision), x.shape)

    def __str__(self) -> str:
        return f"contract[{self.equation}{precision_note(self.precision)}]"


def multiply(x: Expr, y: Expr, precision: Precision) -> Expr:
    """Multiply two elements of a sum; float32 at a precision."""
    return apply(PRODUCTS[precision] if x.dtype is float32 else "mul", x, y)


def precision_note(precision: Precision) -> str:
    """Format a precision for printing behind the equation."""
    return "" if precision == "highest" else f", {precision}"


def letters(equation: str) -> tuple[str, str, str]:
    """Return the letters of x, of y and of the result.

    >>> letters("ij,jk->ik")
    ('ij', 'jk', 'ik')
    """
    operands, out = equation.split("->")
    of_x, of_y = operands.split(",")
    return of_x, of_y, out


def contract(x: Value, y: Value, equation: str, precision: Precision = "highest") -> Value:
    """Contract with letters that may be summed in one operand alone, and with broadcast extents of 1."""
    of_x, of_y, out = letters(equation)
    x, of_x = _without_unit_axes(x, of_x, y, of_y, out)
    y, of_y = _without_unit_axes(y, of_y, x, of_x, out)
    x, of_x = _sum_unshared(x, of_x, of_y + out)
    y, of_y = _sum_unshared(y, of_y, of_x + out)
    return Contract(x, y, f"{of_x},{of_y}->{out}", precision)


def _without_unit_axes(x: Value, of_x: str, y: Value, of_y: str, out: str) -> tuple[Value, str]:
    """Drop summed axes that have extent 1 in one operand and not in the other."""
    there = dict(zip(of_y, y.shape, strict=True))
    dropped = [n for n, a in enumerate(of_x) if a not in out and x.shape[n] == 1 and there.get(a, 1) != 1]
    return (squeeze(x, dropped), "".join(a for n, a in enumerate(of_x) if n not in dropped)) if dropped else (x, of_x)


def _sum_unshared(x: Value, of_x: str, needed: str) -> tuple[Value, str]:
    """Sum over the axes that neither the other operand nor the result has."""
    dropped = [n for n, a in enumerate(of_x) if a not in needed]
    return (reduce_sum(x, dropped), "".join(a for a in of_x if a in needed)) if dropped else (x, of_x)


# --- products of matrices ------------------------------------------------------------------------

BATCH = "abcdefghlopqrstuvwxyz"


def matmul(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Multiply vectors, matrices or broadcast batches of matrices, as `torch.matmul` does."""
    if not x.shape or not y.shape:
        raise ShapeError(f"matmul: {shown(x.shape)} and {shown(y.shape)}: both need at least one axis; use mul")
    if x.shape[-1] != y.shape[-2 if y.type.rank > 1 else 0]:
        raise ShapeError(
            f"matmul: {shown(x.shape)} and {shown(y.shape)} do not fit: rows of x have {x.shape[-1]} elements, "
            f"columns of y {y.shape[-2 if y.type.rank > 1 else 0]}; the two must be equal (transpose one?)"
        )
    in_x, in_y = max(x.type.rank - 2, 0), max(y.type.rank - 2, 0)
    batch = BATCH[: max(in_x, in_y)]
    of_x = batch[len(batch) - in_x :] + "ik"[-min(x.type.rank, 2) :]
    of_y = batch[len(batch) - in_y :] + "kj"[: min(y.type.rank, 2)]
    out = batch + ("i" if "i" in of_x else "") + ("j" if "j" in of_y else "")
    return Contract(x, y, f"{of_x},{of_y}->{out}", precision)


def _ranks(op: str, **expected: tuple[Value, int]) -> None:
    for name, (x, rank) in expected.items():
        if x.type.rank != rank:
            raise ShapeError(f"{op}: {name} has shape {shown(x.shape)}; it needs {rank} axes, not {x.type.rank}")


def mm(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Multiply two matrices."""
    _ranks("mm", x=(x, 2), y=(y, 2))
    return matmul(x, y, precision)


def mv(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Multiply a matrix and a vector."""
    _ranks("mv", x=(x, 2), y=(y, 1))
    return matmul(x, y, precision)


def dot(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Return the dot product of two vectors."""
    _ranks("dot", x=(x, 1), y=(y, 1))
    return matmul(x, y, precision)


def bmm(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Multiply batches of matrices."""
    _ranks("bmm", x=(x, 3), y=(y, 3))
    if x.shape[0] != y.shape[0]:
        raise ShapeError(f"bmm: {shown(x.shape)} and {shown(y.shape)}: the first axes must be equal")
    return matmul(x, y, precision)


def outer(x: Value, y: Value) -> Value:
    """Return the outer product of two vectors."""
    _ranks("outer", x=(x, 1), y=(y, 1))
    return _multiply(unsqueeze(x, 1), y)


def _multiply(x: Value, y: Value) -> Value:
    """Multiply elements; for bools the conjunction."""
    return bitwise_and(x, y) if x.dtype is bool_ else mul(x, y)


def kron(x: Value, y: Value) -> Value:
    """Return the Kronecker product."""
    rank = max(x.type.rank, y.type.rank)
    a, b = (reshape(v, (1,) * (rank - v.type.rank) + v.shape) for v in (x, y))
    products = _multiply(
        reshape(a, [n for extent in a.shape for n in (extent, 1)]),
        reshape(b, [n for extent in b.shape for n in (1, extent)]),
    )
    return reshape(products, [m * n for m, n in zip(a.shape, b.shape, strict=True)])


def inner(x: Value, y: Value, precision: Precision = "highest") -> Value:
    """Contract the last axes."""
    if not x.shape or not y.shape:
        return mul(x, y)
    return tensordot(x, y, ((x.type.rank - 1,), (y.type.rank - 1,)), precision)


def baddbmm(
    base: Value, x: Value, y: Value, beta: float = 1, alpha: float = 1, precision: Precision = "highest"
) -> Value:
    """Compute beta * base + alpha * (x @ y), also for `addmm` and `addmv`."""
    if base.dtype.is_integer:
        beta, alpha = int(beta), int(alpha)
    product = matmul(x, y, precision)
    if alpha != 1:
        product = mul(product, alpha)
    if beta == 0:
        return product
    return add(base if beta == 1 else mul(base, beta), product)


def tensordot(
    x: Value,
    y: Value,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: Precision = "highest",
) -> Value:
    """Contract pairs of axes; a number n means the last n axes of x and the first n of y. Extents of 1 broadcast."""
    if isinstance(axes, int):
        axes = (range(x.type.rank - axes, x.type.rank), range(axes))
    in_x, in_y = ([axis % max(v.type.rank, 1) for axis in a] for v, a in zip((x, y), axes, strict=True))
    if len(in_x) == len(in_y):
        short = [(i, j) for i, j in zip(in_x, in_y, strict=True) if x.type.rank and y.type.rank]
        x_summed = [i for i, j in short if y.shape[j] == 1 != x.shape[i]]
        y_summed = [j for i, j in short if x.shape[i] == 1 != y.shape[j]]
        x = reduce_sum(x, x_summed, keepdim=True) if x_summed else x
        y = reduce_sum(y, y_summed, keepdim=True) if y_summed else y
    if len(in_x) != len(in_y) or any(x.shape[i] != y.shape[j] for i, j in zip(in_x, in_y, strict=True)):
        raise ShapeError(
            f"tensordot: axes {shown(tuple(in_x))} of {shown(x.shape)} and {shown(tuple(in_y))} of {shown(y.shape)} "
            "do not fit: there must be as many, with equal extents"
        )
    names = iter("abcdefghijklmnopqrstuvwxyz")
    of_x = [next(names) for _ in x.shape]
    of_y = [of_x[in_x[in_y.index(n)]] if n in in_y else next(names) for n in range(y.type.rank)]
    out = [a for n, a in enumerate(of_x) if n not in in_x] + [a for n, a in enumerate(of_y) if n not in in_y]
    return Contract(x, y, f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}", precision)
