"""Compute derivatives by finite differences: the simple, slow and inexact reference for all other methods.

A forward difference needs two values of the function and has an error proportional to the step h; that of a central
difference is proportional to h squared. Below some step rounding dominates: the error grows as 1/h. `error_study` shows
the minimum between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..functions.creation import from_array
from ..ir.dtype import float64
from ..lazy.evaluation import array_of, compute
from ..lazy.handle import Handle

if TYPE_CHECKING:
    from ..tensor import Tensor

Scheme = Literal["forward", "central"]


def derivative(fn: Callable[[float], float], x: float, h: float = 1e-6, scheme: Scheme = "central") -> float:
    """Differentiate a function of one number.

    >>> round(derivative(lambda x: x**3, 2.0), 6)
    12.0
    """
    match scheme:
        case "forward":
            return (fn(x + h) - fn(x)) / h
        case "central":
            return (fn(x + h) - fn(x - h)) / (2 * h)
    raise ArgumentError(f"derivative: scheme is 'forward' or 'central', not {scheme!r}")


def jacobian(fn: Callable[..., Any], inputs: Sequence[Any], n: int, eps: float = 1e-6) -> list[np.ndarray[Any, Any]]:
    """Compute the Jacobian of each output of a function of tensors by input n.

    Central differences: two evaluations for each element of the input. One row per element of the input.
    """
    x = inputs[n]
    center = array_of(x.detach()).astype(np.float64)
    rows: list[list[np.ndarray[Any, Any]]] = []
    for place in np.ndindex(center.shape):
        sides = []
        for step in (eps, -eps):
            moved = center.copy()
            moved[place] += step
            given = from_array(moved.astype(x.value.dtype.numpy), x.value.device)
            sides.append(_outputs(fn(*inputs[:n], given.requires_grad_(), *inputs[n + 1 :])))
        rows.append([(up - down).ravel() / (2 * eps) for up, down in zip(*sides, strict=True)])
    count = len(rows[0]) if rows else 0
    return [np.stack([row[k] for row in rows]) for k in range(count)]


def _outputs(made: Any) -> list[np.ndarray[Any, Any]]:
    tensors = [made] if isinstance(made, Handle) else list(made)
    compute(*tensors)
    return [array_of(y).astype(np.float64) for y in tensors if y.value.dtype.is_float]


class ErrorStudy(NamedTuple):
    """The relative errors of two schemes over a range of steps."""

    steps: tuple[float, ...]
    forward: tuple[float, ...]
    central: tuple[float, ...]

    def __str__(self) -> str:
        lines = ["      h    forward    central"]
        lines += [
            f"{h:7.0e} {f:10.2e} {c:10.2e}" for h, f, c in zip(self.steps, self.forward, self.central, strict=True)
        ]
        return "\n".join(lines)

    @property
    def best(self) -> tuple[float, float]:
        """The step with the smallest error, for each scheme."""
        least = [min(zip(errors, self.steps, strict=True))[1] for errors in (self.forward, self.central)]
        return least[0], least[1]


def error_study(
    fn: Callable[[float], float], exact: float, x: float, steps: Sequence[float] | None = None
) -> ErrorStudy:
    """Measure the error of finite differences against the step: truncation at large steps, rounding at small ones.

    >>> import math
    >>> study = error_study(math.exp, math.exp(1.0), 1.0)
    >>> 1e-9 < study.best[0] < 1e-7 < study.best[1] < 1e-4
    True
    """
    tried = tuple(steps) if steps is not None else tuple(10.0**-n for n in range(1, 15))
    scale = abs(exact) or 1.0
    errors = [[abs(derivative(fn, x, h, s) - exact) / scale for h in tried] for s in ("forward", "central")]
    return ErrorStudy(tried, tuple(errors[0]), tuple(errors[1]))


def numerical_gradient(fn: Callable[[Tensor], Tensor], x: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute the gradient of a scalar-valued function of one tensor; x should be float64."""
    (rows,) = jacobian(fn, [x.to(dtype=float64)], 0, eps)
    return from_array(rows.reshape(tuple(x.shape)), x.value.device)
