"""Initial values have the distributions that PyTorch's have."""

import math

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError


@checklist(41)
def test_linear_starts_as_in_pytorch() -> None:
    tg.manual_seed(3)
    layer = nn.Linear(400, 300)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    bound = 1 / math.sqrt(400)
    for values in (weight, bias):
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.9 * bound
    deviation = bound / math.sqrt(3)
    assert abs(weight.mean()) < 3 * deviation / math.sqrt(weight.size)
    assert weight.std() == pytest.approx(deviation, rel=0.01)
    tg.manual_seed(3)
    np.testing.assert_array_equal(nn.Linear(400, 300).weight.detach().numpy(), weight)


@pytest.mark.parametrize(
    ("name", "settings", "deviation"),
    [
        ("xavier_uniform_", {}, math.sqrt(2 / 500)),
        ("xavier_normal_", {"gain": 2.0}, 2 * math.sqrt(2 / 500)),
        ("kaiming_uniform_", {"nonlinearity": "relu"}, math.sqrt(2 / 200)),
        ("kaiming_normal_", {"mode": "fan_out"}, math.sqrt(2 / 300)),
        ("normal_", {"mean": 1.0, "std": 0.5}, 0.5),
        ("uniform_", {"a": -1.0, "b": 2.0}, 3 / math.sqrt(12)),
    ],
)
def test_deviation(name: str, settings: dict[str, object], deviation: float) -> None:
    tensor = tg.empty(300, 200)
    assert getattr(nn.init, name)(tensor, **settings) is tensor
    assert tensor.numpy().std() == pytest.approx(deviation, rel=0.02)


def test_constants() -> None:
    np.testing.assert_array_equal(nn.init.ones_(tg.empty(2, 3)).numpy(), np.ones((2, 3)))
    np.testing.assert_array_equal(nn.init.zeros_(tg.empty(2)).numpy(), np.zeros(2))
    np.testing.assert_array_equal(nn.init.constant_(tg.empty(2), 3.5).numpy(), [3.5, 3.5])
    np.testing.assert_array_equal(nn.init.eye_(tg.empty(2, 3)).numpy(), np.eye(2, 3))


def test_truncated_normal_stays_inside() -> None:
    values = nn.init.trunc_normal_(tg.empty(100, 100), std=1.0, a=-1.0, b=1.5).numpy()
    assert values.min() >= -1
    assert values.max() <= 1.5
    assert values.mean() == pytest.approx(0.1538, abs=0.03)


def test_what_makes_no_sense() -> None:
    with pytest.raises(ShapeError, match="two axes or more"):
        nn.init.xavier_uniform_(tg.empty(3))
    with pytest.raises(ArgumentError, match="fan_in"):
        nn.init.kaiming_normal_(tg.empty(3, 3), mode="fan")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no gain is known"):
        nn.init.calculate_gain("rleu")
