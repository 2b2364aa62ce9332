"""Averages of networks against PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError

AVERAGES: dict[str, Any] = {
    "mean": lambda u: {},
    "exponential": lambda u: {"avg_fn": u.get_ema_avg_fn(0.7)},
    "means": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "exponential, all at once": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "own": lambda u: {"avg_fn": lambda mean, x, n: (mean + x) * 0.5},
}
START = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def training(library: Any, name: str, jit: bool) -> Any:
    model = library.nn.Linear(4, 3)
    with library.no_grad():
        model.weight.copy_(library.tensor(START))
        model.bias.zero_()
    average = library.optim.swa_utils.AveragedModel(model, **AVERAGES[name](library.optim.swa_utils))
    optimizer = library.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        average.update_parameters(model)

    run = tg.jit(step) if jit else step
    for n in range(5):
        run(library.tensor(START * 0.1 * (n + 1)))
    return average


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name: str, jit: bool) -> None:
    torch = pytorch()
    ours, theirs = training(tg, name, jit), training(torch, name, False)
    assert ours.n_averaged.item() == 5
    mine, its = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(its)
    for key, value in its.items():
        np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    x = START[:2]
    np.testing.assert_allclose(
        ours(tg.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_the_model_is_a_copy() -> None:
    model = tg.nn.Linear(2, 2)
    average = tg.optim.swa_utils.AveragedModel(model)
    with tg.no_grad():
        model.weight.zero_()
    assert average.module.weight.abs().sum().item() > 0


def test_batch_normalisation_measures_anew() -> None:
    torch = pytorch()
    batches = np.random.default_rng(1).standard_normal((3, 6, 4)).astype(np.float32)
    seen = []
    for library in (tg, torch):
        model = library.nn.BatchNorm1d(4).eval()
        library.optim.swa_utils.update_bn([(library.tensor(x), 0) for x in batches], model)
        assert (model.momentum, model.training) == (0.1, False)
        seen.append(np.stack([model.running_mean.numpy(), model.running_var.numpy()]))
    np.testing.assert_allclose(*seen, rtol=1e-5)


def test_what_makes_no_sense() -> None:
    both = {"avg_fn": lambda *_: None, "multi_avg_fn": lambda *_: None}
    with pytest.raises(ArgumentError, match="not both"):
        tg.optim.swa_utils.AveragedModel(tg.nn.Linear(2, 2), **both)
    with pytest.raises(ArgumentError, match="from 0 to 1, not 2"):
        tg.optim.swa_utils.get_ema_avg_fn(2)
