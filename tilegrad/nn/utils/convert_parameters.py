"""Flatten parameters to one vector, and copy them back."""

from __future__ import annotations

from collections.abc import Iterable

from ...autograd.modes import no_grad
from ...errors import ShapeError
from ...functions.declared import publish
from ...functions.joining import cat
from ...tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all elements to one vector; gradients flow back through it."""
    return cat([x.reshape(-1) for x in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy a vector into parameters, one after the other."""
    given = list(parameters)
    total = sum(x.numel() for x in given)
    if tuple(vec.shape) != (total,):
        raise ShapeError(
            f"vector_to_parameters: a vector of the shape {tuple(vec.shape)} for parameters of {total} elements"
        )
    start = 0
    with no_grad():
        for x in given:
            x.copy_(vec.detach().narrow(0, start, x.numel()).reshape(x.shape))
            start += x.numel()


publish(globals())
