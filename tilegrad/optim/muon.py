"""Define Muon: momentum with orthogonalised updates (Jordan et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from ..errors import ArgumentError
from ..functions.contractions import matmul
from ..tensor import Tensor
from .optimizer import DeclaredOptimizer, State
from .settings import Group, Settings

ADJUSTED = (None, "original", "match_rms_adamw")


class Muon(
    DeclaredOptimizer,
    settings="lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn",
    weight_decay=0.1,
    momentum=0.95,
    nesterov=True,
    ns_coefficients=(3.4445, -4.7750, 2.0315),
    eps=1e-7,
    ns_steps=5,
    adjust_lr_fn=None,
):
    """Step along momentum whose singular values are moved near 1, for matrices, as in PyTorch.

    Meant for the weights of hidden layers; give biases, embeddings and the last layer to AdamW.
    """

    state_names = ("momentum_buffer",)

    def check(self, group: Group) -> None:
        super().check(group)
        if group["adjust_lr_fn"] not in ADJUSTED:
            raise ArgumentError(f"Muon: adjust_lr_fn={group['adjust_lr_fn']!r}: it is one of {ADJUSTED}")
        if type(group["ns_steps"]) is not int or not 0 <= group["ns_steps"] < 100:
            raise ArgumentError(f"Muon: ns_steps={group['ns_steps']!r}: a whole number below 100")
        if len(group["ns_coefficients"]) != 3:
            raise ArgumentError(f"Muon: ns_coefficients={group['ns_coefficients']!r}: three numbers")
        for n, parameter in enumerate(group["params"]):
            if parameter.dim() != 2:
                raise ArgumentError(
                    f"Muon: parameter {n} has the shape {tuple(parameter.shape)}: it trains matrices; give the others "
                    "to AdamW"
                )

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        kept, momentum = state["momentum_buffer"], group["momentum"]
        kept.copy_(kept + (gradient - kept) * (1 - momentum))
        wanted = gradient + (kept - gradient) * momentum if group.uses("nesterov") else kept
        options = group.group
        direction = evened(wanted, options["ns_coefficients"], options["ns_steps"], options["eps"])
        rate = group["lr"] * _adjusted(options["adjust_lr_fn"], parameter.shape)
        decayed = parameter * (1 - group["lr"] * group["weight_decay"]) if group.uses("weight_decay") else parameter
        parameter.copy_(decayed - direction.to(parameter.dtype) * rate)


def evened(matrix: Tensor, coefficients: Sequence[float], steps: int, eps: float) -> Tensor:
    """Return a matrix with the same singular vectors and singular values near 1, in bfloat16, by Newton-Schulz
    iterations.

    Newton's and Schulz' iteration: `x <- a x + b (x x') x + c (x x')^2 x` draws each singular value to 1.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.mT if tall else matrix).bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = x @ x.mT
        update = _wide_sum(square, b, square, square, c)
        x = _wide_sum(x, a, update, x, 1.0)
    return x.mT if tall else x


def _wide_sum(x: Tensor, of_x: float, y: Tensor, z: Tensor, of_product: float) -> Tensor:
    """Compute `of_x * x + of_product * (y @ z)` with float32 sums, rounded to bfloat16 once at the end."""
    return (x.float() * of_x + matmul(y.float(), z.float(), precision="medium") * of_product).bfloat16()


def _adjusted(how: str | None, shape: Sequence[int]) -> float:
    """Return the factor of the learning rate for a matrix of this shape."""
    rows, columns = shape
    return 0.2 * sqrt(max(rows, columns)) if how == "match_rms_adamw" else sqrt(max(1.0, rows / columns))
