"""Recurrent layers: values, gradients and training are those of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, ShapeError

torch = pytorch()
nn = tg.nn


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def same(x: Any, y: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance)


def pair(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The same layer here and in PyTorch, with the same weights."""
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    ours.load_state_dict({k: tg.tensor(v.detach().numpy()) for k, v in theirs.state_dict().items()})
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours, theirs


def flat(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in flat(part)] if isinstance(result, tuple) else [result]


def compare(ours: Any, theirs: Any, x: Any, state: Any = None) -> None:
    """Values, and the gradients of input, states and weights."""
    results, grads = [], []
    for library, layer in ((tg, ours), (torch, theirs)):
        inputs = [library.tensor(a, requires_grad=True) for a in (x, *(state or ()))]
        given = [] if state is None else [tuple(inputs[1:]) if len(state) > 1 else inputs[1]]
        made = flat(layer(inputs[0], *given))
        loss = sum((y * library.tensor(random(*y.shape, seed=7))).sum() for y in made)
        loss.backward()
        results.append(made)
        grads.append([t.grad for t in (*inputs, *layer.parameters())])
    for a, b in zip(results[0] + grads[0], results[1] + grads[1], strict=True):
        same(a, b, 1e-4)


KINDS = ["RNN", "LSTM", "GRU"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"bias": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_layer(kind: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(kind, 5, 7, **options)
    compare(ours, theirs, random(*((3, 4, 5) if options.get("batch_first") else (4, 3, 5))))


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_given(kind: str) -> None:
    ours, theirs = pair(kind, 5, 7)
    state = [random(1, 18, 7, seed=n) for n in range(2 if kind == "LSTM" else 1)]
    compare(ours, theirs, random(3, 18, 5), state)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_batch(kind: str) -> None:
    ours, theirs = pair(kind, 5, 7, bidirectional=True)
    state = [random(2, 7, seed=n) for n in range(2 if kind == "LSTM" else 1)]
    compare(ours, theirs, random(4, 5), state)


def test_relu() -> None:
    compare(*pair("RNN", 5, 7, nonlinearity="relu"), random(4, 3, 5))


def test_projection() -> None:
    ours, theirs = pair("LSTM", 5, 7, num_layers=2, proj_size=3)
    compare(ours, theirs, random(3, 2, 5), [random(2, 2, 3), random(2, 2, 7, seed=1)])


@pytest.mark.parametrize("kind", KINDS)
def test_unrolled_is_the_same(kind: str) -> None:
    layer = getattr(nn, kind)(5, 7)
    x = tg.tensor(random(3, 2, 5))
    whole = flat(layer(x))
    layer.unrolled = True
    for a, b in zip(flat(layer(x)), whole, strict=True):
        same(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_second_gradients(kind: str) -> None:
    """The gradient of the squared length of a gradient, in all states."""
    ours, theirs = pair(kind, 3, 2)
    array = random(2, 2, 3)
    x, other = tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)

    def penalty(layer: Any, x: Any, grad: Any) -> list[Any]:
        total = sum((part * part * part).sum() for part in flat(layer(x)))
        (first,) = grad(total, [x], create_graph=True)
        (first * first).sum().backward()
        return [x.grad, *(p.grad for p in layer.parameters())]

    found = penalty(ours, x, tg.autograd.grad)
    for a, b in zip(found, penalty(theirs, other, torch.autograd.grad), strict=True):
        same(a, b)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_cell(kind: str, batch: tuple[int, ...]) -> None:
    ours, theirs = pair(kind, 5, 7)
    compare(ours, theirs, random(*batch, 5))
    states = [random(*batch, 7, seed=n) for n in range(2 if kind == "LSTMCell" else 1)]
    compare(ours, theirs, random(*batch, 5), states)


@pytest.mark.parametrize("kind", KINDS)
def test_training(kind: str) -> None:
    """Five steps of Adam give the same weights."""
    ours, theirs = pair(kind, 4, 6)
    x, wanted = random(5, 8, 4), random(5, 8, 6, seed=1)
    optimizers = tg.optim.Adam(ours.parameters(), 0.01), torch.optim.Adam(theirs.parameters(), 0.01)

    @tg.jit
    def step(x: Any, wanted: Any) -> Any:
        optimizers[0].zero_grad()
        loss = (ours(x)[0] - wanted).square().mean()
        loss.backward()
        optimizers[0].step()
        return loss

    for _ in range(5):
        mine = step(tg.tensor(x), tg.tensor(wanted))
        optimizers[1].zero_grad()
        loss = (theirs(torch.tensor(x))[0] - torch.tensor(wanted)).square().mean()
        loss.backward()
        optimizers[1].step()
        same(mine, loss)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        same(a, b, 1e-4)


def test_dropout_stands_between_layers() -> None:
    layer = nn.LSTM(4, 50, num_layers=2, dropout=0.5)
    x = tg.tensor(random(3, 2, 4))
    tg.manual_seed(0)
    first = layer(x)[0]
    assert np.abs((layer(x)[0] - first).detach().numpy()).max() > 1e-4
    layer.eval()
    same(layer(x)[0], layer(x)[0])


def test_vmap() -> None:
    layer = nn.GRU(3, 5)
    x = tg.tensor(random(2, 4, 3, 3))
    each = tg.vmap(lambda x: layer(x)[0])(x)
    same(each[1], layer(x[1])[0])


def test_half_precision() -> None:
    layer = nn.LSTM(4, 6)
    x = tg.tensor(random(3, 2, 4))
    wanted = layer(x)[0].detach()
    found = layer.bfloat16()(x.bfloat16())[0]
    assert found.dtype is tg.bfloat16
    same(found.float(), wanted, 2e-2)


def test_bad_input() -> None:
    with pytest.raises(ShapeError, match="with 4 features"):
        nn.LSTM(4, 6)(tg.ones(3, 2, 5))
    with pytest.raises(ShapeError, match=r"it must be \(1, 2, 6\)"):
        nn.GRU(4, 6)(tg.ones(3, 2, 4), tg.ones(1, 3, 6))
    with pytest.raises(ShapeError, match="has no steps"):
        nn.GRU(4, 6)(tg.ones(0, 2, 4))
    with pytest.raises(ArgumentError, match="a pair"):
        nn.LSTM(4, 6)(tg.ones(3, 2, 4), tg.ones(1, 2, 6))
    with pytest.raises(ArgumentError, match="proj_size=6"):
        nn.LSTM(4, 6, proj_size=6)
    with pytest.raises(ArgumentError, match="all must be positive"):
        nn.GRU(0, 6)
    with pytest.raises(ArgumentError, match="nonlinearity"):
        nn.RNN(4, 6, nonlinearity="sin")
    with pytest.raises(ShapeError, match="GRUCell"):
        nn.GRUCell(4, 6)(tg.ones(2, 5))
