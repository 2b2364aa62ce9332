"""Describe what a kernel computes, where a library may compute the same.

    contraction ::= Contraction(axes, x, y, out, digits, bias, bias_axis, relu, precision)
    axis        ::= ContractionAxis(extent, x, y, summed)                 strides of the operands, in elements
    digit       ::= IndexDigit(axis, divisor, modulus, stride, limit)
    operand     ::= ContractionOperand(parameter, dtype, first)           its parameter's number, its first element

`out[sum of digits] = epilogue(sum over summed axes of x[...] * y[...])`: the offset of an operand is `first` plus the
sum of `index * stride` over the axes, that of the result the sum of `index // divisor % modulus * stride` over the
digits, without the remainder if the modulus is 0. Nothing is stored where a digit is not below its limit (0: none). The
epilogue adds a bias that runs along one axis, and applies ReLU. `SumOfParts` adds up the parts of a split-K
contraction.
"""

from __future__ import annotations

from .dtype import DType
from .node import Structure
from .precision import Precision


class ContractionAxis(Structure):
    extent: int
    x: int
    y: int
    summed: bool


class IndexDigit(Structure):
    axis: int
    divisor: int
    modulus: int
    stride: int
    limit: int = 0


class ContractionOperand(Structure):
    parameter: int
    dtype: DType
    first: int


class Contraction(Structure):
    axes: tuple[ContractionAxis, ...]
    x: ContractionOperand
    y: ContractionOperand
    out: ContractionOperand
    digits: tuple[IndexDigit, ...]
    bias: int = -1
    """Number of the parameter with the bias; -1 without one."""
    bias_axis: int = -1
    relu: bool = False
    precision: Precision = "highest"


class SumOfParts(Structure):
    """Each element is the sum of one element of each part, rounded to a dtype; the parts are contiguous."""

    parts: int
    elements: int
    dtype: DType
