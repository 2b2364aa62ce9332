"""Examples of rounding, exponentials, trigonometry and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilegrad as tg
from tests.ops.registry import (
    SMALL,
    SPECIAL,
    elementwise,
    example,
    floats,
    functional,
)
from tilegrad.lazy.handle import wrap
from tilegrad.ops import activation, exponential, likelihood, rounding, trigonometric

WHOLE = np.arange(-9, 10)
POSITIVE = floats(2, 3, low=0.1, high=3.0)

# --- rounding, exponentials, trigonometry ------------------------------------------------------------

elementwise(rounding.Floor, rounding.floor, "floor", SMALL)
elementwise(rounding.Ceil, rounding.ceil, "ceil", SMALL)
elementwise(rounding.Round, rounding.round_digits, "round", SMALL)
elementwise(rounding.Trunc, rounding.trunc, "trunc", SMALL)
elementwise(None, rounding.frac, "frac", SMALL, special=False)
example(rounding.Round, lambda x: rounding.round_digits(x, 2), SMALL, torch=lambda t, x: t.round(x, decimals=2))
for op, name, low, high in (
    (exponential.Exp, "exp", -2, 2),
    (exponential.Exp2, "exp2", -2, 2),
    (exponential.Expm1, "expm1", -2, 2),
    (exponential.Log, "log", 0.2, 3),
    (exponential.Log2, "log2", 0.2, 3),
    (exponential.Log10, "log10", 0.2, 3),
    (exponential.Log1p, "log1p", -0.5, 3),
    (exponential.Sqrt, "sqrt", 0.2, 3),
    (exponential.Rsqrt, "rsqrt", 0.2, 3),
    (trigonometric.Sin, "sin", -2, 2),
    (trigonometric.Cos, "cos", -2, 2),
    (trigonometric.Tan, "tan", -1, 1),
    (trigonometric.Asin, "asin", -0.9, 0.9),
    (trigonometric.Acos, "acos", -0.9, 0.9),
    (trigonometric.Atan, "atan", -2, 2),
    (trigonometric.Sinh, "sinh", -2, 2),
    (trigonometric.Cosh, "cosh", -2, 2),
    (trigonometric.Tanh, "tanh", -2, 2),
    (trigonometric.Asinh, "asinh", -2, 2),
    (trigonometric.Acosh, "acosh", 1.2, 3),
    (trigonometric.Atanh, "atanh", -0.8, 0.8),
    (trigonometric.Erf, "erf", -2, 2),
    (trigonometric.Erfc, "erfc", -2, 2),
):
    module = exponential if hasattr(exponential, name) else trigonometric
    elementwise(op, getattr(module, name), name, floats(2, 3, low=low, high=high))
elementwise(trigonometric.Atan2, trigonometric.atan2, "atan2", SMALL, floats(4))
elementwise(None, trigonometric.sinc, "sinc", SMALL, special=False)
elementwise(None, trigonometric.deg2rad, "deg2rad", SMALL)
elementwise(None, trigonometric.rad2deg, "rad2deg", SMALL)
elementwise(exponential.Power, exponential.power, "pow", POSITIVE, floats(3))
example(exponential.Power, exponential.power, WHOLE.reshape(-1, 1), np.arange(5), torch="pow")
for n in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -0.5, -1.0, -2.0, 1.7):
    example(None, lambda x, n=n: exponential.power(x, n), POSITIVE, torch=lambda t, x, n=n: x**n, name=f"power {n}")
example(exponential.Power, lambda x: exponential.power(2.0, x), SMALL, torch=lambda t, x: 2.0**x)
example(
    exponential.Power,
    exponential.power,
    np.array([0.0, 0.0, 2.0]),
    np.array([2.0, 1.0, 0.0]),
    torch="pow",
    gradient="torch",
)
elementwise(None, exponential.logaddexp, "logaddexp", SMALL, floats(4))
elementwise(None, exponential.logaddexp2, "logaddexp2", SMALL, floats(4))
elementwise(None, exponential.xlogy, "xlogy", floats(2, 3), POSITIVE)
example(None, exponential.logit, floats(3, low=0.1, high=0.9), torch="logit")
example(None, lambda x: exponential.logit(x, 0.2), floats(3, low=0.1, high=0.9), torch=lambda t, x: t.logit(x, 0.2))

# --- activations -------------------------------------------------------------------------------------

elementwise(activation.Relu, activation.relu, "relu", SMALL)
example(activation.Relu, activation.relu, SPECIAL[:-1], torch="relu", gradient="torch")
elementwise(activation.Sigmoid, activation.sigmoid, "sigmoid", SMALL)
elementwise(activation.Gelu, activation.gelu, functional("gelu"), SMALL)
example(
    activation.GeluSlope,
    activation.GeluSlope,
    floats(3, 5, low=-4, high=4),
    torch=lambda t, x: t.special.ndtr(x) + x * (x * x / -2).exp() / (2 * t.pi) ** 0.5,
)
CORNERS = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, -100.0, 800.0, -800.0])


def layered(name: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
    """A function of `tilegrad.nn.functional` on values: most activations are written with the ops of tensors."""
    function = getattr(tg.nn.functional, name)
    return lambda *values: function(*map(wrap, values), *arguments, **named).value


ACTIVATIONS = """relu6 hardtanh hardsigmoid hardswish silu gelu leaky_relu elu celu selu softplus logsigmoid mish
    softsign tanhshrink hardshrink softshrink"""
for name in ACTIVATIONS.split():
    tolerance = 1e-8 if name == "softplus" else 1e-9
    spread = floats(3, 5, low=-4, high=4)
    example(None, layered(name), spread, torch=functional(name), name=name, tolerance=tolerance)
    example(None, layered(name), CORNERS, torch=functional(name), name=name, gradient="torch", tolerance=tolerance)
for name, arguments, named in (
    ("gelu", (), {"approximate": "tanh"}),
    ("softplus", (2.0, 1.5), {}),
    ("threshold", (0.1, 20.0), {}),
    ("glu", (2,), {}),
):
    example(
        None, layered(name, *arguments, **named), SMALL, torch=functional(name, *arguments, **named), name=f"{name} set"
    )
example(
    None,
    layered("prelu"),
    floats(3, 5),
    np.array([0.7]),
    torch=lambda t, x, w: t.nn.functional.prelu(x, w),
    name="prelu",
)
for axis in (0, -1):
    for name in ("softmax", "log_softmax", "softmin"):
        example(None, layered(name, axis), SMALL * 50, torch=functional(name, axis), name=name)
example(
    likelihood.BinaryCrossEntropy,
    likelihood.binary_cross_entropy,
    floats(3, 5, low=0.05, high=0.95),
    floats(3, 5, low=0.05, high=0.95, seed=1),
    torch=functional("binary_cross_entropy", reduction="none"),
)
