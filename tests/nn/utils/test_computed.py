"""Weights that are recomputed before each forward, against PyTorch's older functions; modules as functions."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import Names, pytorch
from tilegrad import nn
from tilegrad.errors import ArgumentError

torch = pytorch()
warnings.filterwarnings("ignore", module="torch")
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 5, 5)).astype(np.float32)

CASES = [
    ("Linear(4, 5)", "weight_norm", {}, X, True),
    ("Linear(4, 5)", "weight_norm", {"dim": None}, X, False),
    ("Conv2d(3, 2, 3)", "weight_norm", {"dim": 1}, IMAGE, True),
    ("Linear(4, 5)", "spectral_norm", {}, X, True),
    ("ConvTranspose2d(3, 2, 3)", "spectral_norm", {"n_power_iterations": 2}, IMAGE, False),
]
"""A layer, what is done to it, an input, and whether the step is jitted."""


def both(made: str, function: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The layer here, with the state that PyTorch saves."""
    theirs = getattr(torch.nn.utils, function)(eval(made, {}, Names(torch.nn)), **options)
    ours = getattr(nn.utils, function)(eval(made, {n: getattr(nn, n) for n in nn.__all__}), **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize(
    ("made", "function", "options", "array", "jit"), CASES, ids=[f"{c[1]} {c[0]} {c[2]}" for c in CASES]
)
def test_it_trains_as_in_pytorch(made: str, function: str, options: dict[str, Any], array: Any, jit: bool) -> None:
    ours, theirs = both(made, function, options)
    own, other = tg.optim.SGD(ours.parameters(), 0.05), torch.optim.SGD(theirs.parameters(), 0.05)

    def step(x: Any) -> Any:
        own.zero_grad()
        y = ours(x)
        y.square().sum().backward()
        own.step()
        return y.detach()

    run = tg.jit(step) if jit else step
    for _ in range(3):
        other.zero_grad()
        z = theirs(torch.tensor(array))
        z.square().sum().backward()
        other.step()
        np.testing.assert_allclose(run(tg.tensor(array)).numpy(), z.detach().numpy(), rtol=2e-4, atol=1e-5)
    for (name, x), y in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.numpy(), rtol=2e-4, atol=1e-5, err_msg=name)
    alone = copy.deepcopy(ours).eval()
    wanted = ours.eval()(tg.tensor(array)).detach().numpy()
    np.testing.assert_allclose(alone(tg.tensor(array)).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    removed = getattr(nn.utils, f"remove_{function}")(ours)
    assert sorted(removed.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(removed(tg.tensor(array)).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_what_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="no parameter 'kernel'; there are weight, bias"):
        nn.utils.weight_norm(nn.Linear(2, 2), "kernel")
    with pytest.raises(ArgumentError, match="not computed by it"):
        nn.utils.remove_weight_norm(nn.Linear(2, 2))
    layer = nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match="Linear has no wait"):
        nn.utils.stateless.functional_call(layer, {"wait": tg.ones(2)}, tg.ones(1, 2))
    with pytest.raises(ArgumentError, match="there is no bias"):
        nn.utils.stateless.functional_call(layer, {"weight": tg.ones(2, 2)}, tg.ones(1, 2), strict=True)


def test_a_module_as_a_function() -> None:
    """Its gradients come by the functions of functions, and the module stays as it was."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    call = nn.utils.stateless.functional_call
    state = {name: p.detach() for name, p in model.named_parameters()}
    x = tg.randn(5, 3)

    def loss(state: Any) -> Any:
        return call(model, state, (x,)).square().mean()

    gradients = tg.grad(loss)(state)
    model(x).square().mean().backward()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(gradients[name].numpy(), parameter.grad.numpy(), rtol=1e-5, atol=1e-6)
        assert isinstance(parameter, nn.Parameter)
    assert (
        call(model, ({"2.bias": tg.full((1,), 7.0)}, {"2.weight": tg.zeros(1, 4)}), x).flatten().tolist() == [7.0] * 5
    )


def test_tied_parameters_change_together() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    call, x = nn.utils.stateless.functional_call, tg.tensor([[1.0, 2.0]])
    twice = call(model, {"0.weight": 2 * tg.eye(2)}, x)
    assert twice.tolist() == [[4.0, 8.0]]
    assert model[1].weight is model[0].weight


def test_a_module_that_waits_for_its_state() -> None:
    layer = nn.utils.skip_init(nn.Linear, 3, 4, bias=False, dtype=tg.float64)
    assert layer.weight.dtype is tg.float64
