"""Every group has a road, those with kernels and operators of users too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.custom import operators
from tilegrad import config
from tilegrad.first_tier.step_plan import _plans


def steps_of(x: tg.Tensor) -> str:
    """The steps of the plan that computes a tensor."""
    _plans.clear()
    with config.changed(tier="interpreted"):
        x.numpy()
    (plan,) = _plans.values()
    return str(plan)


def tensor(*shape: int) -> tg.Tensor:
    return tg.tensor(np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape) / 7)


def test_a_reduction_reads_a_parameter() -> None:
    """A leaf is a view by its class, but has no input."""
    x = tensor(5, 7).exp().detach().requires_grad_().realize()
    with config.changed(tier="interpreted"):
        np.testing.assert_allclose(x.sum(0).detach().numpy(), x.detach().numpy().sum(0), rtol=1e-6)


def test_a_transposed_matrix_is_flattened_by_a_copy() -> None:
    x = tensor(5, 7)
    assert "(copied)" in steps_of(x.T.reshape(-1))
    np.testing.assert_array_equal(x.T.reshape(-1).numpy(), x.numpy().T.reshape(-1))


def test_outputs_of_one_call_are_one_step() -> None:
    mean, spread = operators.moments(tensor(3, 4))
    steps = steps_of(mean + spread.exp())
    assert steps.count("moments") == 1


@pytest.mark.parametrize("make", [lambda x: x.sort().values, lambda x: x.cumsum(0), lambda x: x[tg.tensor([2, 0])]])
def test_ops_without_a_template_compute_what_the_compiled_tier_does(make: Any) -> None:
    x = tensor(3, 4)
    with config.changed(tier="interpreted"):
        got = make(x.exp()).numpy()
    with config.changed(tier="compiled"):
        np.testing.assert_array_equal(got, make(x.exp()).numpy())
