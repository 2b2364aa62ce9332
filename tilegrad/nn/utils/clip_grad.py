"""Clip gradients in place, by norm or by value."""

from __future__ import annotations

from collections.abc import Iterable

from ...autograd.modes import no_grad
from ...errors import ArgumentError
from ...functions.creation import zeros
from ...functions.declared import publish
from ...functions.joining import stack
from ...tensor import Tensor


def _parameters(given: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(given, Tensor):
        return [given]
    if not isinstance(given, Iterable):
        raise ArgumentError(
            f"gradients are those of tensors, as model.parameters() gives, not of a {type(given).__name__}"
        )
    return list(given)


def _gradients(given: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [x.grad for x in _parameters(given) if x.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of all elements of all tensors.

    >>> from tilegrad import tensor
    >>> get_total_norm([tensor([3.0]), tensor([[0.0, 4.0]])])
    tensor(5.)
    """
    with no_grad():
        norms = [x.norm(norm_type) for x in _parameters(tensors)]
        if not norms:
            return zeros(())
        total = stack(norms).norm(norm_type)
        if error_if_nonfinite and not total.isfinite().item():
            raise ArgumentError(
                f"the total norm of order {norm_type} is {total.item()}: a gradient has become infinite or no number, "
                "so that it cannot be clipped; give error_if_nonfinite=False to go on all the same"
            )
        return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by one factor, so that a known total norm becomes at most `max_norm`."""
    with no_grad():
        # always multiplied, by 1 if need be: to look at the norm first would wait for it
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for gradient in _gradients(parameters):
            gradient.mul_(factor.to(gradient.dtype))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by one factor, so that their total norm is at most `max_norm`; return the norm before."""
    given = _parameters(parameters)
    total = get_total_norm(_gradients(given), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp each element of the gradients to [-clip_value, clip_value]."""
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.clamp_(-clip_value, clip_value)


publish(globals())
