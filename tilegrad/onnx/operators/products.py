"""Operators that are products of matrices."""

from __future__ import annotations

from ... import functional as tg
from ...ir.dtype import int32
from ...tensor import Tensor
from ..rules import Function


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Multiply, and add what is scaled."""
    y = tg.matmul(a.t() if transA else a, b.t() if transB else b)
    y = y if alpha == 1 else (y * alpha).to(a.dtype)
    if c is None or beta == 0:
        return y
    return y + (c if beta == 1 else (c * beta).to(a.dtype))


def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return tg.einsum(equation, *inputs)


def det(x: Tensor) -> Tensor:
    """Compute determinants by elimination with pivots."""
    size = int(x.shape[-1])
    rows = x.reshape(-1, size, size)
    found = tg.ones(rows.shape[0], dtype=x.dtype, device=x.device)
    for n in range(size):
        pivot = tg.argmax(tg.abs(rows[:, :, 0]), 1)
        marks = tg.arange(size - n, device=x.device).reshape(1, -1) == pivot.reshape(-1, 1)
        top = tg.where(marks.unsqueeze(2), rows, tg.zeros_like(rows)).sum(1)
        first = rows[:, 0]
        rows = tg.where(marks.unsqueeze(2), first.unsqueeze(1), rows)[:, 1:]
        found = found * top[:, 0] * tg.where(pivot == 0, tg.ones_like(found), -tg.ones_like(found))
        lead = tg.where(top[:, 0] == 0, tg.ones_like(found), top[:, 0])
        rows = (rows - rows[:, :, :1] * (top / lead.unsqueeze(1)).unsqueeze(1))[:, :, 1:]
    return found.reshape(x.shape[:-2])


def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """Multiply integers of eight bits, from which their zero points are subtracted, into int32."""
    left, right = a.to(int32), b.to(int32)
    if a_zero is not None:
        zero = a_zero.to(int32)
        left = left - (zero.unsqueeze(-1) if zero.dim() == 1 and a.dim() > 1 else zero)
    if b_zero is not None:
        right = right - b_zero.to(int32)
    return tg.matmul(left, right)


RULES: dict[str, Function] = {
    "Det": det,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": tg.matmul,
    "MatMulInteger": matmul_integer,
}
