"""Clipped gradients, and parameters as one vector, against PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError
from tilegrad.nn import utils

torch = pytorch()


def parameters(make: Any, kind: Any, scale: float) -> list[Any]:
    """Three parameters, two of them with gradients."""
    generator = np.random.default_rng(3)
    made = [kind(make(generator.standard_normal(shape).astype(np.float32))) for shape in [(3,), (2, 4), ()]]
    for x in made[:2]:
        x.grad = make((generator.standard_normal(tuple(x.shape)) * scale).astype(np.float32))
    return made


def twins(scale: float = 3.0) -> tuple[list[Any], list[Any]]:
    return parameters(tg.tensor, nn.Parameter, scale), parameters(torch.tensor, torch.nn.Parameter, scale)


def same(ours: list[Any], theirs: list[Any]) -> None:
    for x, y in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("scale", [0.01, 5.0])
def test_norm(scale: float, norm: float) -> None:
    ours, theirs = twins(scale)
    total = utils.clip_grad_norm_(ours, 0.5, norm)
    np.testing.assert_allclose(total.item(), torch.nn.utils.clip_grad_norm_(theirs, 0.5, norm).item(), rtol=1e-5)
    same(ours, theirs)


def test_value() -> None:
    ours, theirs = twins()
    utils.clip_grad_value_(ours, 0.7)
    torch.nn.utils.clip_grad_value_(theirs, 0.7)
    same(ours, theirs)
    utils.clip_grad_value_(ours[0], 0.1)
    assert np.abs(ours[0].grad.numpy()).max() <= np.float32(0.1)


def test_what_cannot_be_clipped() -> None:
    (x, *_), _ = twins()
    x.grad = x.grad * float("inf")
    with pytest.raises(ArgumentError, match="infinite or no number"):
        utils.clip_grad_norm_(x, 1.0, error_if_nonfinite=True)
    assert utils.clip_grad_norm_([], 1.0).item() == 0


def test_clipped_in_a_traced_step() -> None:
    layer = nn.Linear(3, 2)

    @tg.jit
    def step(x: Any) -> Any:
        layer.zero_grad()
        (layer(x) * 10).sum().backward()
        norm = utils.clip_grad_norm_(layer.parameters(), 1.0)
        with tg.no_grad():
            for parameter in layer.parameters():
                parameter -= parameter.grad
        return norm

    before = utils.parameters_to_vector(layer.parameters()).detach().numpy().copy()
    for _ in range(2):
        assert step(tg.ones(4, 3)).item() > 1
    after = utils.parameters_to_vector(layer.parameters()).detach().numpy()
    assert np.linalg.norm(after - before) == pytest.approx(2, rel=1e-4)


def test_vectors() -> None:
    ours, theirs = twins()
    vector = utils.parameters_to_vector(ours)
    np.testing.assert_array_equal(vector.detach().numpy(), torch.nn.utils.parameters_to_vector(theirs).detach().numpy())
    (vector * 2).sum().backward()
    assert ours[2].grad.item() == 2
    utils.vector_to_parameters(tg.arange(12).float(), ours)
    assert ours[0].tolist() == [0, 1, 2]
    assert ours[2].item() == 11
    with pytest.raises(ShapeError, match="for parameters of 12 elements"):
        utils.vector_to_parameters(tg.ones(11), ours)
