"""Initial values have the distributions that PyTorch's have."""

import math

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.recorded import pytorch
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError


@pytest.mark.defect(8)
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


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (4, 2, 3), (64, 64)], ids=str)
def test_orthogonal(shape: tuple[int, ...]) -> None:
    tg.manual_seed(1)
    matrix = nn.init.orthogonal_(tg.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(4, 2, 3), (6, 3, 3, 4), (2, 4, 1, 3, 3)], ids=str)
def test_dirac(shape: tuple[int, ...], groups: int) -> None:
    torch = pytorch()
    ours = nn.init.dirac_(tg.ones(*shape), groups).numpy()
    np.testing.assert_array_equal(ours, torch.nn.init.dirac_(torch.ones(*shape), groups).numpy())


def test_sparse() -> None:
    values = nn.init.sparse_(tg.empty(40, 30), 0.31, std=2.0).numpy()
    np.testing.assert_array_equal((values == 0).sum(0), np.full(30, 13))
    assert values[values != 0].std() == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("name", nn.init.__all__[1:])  # type: ignore[attr-defined]
def test_what_pytorch_takes_is_taken(name: str) -> None:
    import inspect

    torch = pytest.importorskip("torch")
    ours, theirs = (inspect.signature(getattr(x.init, name)) for x in (nn, torch.nn))
    assert list(ours.parameters) == list(theirs.parameters)


def test_generators_are_used() -> None:
    first, second = (tg.Generator().manual_seed(5) for _ in range(2))
    x = nn.init.kaiming_normal_(tg.empty(3, 3), generator=first)
    np.testing.assert_array_equal(x.numpy(), nn.init.kaiming_normal_(tg.empty(3, 3), generator=second).numpy())
