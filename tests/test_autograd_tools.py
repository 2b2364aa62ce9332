"""The numerical and the symbolic differentiator, against automatic differentiation."""

import math

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.autograd import numerical, symbolic
from tilegrad.errors import ArgumentError


@checklist(152)
def test_symbolic_equals_automatic() -> None:
    x, y = symbolic.variables("x y")
    f = symbolic.exp(x * y) * symbolic.sin(x) / (1 + y**2) + symbolic.tanh(x - y) * symbolic.log(x) - 3 * x
    at = {"x": 1.3, "y": 0.7}
    a, b = (tg.tensor(v, dtype=tg.float64, requires_grad=True) for v in at.values())
    ((a * b).exp() * a.sin() / (1 + b**2) + (a - b).tanh() * a.log() - 3 * a).backward()
    for variable, gradient in ((x, a.grad), (y, b.grad)):
        assert symbolic.evaluate(symbolic.differentiate(f, variable), at) == pytest.approx(gradient.item(), rel=1e-12)


@checklist(152)
def test_derivatives_of_formulas_grow_faster() -> None:
    study = symbolic.growth(lambda f: f * (1 - f), range(1, 9))
    ratios = [d / f for f, d in zip(study.formulas, study.derivatives, strict=True)]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 5 * ratios[0]


@checklist(153)
def test_errors_of_differences_have_a_valley() -> None:
    study = numerical.error_study(math.sin, math.cos(1.0), 1.0)
    for errors in (study.forward, study.central):
        least = errors.index(min(errors))
        assert 0 < least < len(errors) - 1
        assert errors[0] > 100 * errors[least]
        assert errors[-1] > 100 * errors[least]
    assert min(study.central) < min(study.forward)
    print(study)


@checklist(153)
def test_two_evaluations_for_each_input() -> None:
    calls = []

    def fn(x: tg.Tensor) -> tg.Tensor:
        calls.append(1)
        return (x**2).sum()

    x = tg.tensor(np.arange(5.0))
    np.testing.assert_allclose(numerical.numerical_gradient(fn, x), 2 * np.arange(5.0), atol=1e-8)
    assert len(calls) == 2 * 5
    with pytest.raises(ArgumentError):
        numerical.derivative(math.sin, 1.0, scheme="backward")  # type: ignore[arg-type]
