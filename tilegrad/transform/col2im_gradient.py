"""Compute input gradients of convolutions with few channels as a matrix product and col2im, on targets that compute
operands while packing them.

As an implicit GEMM whose rows are the channels, each masked and shifted element of the other operand is used in only a
few products, so that packing it takes several times as long as the products. Instead, the weights of all taps and
channels are the rows of a product with the upstream gradient as stored, and col2im adds up the results of the taps.
"""

from __future__ import annotations

from math import prod

from ..ir.graph import Graph, Value
from ..ops.broadcasting import reshape
from ..ops.contraction import contract
from ..ops.convolution import ConvolveBack
from ..ops.pooling import Col2im
from .rewrite import rewrite

MIN_SAVINGS = 4
"""Lowest ratio of packed elements to col2im elements: the latter are stored and read again."""


def col2im_gradient(graph: Graph) -> Graph:
    """Rewrite input gradients of convolutions with few channels as a contraction followed by col2im.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.sliding import Sliding
    >>> y = Input(TensorType(float32, (2, 1, 64, 9)), "y")
    >>> weights = Input(TensorType(float32, (1, 3, 64, 4)), "weights")
    >>> print(col2im_gradient(Graph((y, weights), (ConvolveBack(y, weights, (Sliding(12, 9, 4),)),))))
    graph(y: f32[2,1,64,9], weights: f32[1,3,64,4])
      %0: f32[2,1,3,4,9] = contract[bcdk,abdj->abckj] weights y
      %1: f32[2,1,3,12] = col2im[axes=(4)] %0
      %2: f32[2,1,3,12,1] = reshape[sizes=(2, 1, 3, 12, 1)] %1
      return %2
    """
    return rewrite(graph, lambda value, _: _as_col2im(value), of=ConvolveBack)


def _as_col2im(back: Value) -> Value | None:
    assert isinstance(back, ConvolveBack)
    y, weights, axes = back.y, back.weights, back.axes
    extents, counts = [a.extent for a in axes], [a.count for a in axes]
    dims = [*y.shape, *weights.shape, *extents]
    if not all(type(d) is int for d in dims) or any(a.stride > 1 for a in axes):
        return None
    batch, groups, outputs = y.shape[:3]
    channels, taps = weights.shape[1], weights.shape[3:]
    if MIN_SAVINGS * channels * prod(counts) > outputs * prod(extents):  # type: ignore[operator]
        return None
    flat = reshape(weights, (groups, channels, outputs, prod(taps)))
    lines = reshape(y, (batch, groups, outputs, prod(counts)))
    parts = contract(flat, lines, "bcdk,abdj->abckj", back.precision)
    made = Col2im(reshape(parts, (batch, groups, channels, *taps, *counts)), axes)
    return reshape(made, back.shape)
