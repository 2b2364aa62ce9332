"""Read a matrix product with a simple epilogue from the description of a kernel, so that a library can compute it."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.contraction import Contraction, ContractionAxis
from ...ir.dtype import DType, bfloat16, float16, float32
from ...ir.node import Structure

MULTIPLIED = (bfloat16, float16, float32)
"""Types of operands that libraries are asked to multiply."""


class Matrix(NamedTuple):
    """The matrices of a batch: argument of the kernel, and strides per line, column and matrix, in elements."""

    argument: int
    dtype: DType
    line: int
    column: int
    batch_stride: int


class ProductProblem(NamedTuple):
    """out = x @ y for each matrix of a batch, with an optional bias per column and ReLU."""

    m: int
    n: int
    k: int
    batch: int
    x: Matrix
    y: Matrix
    out: Matrix
    bias: int = -1
    """Argument with the bias; -1 without one."""
    relu: bool = False
    precision: str = "highest"

    @property
    def operations(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def given(self) -> tuple[Matrix, Matrix]:
        return self.x, self.y

    @property
    def made(self) -> Matrix:
        return self.out

    @property
    def results(self) -> int:
        return self.elements()[self.out.argument]

    def elements(self) -> dict[int, int]:
        """Return the number of elements of each argument."""
        found: dict[int, int] = {}
        shapes = ((self.x, (self.m, self.k)), (self.y, (self.k, self.n)), (self.out, (self.m, self.n)))
        for matrix, (lines, columns) in shapes:
            last = (lines - 1) * matrix.line + (columns - 1) * matrix.column + (self.batch - 1) * matrix.batch_stride
            found[matrix.argument] = max(found.get(matrix.argument, 0), last + 1)
        return found if self.bias < 0 else {**found, self.bias: self.n}

    def __str__(self) -> str:
        more = (" + bias" if self.bias >= 0 else "") + (", relu" if self.relu else "")
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.k} @ {self.k} x {self.n} {self.x.dtype}{more}"


def product_of(computed: Structure | None) -> ProductProblem | None:
    """Return the product that a description stands for, or None.

    >>> from ...ir.contraction import IndexDigit, ContractionOperand
    >>> x, y, out = (ContractionOperand(n, bfloat16, 0) for n in range(3))
    >>> axes = ContractionAxis(96, 64, 0, False), ContractionAxis(128, 0, 1, False), ContractionAxis(64, 1, 128, True)
    >>> print(product_of(Contraction(axes, x, y, out, (IndexDigit(0, 1, 0, 128), IndexDigit(1, 1, 0, 1)))))
    96 x 64 @ 64 x 128 bf16
    """
    if not isinstance(computed, Contraction) or not is_multiplied(computed):
        return None
    c, strides = computed, result_strides(computed)
    if strides is None or c.x.first or c.y.first or c.out.first:
        return None
    rows, columns, summed, others = split_axes(c)
    if rows < 0 or columns < 0 or len(summed) != 1 or len(others) > 1:
        return None
    m, n, (k,) = c.axes[rows], c.axes[columns], summed
    if not (_are_matrices(m, n, k) and strides[columns] == 1 and strides[rows] >= n.extent):
        return None
    if c.bias >= 0 and c.bias_axis != columns:
        return None
    batch = [(c.axes[a].extent, c.axes[a].x, c.axes[a].y, strides[a]) for a in others]
    count, batch_stride_x, batch_stride_y, batch_stride = batch[0] if batch else (1, 0, 0, 0)
    left = Matrix(c.x.parameter, c.x.dtype, m.x, k.x, batch_stride_x)
    right = Matrix(c.y.parameter, c.y.dtype, k.y, n.y, batch_stride_y)
    made = Matrix(c.out.parameter, c.out.dtype, strides[rows], 1, batch_stride)
    return ProductProblem(m.extent, n.extent, k.extent, count, left, right, made, c.bias, c.relu, c.precision)


def is_multiplied(c: Contraction) -> bool:
    """Whether a library multiplies these types, into a result of their type or float32."""
    return c.x.dtype is c.y.dtype and c.x.dtype in MULTIPLIED and c.out.dtype in (c.x.dtype, float32)


def result_strides(c: Contraction) -> list[int] | None:
    """Return the stride of the result along each axis, or None if it is no sum of multiples of indices."""
    found = [0] * len(c.axes)
    for digit in c.digits:
        if digit.divisor != 1 or digit.modulus or digit.limit:
            return None
        found[digit.axis] = digit.stride
    return found


def split_axes(c: Contraction) -> tuple[int, int, list[ContractionAxis], list[int]]:
    """Return the last axis of x alone, the last one of y alone, the summed axes, and the numbers of the others."""
    free = [n for n, axis in enumerate(c.axes) if not axis.summed]
    rows = max((n for n in free if c.axes[n].x and not c.axes[n].y), default=-1)
    columns = max((n for n in free if c.axes[n].y and not c.axes[n].x), default=-1)
    return rows, columns, [a for a in c.axes if a.summed], [n for n in free if n not in (rows, columns)]


def _are_matrices(m: ContractionAxis, n: ContractionAxis, k: ContractionAxis) -> bool:
    """Whether both operands are matrices that libraries read in place."""
    return _is_matrix(m.x, k.x, k.extent, m.extent) and _is_matrix(k.y, n.y, n.extent, k.extent)


def _is_matrix(line: int, column: int, columns: int, lines: int) -> bool:
    """Whether the elements of a matrix are contiguous along one axis and do not overlap."""
    return (column == 1 and line >= columns) or (line == 1 and column >= lines)
