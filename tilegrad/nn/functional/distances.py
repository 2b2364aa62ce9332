"""Define linear and bilinear maps, and distances of vectors."""

from __future__ import annotations

from ...errors import DTypeError, ShapeError
from ...functions.autocasting import low
from ...functions.creation import triu_indices
from ...functions.promotion import together, value_of
from ...ir.size import Shape
from ...lazy.handle import wrap
from ...ops.broadcasting import broadcast_shapes, normal_axis
from ...tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `input @ weight.T + bias` over the last axis; a weight of one axis makes one feature."""
    x = value_of(input, "linear")
    if weight.dim() not in (1, 2):
        raise ShapeError(
            f"linear: the weight needs the axes (out, in), or (in) alone, but its shape is {tuple(weight.shape)}"
        )
    if not x.shape or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: an input of the shape {tuple(input.shape)} does not end in the {weight.shape[-1]} features that "
            f"a weight of the shape {tuple(weight.shape)} takes"
        )
    product = input @ weight.t()
    if bias is None:
        return product
    shape = tuple(product.shape)
    if bias.dim() > len(shape) or any(n not in (1, m) for n, m in zip(bias.shape[::-1], shape[::-1], strict=False)):
        raise ShapeError(f"linear: a bias of the shape {tuple(bias.shape)} does not fit the result's, {shape}")
    return product + low(bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `input1 @ weight[n] @ input2` for each matrix of `weight` (out, in1, in2)."""
    shapes = tuple(input1.shape), tuple(input2.shape), tuple(weight.shape)
    fits = (
        len(shapes[2]) == 3 and shapes[0][:-1] == shapes[1][:-1] and (shapes[0][-1:] + shapes[1][-1:]) == shapes[2][1:]
    )
    if not fits:
        raise ShapeError(
            f"bilinear: inputs of the shapes {shapes[0]} and {shapes[1]} with a weight of the shape {shapes[2]}: "
            "(..., in1) and (..., in2) go with (out, in1, in2)"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(f"bilinear: a bias of the shape {tuple(bias.shape)} for {weight.shape[0]} outputs")
    if len({x.dtype for x in (input1, input2, weight, bias) if x is not None}) > 1:
        raise DTypeError("bilinear: inputs, weight and bias have different dtypes; convert them")
    out, first, second = weight.shape
    half = input1 @ weight.permute(1, 0, 2).reshape(first, out * second)
    product = (half.reshape(*input1.shape[:-1], out, second) * input2.unsqueeze(-2)).sum(-1, dtype=half.dtype)
    return product if bias is None else product + bias


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute the cosine of the angle between vectors along `dim`."""
    x1, x2 = map(wrap, together([x1, x2], "cosine_similarity"))
    met = broadcast_shapes(tuple(x1.shape), tuple(x2.shape), op="cosine_similarity")
    behind = normal_axis(dim, len(met), "cosine_similarity") - len(met)
    x1, x2 = _repeated(x1, behind, met), _repeated(x2, behind, met)
    lengths = [x.norm(2, behind, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    return ((x1 / lengths[0]) * (x2 / lengths[1])).sum(behind)


def _repeated(x: Tensor, axis: int, met: Shape) -> Tensor:
    """Expand vectors to their common length."""
    if x.dim() < -axis:
        x = x.reshape(*[1] * (-axis - x.dim()), *x.shape)
    return x.expand(*[met[axis] if n - x.dim() == axis else extent for n, extent in enumerate(x.shape)])


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Compute the p-norm of the difference along the last axis; `eps` keeps it differentiable at 0."""
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Compute the distances between all pairs of rows, each pair once."""
    if input.dim() != 2:
        raise ShapeError(f"pdist: needs a matrix, but the shape is {tuple(input.shape)}")
    first, second = triu_indices(input.shape[0], input.shape[0], 1).unbind(0)
    return (input[first] - input[second]).norm(p, 1)
