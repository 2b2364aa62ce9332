"""Recorded networks compute, learn and change as those that they were recorded from."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError, TilegradError, TraceError
from tilegrad.nn import functional as F
from tilegrad.nn import models
from tilegrad.nn.record import recorded
from tilegrad.tree import flatten

Pair = namedtuple("Pair", ["first", "second"])


class Containers(nn.Module):
    """Takes and returns tensors in containers, also by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", tg.tensor([2.0, 3.0]))
        self.register_buffer("hidden", tg.ones(2), persistent=False)
        self.linear = nn.Linear(2, 2)
        self.same = self.linear

    def forward(self, x: dict[str, Any], *more: Any, last: Any = None) -> Any:
        y = self.linear(x["a"]) * self.scale + x["b"][0] + self.hidden
        for extra in more:
            y = y + extra
        return OrderedDict(
            y=y, parts=[y.sum(), Pair(y * 2, None)], same=x["a"], last=None if last is None else last * y
        )


class Cuts(nn.Module):
    """Cuts gradients in two ways, and reads a tensor that is no part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tg.tensor([1.0, 2.0, 3.0]))
        self.outside = [tg.tensor([0.5, 0.25, 4.0])]

    def forward(self, x: tg.Tensor) -> Any:
        with tg.no_grad():
            scale = self.weight * 2
        return x * scale + self.weight.detach() * x + self.weight * self.outside[0] + tg.tensor([1.0, 1.0, 2.0])


class Writes(nn.Module):
    """Writes to its buffers and to its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", tg.zeros(1, dtype=tg.int64))
        self.register_buffer("mean", tg.zeros(3))

    def forward(self, x: tg.Tensor) -> Any:
        self.calls += 1
        self.mean[1:].mul_(0.5).add_(x.mean(0)[1:])
        return (x + 1).relu_() * self.mean.clone()


def _x(*shape: int) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def _tokens(*shape: int) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(sum(shape)).integers(0, 11, shape))


def _containers(n: int) -> tuple[Any, ...]:
    return {"a": _x(n, 2), "b": (_x(n, 2), None)}, _x(n, 1), _x(1)


N = {0: "n"}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Any, ...]], dict[str, Any]]] = {
    "lenet": (models.LeNet, lambda n: (_x(n, 1, 28, 28),), {"images": N}),
    "cnn": (models.CNN, lambda n: (_x(n, 1, 28, 28),), {"images": N}),
    "mlp": (lambda: models.MLP(), lambda n: (_x(n, 784),), {"input": N}),
    "gpt": (
        lambda: models.GPT(11, context=8, width=8, layers=1, heads=2, dropout=0.1),
        lambda n: (_tokens(n, 8),),
        {"tokens": N},
    ),
    "lstm": (lambda: models.LSTMLanguageModel(11, 4, 1, tied=True), lambda n: (_tokens(2, n),), {"tokens": {1: "t"}}),
    "gru": (lambda: nn.GRU(3, 4), lambda n: (_x(n, 2, 3),), {"input": N}),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout()),
        lambda n: (_x(n, 2, 5, 5),),
        {"input": N},
    ),
    "containers": (Containers, _containers, {"x": {"a": N, "b": (N, None)}, "more_0": N}),
    "cuts": (Cuts, lambda n: (_x(n, 3),), {"x": N}),
    "writes": (Writes, lambda n: (_x(n, 3),), {"x": N}),
}


def _leaves(x: Any) -> list[np.ndarray]:
    return [leaf.detach().numpy() for leaf in flatten(x)[0]]


def _equal(x: Any, y: Any, tolerance: float = 0) -> None:
    xs, ys = _leaves(x), _leaves(y)
    assert len(xs) == len(ys)
    for a, b in zip(xs, ys, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, tolerance, tolerance)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_recorded_network_is_the_network(name: str, training: bool) -> None:
    make, example, dynamic = NETWORKS[name]
    tg.manual_seed(1)
    model = make().train(training)
    net = recorded(model, example(3), dynamic=dynamic)
    assert net.training is training
    assert [m.training for m in model.modules()].count(training)
    state = {key: x.clone() for key, x in model.state_dict().items()}
    assert [*net.state_dict()][: len(state)]
    assert {*net.state_dict()} >= {*state}
    for n in (4, 1):
        outcomes = []
        for called in (model, net):
            called.load_state_dict(state, strict=False)
            tg.manual_seed(2)
            result = called(*example(n))
            loss = sum((x.float() ** 2).sum() for x in flatten(result)[0])
            called.zero_grad()
            if loss.requires_grad:
                loss.backward()
            gradients = [p.grad.clone() for p in called.parameters() if p.grad is not None]
            after = [x.clone() for x in called.state_dict().values()][: len(state)]
            outcomes.append((result, gradients, after, tg.rand(2)))
        one, other = outcomes
        _equal(one[0], other[0], 1e-5)
        _equal(one[1], other[1], 1e-4)
        _equal(one[2:], other[2:], 1e-6)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", NETWORKS)
def test_results_have_equal_bits(name: str) -> None:
    make, example, _ = NETWORKS[name]
    model = make().eval()
    net = recorded(model, example(3))
    with tg.no_grad():
        state = {key: x.clone() for key, x in model.state_dict().items()}
        made = model(*example(3))
        _leaves(made)
        model.load_state_dict(state)
        _equal(made, net(*example(3)))


@pytest.mark.parametrize("name", ["lenet", "containers", "writes"])
def test_within_jit_it_is_one_program_for_all_sizes(name: str) -> None:
    make, example, dynamic = NETWORKS[name]
    net = recorded(make().eval(), example(3), dynamic=dynamic)
    jitted = tg.jit(net.__call__)
    with tg.no_grad():
        before = {key: x.clone() for key, x in net.state_dict().items()}
        made = [jitted(*example(n)) for n in (3, 5, 7)]
        net.load_state_dict(before)
        for n, x in zip((3, 5, 7), made, strict=True):
            _equal(x, net(*example(n)), 1e-6)
    assert len(jitted.programs) == 2


def test_a_network_without_gradients_says_so() -> None:
    """A rule of a user's own is no op: what is recorded has no gradient rather than another one."""

    class Reversed(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tg.Tensor) -> tg.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, upstream: tg.Tensor) -> tg.Tensor:
            return -upstream

    class Net(nn.Linear):
        def forward(self, input: tg.Tensor) -> tg.Tensor:
            return Reversed.apply(super().forward(input))

    net = recorded(Net(2, 2), (_x(3, 2),))
    made = net(_x(3, 2))
    assert not made.requires_grad
    with pytest.raises(TilegradError):
        made.sum().backward()


def test_it_is_trained_by_optimizers() -> None:
    net = recorded(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), (_x(4, 2),), dynamic={"input": N})
    optimizer = tg.optim.Adam(net.parameters(), 0.05)
    x = _x(64, 2)
    losses = []
    for _ in range(30):
        loss = F.mse_loss(net(x), x[:, :1] * x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


class _Numbers(nn.Module):
    def forward(self, x: tg.Tensor) -> Any:
        return x.sum().item()


class _Outside(nn.Module):
    log = tg.zeros(3)

    def forward(self, x: tg.Tensor) -> Any:
        self.log.add_(x)
        return x


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a number among the arguments": (lambda: recorded(nn.Linear(2, 2), (3,)), ArgumentError, "not a tensor"),
    "no argument": (lambda: recorded(nn.Linear(2, 2), ()), ArgumentError, "does not fit Linear.forward"),
    "an unknown name": (
        lambda: recorded(nn.Linear(2, 2), (_x(1, 2),), dynamic={"y": N}),
        ArgumentError,
        "the arguments are input",
    ),
    "an axis too many": (
        lambda: recorded(nn.Linear(2, 2), (_x(1, 2),), dynamic={"input": {2: "n"}}),
        ArgumentError,
        "2 axes",
    ),
    "a size without a name": (
        lambda: recorded(nn.Linear(2, 2), (_x(1, 2),), dynamic={"input": {0: 3}}),
        ArgumentError,
        "named by a word",
    ),
    "a size that must be known": (
        lambda: recorded(nn.Linear(2, 2), (_x(1, 2),), dynamic={"input": {1: "n"}}),
        ShapeError,
        "",
    ),
    "elements that are looked at": (lambda: recorded(_Numbers(), (_x(3),)), TraceError, "asked for"),
    "a write to the outside": (lambda: recorded(_Outside(), (_x(3),)), TraceError, "register_buffer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_recorded_is_refused(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()
    assert (tg.ones(2) + 1).sum().item() == 4  # no trace is left open
