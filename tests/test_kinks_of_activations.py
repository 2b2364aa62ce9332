"""First and second derivatives of piecewise functions at and near their kinks are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

Function = Callable[[Any, Any], Any]
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "relu(x)": (0,),
    "relu6(x)": (0, 6),
    "elu(x)": (0,),
    "elu(x, 0.5)": (0,),
    "celu(x)": (0,),
    "celu(x, 2.0)": (0,),
    "selu(x)": (0,),
    "leaky_relu(x)": (0,),
    "leaky_relu(x, 0.25)": (0,),
    "leaky_relu(x, 0.0)": (0,),
    "prelu(x, T.full((1,), 0.25, dtype=x.dtype))": (0,),
    "rrelu(x, 0.25, 0.25, True)": (0,),
    "rrelu(x)": (0,),
    "hardtanh(x)": (-1, 1),
    "hardtanh(x, -0.5, 2.0)": (-0.5, 2),
    "hardswish(x)": (-3, 0, 3),
    "hardsigmoid(x)": (-3, 0, 3),
    "hardshrink(x)": (-0.5, 0, 0.5),
    "hardshrink(x, 0.0)": (0,),
    "softshrink(x)": (-0.5, 0, 0.5),
    "softshrink(x, 0.0)": (0,),
    "softplus(x)": (0, 20),
    "softplus(x, 2.0, 3.0)": (0, 1.3, 1.7),
    "threshold(x, 1.0, 5.0)": (1,),
    "softsign(x)": (0,),
    "tanhshrink(x)": (0,),
    "logsigmoid(x)": (0,),
    "silu(x)": (0,),
    "mish(x)": (0,),
    "gelu(x)": (0,),
    "smooth_l1_loss(x, x * 0)": (-1, 0, 1),
    "smooth_l1_loss(x, x * 0, beta=0.5)": (-0.5, 0, 0.5),
    "smooth_l1_loss(x, x * 0, beta=0.0)": (0,),
    "huber_loss(x, x * 0)": (-1, 0, 1),
    "huber_loss(x, x * 0, delta=0.5)": (-0.5, 0, 0.5),
    "l1_loss(x, x * 0)": (0,),
    "l1_loss(x, x.detach() + 0 * x)": (0,),
    "mse_loss(x, x * 0)": (0,),
    "hinge_embedding_loss(x, x.detach() * 0 - 1)": (-1, 0, 1),
    "hinge_embedding_loss(x, x.detach() * 0 + 1)": (0,),
    "margin_ranking_loss(x, x * 0, x.detach() * 0 + 1)": (0,),
    "soft_margin_loss(x, x.detach() * 0 + 1)": (0,),
    "normalize(x, dim=0)": (0,),
    "pairwise_distance(x, x * 0)": (0,),
    "cosine_similarity(x, x * 0 + 1, dim=0)": (0,),
}
TENSORS: dict[str, tuple[float, ...]] = {
    "x.abs()": (0,),
    "x.clamp(0, 1)": (0, 1),
    "x.clamp(min=0.5)": (0.5,),
    "x.clamp(max=0.5)": (0.5,),
    "x.clamp(x.detach() * 0, x.detach() * 0 + 1)": (0, 1),
    "T.maximum(x, x * 0)": (0,),
    "T.minimum(x, x * x)": (0, 1),
    "T.fmax(x, x * 0)": (0,),
    "T.fmin(x, x * x)": (0, 1),
    "x.max()": (0,),
    "x.min()": (0,),
    "x.amax()": (0,),
    "x.amin()": (0,),
    "x.max(0).values": (0,),
    "x.median()": (0,),
    "x.sort().values": (0,),
    "x.topk(2).values": (0,),
    "x.cummax(0).values": (0,),
    "x.norm()": (0,),
    "x.norm(1)": (0,),
    "x.norm(3)": (0,),
    "x.norm(1.5)": (0,),
    "x.norm(0)": (0,),
    "x.norm(float('inf'))": (0,),
    "(x * 0).norm()": (0,),
    "(x * 0).norm(1)": (0,),
    "(x * 0).norm(3)": (0,),
    "(x * 0).norm(float('inf'))": (0,),
    "T.linalg.vector_norm(x * 0)": (0,),
    "x.sqrt()": (0, 1),
    "x.rsqrt()": (1,),
    "x.abs().sqrt()": (0, 1),
    "x ** 2": (0,),
    "x ** 0": (0,),
    "x ** 3": (0,),
    "x ** 0.5": (0, 1),
    "x ** 1.5": (0, 1),
    "x ** -1": (0, 1),
    "T.where(x > 0, x, x * 2)": (0,),
    "T.where(x > 0, x.abs().sqrt(), x * 0)": (0,),
    "T.sign(x) * x": (0,),
    "T.hypot(x, x * 0)": (0,),
    "T.atan2(x, x * 0 + 1)": (0,),
    "x.frac()": (0, 1),
    "x.round() * x": (0, 0.5),
    "x.fmod(1)": (0, 1),
    "x.remainder(1)": (0, 1),
    "T.heaviside(x, x.detach() * 0 + 0.5) * x": (0,),
    "T.copysign(x, x)": (0,),
    "x.prod()": (0,),
    "x.cumprod(0)": (0,),
    "x.logsumexp(0)": (0,),
    "x.std()": (0,),
    "(x * 0).std()": (0,),
    "x.var()": (0,),
    "T.xlogy(x, x)": (1,),
    "T.logaddexp(x, x * 0)": (0,),
    "T.lerp(x, x * 0, x)": (0, 0.5),
    "T.nan_to_num(x)": (0,),
    "x.acos()": (-1, 1),
    "x.asin()": (-1, 1),
    "x.atanh()": (-1, 0, 1),
    "x.acosh()": (1,),
    "x.log()": (0, 1),
    "x.log1p()": (-1, 0),
    "T.cdist(x[:, None], x[:, None])": (0,),
    "T.pdist(x[:, None])": (0,),
    "T.dist(x, x * 0)": (0,),
    "T.dist(x, x)": (0,),
    "x.square().sqrt()": (0,),
}
FINITE = {"F.normalize(x, dim=0)", "F.cosine_similarity(x, x * 0 + 1, dim=0)", "x.norm()", "(x * 0).norm()"} | {
    "T.linalg.vector_norm(x * 0)",
    "T.dist(x, x * 0)",
    "T.dist(x, x)",
    "(x * 0).std()",
    "x.std()",
}
"""Second derivatives that are NaN in PyTorch where all elements of a norm are 0, and 0 here."""
FORMS = {f"F.{text}": points for text, points in ACTIVATIONS.items()} | TENSORS


def derivatives(T: Any, text: str, points: list[float]) -> list[Any]:
    """The gradient of the weighted results, and that of this gradient weighted, as far as there are some."""
    x = T.tensor(points, dtype=T.float64, requires_grad=True)
    y = eval(text, {"T": T, "F": T.nn.functional, "x": x})
    weights = T.arange(1, y.numel() + 1, dtype=T.float64).reshape(y.shape)
    again = T.tensor([1.0, 2.0, -1.0, 0.5, 3.0], dtype=T.float64)[: len(points)]
    zeros, found = T.zeros(len(points), dtype=T.float64), []
    try:
        (first,) = T.autograd.grad((y * weights).sum(), [x], create_graph=True)
        found.append((first.detach() + zeros).numpy())
        if first.requires_grad:
            (second,) = T.autograd.grad((first * again).sum(), [x], materialize_grads=True)
            found.append((second.detach() + zeros).numpy())
    except (RuntimeError, NotImplementedError):  # PyTorch has no second derivatives of some
        pass
    return found


@pytest.mark.parametrize("text", FORMS)
def test_derivatives(text: str) -> None:
    torch = pytorch()
    for kink in FORMS[text]:
        points = [kink - 0.25, kink - 1e-9, float(kink), kink + 1e-9, kink + 0.25]
        for given in (points, [float(kink)] * 3):
            wanted, found = derivatives(torch, text, given), derivatives(tg, text, given)
            assert len(found) >= len(wanted)
            for name, a, b in zip(("first", "second"), found, wanted, strict=False):
                if name == "second" and text in FINITE and np.isnan(b).all():
                    assert np.isfinite(a).all()
                    continue
                np.testing.assert_allclose(a, b, 1e-6, 1e-7, err_msg=f"{name} derivative of {text} at {given}")
