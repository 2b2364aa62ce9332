"""Parametrized parameters, against PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError
from tilegrad.nn.utils import parametrizations, parametrize

torch = pytorch()

MADE = [("weight_norm", {}), ("weight_norm", {"dim": None}), ("weight_norm", {"dim": 1}), ("spectral_norm", {})]


@pytest.mark.parametrize(("name", "settings"), MADE, ids=str)
def test_training_is_that_of_pytorch(name: str, settings: dict[str, Any]) -> None:
    theirs = getattr(torch.nn.utils.parametrizations, name)(torch.nn.Linear(4, 3), **settings)
    ours = getattr(parametrizations, name)(nn.Linear(4, 3), **settings)
    assert repr(ours) == repr(theirs)
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    for n in range(3):
        x = np.random.default_rng(n).standard_normal((5, 4)).astype(np.float32)
        for layer, make, no_grad in ((ours, tg.tensor, tg.no_grad), (theirs, torch.tensor, torch.no_grad)):
            (layer(make(x)) ** 2).sum().backward()
            with no_grad():
                for parameter in layer.parameters():
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
        for (key, value), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
            np.testing.assert_allclose(value.numpy(), other.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)
    ours.eval(), theirs.eval()
    np.testing.assert_allclose(
        ours(tg.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_the_largest_singular_value_becomes_one() -> None:
    tg.manual_seed(0)  # with two that are nearly alike it would take many turns
    layer = parametrizations.spectral_norm(nn.Linear(6, 5))
    for _ in range(30):
        weight = layer.weight
    assert np.linalg.norm(weight.detach().numpy(), 2) == pytest.approx(1, abs=1e-3)


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def test_registered_assigned_and_removed() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().numpy().copy()
    assert parametrize.register_parametrization(layer, "weight", Twice()) is layer
    np.testing.assert_allclose(layer.weight.detach().numpy(), before)
    layer.weight = tg.ones(2, 2)
    assert layer.parametrizations.weight.original.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    parametrize.register_parametrization(layer, "weight", Twice())
    assert layer.weight.tolist() == [[2, 2], [2, 2]]
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.tolist() == [[2, 2], [2, 2]]
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]


def test_what_cannot_be_parametrized() -> None:
    layer = nn.Linear(2, 3)
    with pytest.raises(ArgumentError, match="no parameter 'wieght'; there are weight, bias"):
        parametrize.register_parametrization(layer, "wieght", Twice())
    with pytest.raises(ShapeError, match="give unsafe=True"):
        parametrize.register_parametrization(layer, "weight", nn.Flatten(0))
    with pytest.raises(ArgumentError, match="is not parametrized"):
        parametrize.remove_parametrizations(layer, "weight")
