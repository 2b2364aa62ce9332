"""L-BFGS against PyTorch, and on functions with a known minimum."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError

START = np.array([-1.2, 1.0, 0.8], np.float64)


def valley(x: Any) -> Any:
    """Rosenbrock's, in three dimensions."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def bowl(x: Any) -> Any:
    return ((x - 1) ** 2 * (x * 0 + 3)).sum() + (x[0] * x[1] + x[2]).tanh()


def fitted(library: Any, loss: Callable[[Any], Any], calls: int, **settings: Any) -> tuple[list[Any], Any, Any]:
    x = library.tensor(START, requires_grad=True)
    optimizer = library.optim.LBFGS([x], **settings)

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    return [optimizer.step(closure).item() for _ in range(calls)], x, optimizer


@pytest.mark.parametrize(
    "settings", [{"lr": 0.1, "max_iter": 6}, {"lr": 0.3, "max_iter": 4, "history_size": 2}], ids=str
)
def test_fixed_steps_are_those_of_pytorch(settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    (ours, x, own), (theirs, y, other) = (fitted(lib, bowl, 3, **settings) for lib in (tg, torch))
    np.testing.assert_allclose(ours, theirs, 1e-8)
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-7)
    mine, its = own.state_dict(), other.state_dict()
    assert mine["state"][0].keys() == its["state"][0].keys() - {"al"}
    assert {k: mine["state"][0][k] for k in ("n_iter", "func_evals")} == {
        k: its["state"][0][k] for k in ("n_iter", "func_evals")
    }


def test_line_search_finds_the_minimum_of_a_valley() -> None:
    losses, x, _ = fitted(tg, valley, 3, line_search_fn="strong_wolfe", max_iter=40)
    assert losses[0] > 1
    np.testing.assert_allclose(x.detach().numpy(), np.ones(3), atol=1e-5)


def test_it_goes_on_where_it_stopped() -> None:
    whole, x, _ = fitted(tg, bowl, 4, lr=0.1, max_iter=3)
    first, y, optimizer = fitted(tg, bowl, 2, lr=0.1, max_iter=3)
    other = tg.optim.LBFGS([y], lr=9.0)
    other.load_state_dict(optimizer.state_dict())

    def closure() -> tg.Tensor:
        other.zero_grad()
        value: tg.Tensor = bowl(y)
        value.backward()
        return value

    assert first + [other.step(closure).item() for _ in range(2)] == whole
    assert x.tolist() == y.tolist()


def test_refused() -> None:
    x = tg.ones(2, requires_grad=True)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: tg.optim.LBFGS([x]).step(), "a function that computes the loss"),
        (lambda: tg.optim.LBFGS([{"params": [x]}, {"params": [tg.ones(1, requires_grad=True)]}]), "one step together"),
        (lambda: tg.optim.LBFGS([x], line_search_fn="armijo"), "'strong_wolfe'"),
        (lambda: tg.jit(lambda: tg.optim.LBFGS([x]).step(lambda: x.sum()))(), "outside of jit"),
    ]
    for call, words in cases:
        with pytest.raises(ArgumentError, match=words):
            call()
