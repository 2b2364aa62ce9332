"""What a jitted network looks at before each call: nothing that was replaced or written to is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn


def network() -> Any:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()


def written(model: Any) -> None:
    with tg.no_grad():
        model[0].weight.copy_(tg.ones(3, 4))


def given_other_data(model: Any) -> None:
    model[2].bias.data = tg.full((2,), 5.0)


def with_another_layer(model: Any) -> None:
    model[1] = nn.Tanh()


def with_another_parameter(model: Any) -> None:
    model[0].weight = nn.Parameter(tg.full((3, 4), 0.5))


def without_a_layer(model: Any) -> None:
    del model[3]


def in_training(model: Any) -> None:
    model.train()


def loaded(model: Any) -> None:
    model.load_state_dict({name: tg.ones_like(x) for name, x in model.state_dict().items()})


CHANGES = (written, given_other_data, with_another_layer, with_another_parameter, without_a_layer, in_training, loaded)


@pytest.mark.parametrize("times", [1, 3, 6])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change: Callable[[Any], None], times: int) -> None:
    model, x = network(), tg.tensor(np.arange(20, dtype=np.float32).reshape(5, 4))
    quick = tg.jit(lambda x: model(x))
    with tg.no_grad():
        for _ in range(times):
            quick(x)
        change(model)
        for _ in range(3):
            found = quick(x).numpy()
    expected = model.eval() if change is not in_training else model
    with tg.no_grad():
        np.testing.assert_allclose(found, expected(x).numpy(), rtol=1e-5, atol=1e-6)


def test_what_changes_at_every_call_is_seen() -> None:
    model, x = network(), tg.ones(5, 4)
    quick = tg.jit(lambda x: model(x))
    with tg.no_grad():
        for n in range(12):
            model[0].weight.copy_(tg.full((3, 4), float(n)))
            np.testing.assert_allclose(quick(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
