"""The acceptance checks of items about networks, their layers and their training."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.recorded import pytorch
from tests.schedule.programs import given, program
from tilegrad import nn
from tilegrad.data import MNIST
from tilegrad.nn import models


def moved(x: Any) -> tg.Tensor:
    """An image whose numbers count up: which one a window keeps can be read off."""
    return tg.arange(int(np.prod(x)), dtype=tg.float32).reshape(x).requires_grad_()


@checklist(53)
def test_pooling_windows_that_overlap() -> None:
    """The table of the first version: 4x4 with windows of 2 at a stride of 1 and 2, and 256 planes of 6x6."""
    x = moved((1, 3, 4, 4))
    y = F.max_pool2d(x, 2, 1)
    np.testing.assert_array_equal(y.detach().numpy()[0, 0], [[5, 6, 7], [9, 10, 11], [13, 14, 15]])
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[0, 2], [[0, 0, 0, 0], *[[0, 1, 1, 1]] * 3])
    np.testing.assert_array_equal(F.avg_pool2d(x, 2).detach().numpy()[0, 0], [[2.5, 4.5], [10.5, 12.5]])
    torch = pytorch()
    array = np.random.default_rng(0).integers(0, 4, (1, 256, 6, 6)).astype(np.float32)  # with many ties
    for name, more in (("max_pool2d", (3, 2, 1)), ("avg_pool2d", (3, 2, 1))):
        ours, theirs = tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        y, wanted = getattr(F, name)(ours, *more), getattr(torch.nn.functional, name)(theirs, *more)
        weights = np.random.default_rng(1).standard_normal(tuple(wanted.shape)).astype(np.float32)
        (y * tg.tensor(weights)).sum().backward()
        (wanted * torch.tensor(weights)).sum().backward()
        np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]


LISTING = """AlexNet(
  (conv): Sequential(
    (0): Conv2d(1, 96, kernel_size=(11, 11), stride=(4, 4))
    (1): ReLU()
    (2): MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    (3): Conv2d(96, 256, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))
    (4): ReLU()
    (5): MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    (6): Conv2d(256, 384, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    (7): ReLU()
    (8): Conv2d(384, 384, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    (9): ReLU()
    (10): Conv2d(384, 256, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    (11): ReLU()
    (12): MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
  )
  (fc): Sequential(
    (0): Linear(in_features=6400, out_features=4096, bias=True)
    (1): ReLU()
    (2): Dropout(p=0.5, inplace=False)
    (3): Linear(in_features=4096, out_features=4096, bias=True)
    (4): ReLU()
    (5): Dropout(p=0.5, inplace=False)
    (6): Linear(in_features=4096, out_features=10, bias=True)
  )
)"""


@checklist(50, 56)
def test_a_network_prints_as_its_listing() -> None:
    model = models.AlexNet()
    assert str(model) == LISTING
    assert {type(m).__module__.partition(".")[0] for m in model.modules()} == {"tilegrad"}


@checklist(97)
def test_gradients_of_parts_of_a_batch_add_up() -> None:
    """Four parts of eight, each loss over four, are one batch of thirty-two."""
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    x, y = tg.randn(32, 6), tg.randint(0, 3, (32,))
    F.cross_entropy(model(x), y).backward()
    whole = [p.grad.numpy() for p in model.parameters()]
    model.zero_grad()
    for part, wanted in zip(x.split(8), y.split(8), strict=True):
        (F.cross_entropy(model(part), wanted) / 4).backward()
    for parameter, gradient in zip(model.parameters(), whole, strict=True):
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, atol=1e-6)


def lengths(activation: Any, spread: float | None, norm: bool, depth: int = 20, width: int = 64) -> list[float]:
    """The norm of the gradient at each layer of a deep network."""
    tg.manual_seed(1)
    linear = [nn.Linear(width, width, bias=False) for _ in range(depth)]
    for layer in linear:
        if spread is None:
            nn.init.kaiming_normal_(layer.weight)
        else:
            nn.init.normal_(layer.weight, std=spread * width**-0.5)
    layers = [part for layer in linear for part in (layer, *([nn.BatchNorm1d(width)] if norm else []), activation())]
    loss = nn.Sequential(*layers)(tg.randn(128, width)).square().mean()
    return [g.norm().item() for g in tg.autograd.grad(loss, [layer.weight for layer in linear])]


@checklist(141)
def test_gradients_vanish_and_explode_and_what_helps() -> None:
    def ratio(*args: Any) -> float:
        found = lengths(*args)
        return found[0] / found[-1]

    assert ratio(nn.Sigmoid, 1.0, False) < 1e-10
    assert 0.05 < ratio(nn.ReLU, None, False) < 20  # He's initialisation
    assert 0.02 < ratio(nn.Sigmoid, 4.0, True) < 50  # batch normalisation
    exploding = lengths(nn.Identity, 3.0, False)
    assert exploding[0] > 1e10
    weight = nn.Parameter(tg.zeros(3))
    weight.grad = tg.full((3,), exploding[0])
    nn.utils.clip_grad_norm_([weight], 1.0)
    assert weight.grad.norm().item() == pytest.approx(1.0, rel=1e-4)


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    """MNIST as numbers between 0 and 1, one image a row."""
    for folder in Path(__file__).resolve().parents:
        if (place := folder / "shared" / "data" / "mnist").is_dir():
            parts = {"train": MNIST(place), "test": MNIST(place, train=False)}
            return {n: (p.images.reshape(len(p), -1), p.labels) for n, p in parts.items()}
    pytest.skip("no MNIST in shared/data beside the repository")


def batches(digits: dict[str, Any], size: int, steps: int) -> Iterator[tuple[Any, Any]]:
    images, labels = digits["train"]
    order = np.random.default_rng(0)
    for _ in range(steps):
        chosen = order.integers(0, len(images), size)
        yield images[chosen], labels[chosen].astype(np.int64)


def share(scores: Any, labels: Any) -> float:
    return float((np.asarray(scores).argmax(1) == labels).mean())


def by_hand(w: Any, x: Any, y: Any, lr: float) -> tuple[Any, float]:
    """A step of logistic regression in numpy, with the chain rule worked out."""
    scores = x @ w
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    wanted = np.eye(10, dtype=np.float32)[y]
    return w - lr * x.T @ (p - wanted) / len(x), float(-np.log((p * wanted).sum(1)).mean())


@checklist(146, 175, 177)
def test_logistic_regression_is_that_by_hand(digits: dict[str, Any]) -> None:
    """1,000 steps of 100 images at a rate of 0.5, the first 250 against numpy; no step after the first allocates."""
    w = tg.zeros(784, 10, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.5)

    @tg.jit
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ w, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    other = np.zeros((784, 10), np.float32)
    for n, (x, y) in enumerate(batches(digits, 100, 1000)):
        found = step(tg.tensor(x), tg.tensor(y)).item()
        if n < 250:
            other, wanted = by_hand(other, x, y, 0.5)
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5), f"step {n}"
        if n == 249:
            np.testing.assert_allclose(w.detach().numpy(), other, atol=1e-5)
    images, labels = digits["test"]
    assert share(images @ w.detach().numpy(), labels) >= 0.91
    x, y = (tg.tensor(part[:100]) for part in digits["test"])
    y = y.long()
    step(x, y)
    gc.collect()  # what other tests left
    before = tg.live_bytes()
    for _ in range(20):
        loss = step(x, y)
        del loss
    assert tg.live_bytes() == before


@checklist(142)
def test_the_perceptron_of_the_course(digits: dict[str, Any]) -> None:
    """784-128-64-10 by plain descent at 0.01: the course has 0.8366 after its first epoch."""
    tg.manual_seed(0)
    model = models.MLP()
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.01)

    @tg.jit
    def step(x: tg.Tensor, y: tg.Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    for x, y in batches(digits, 64, 60_000 // 64):
        step(tg.tensor(x), tg.tensor(y))
    images, labels = digits["test"]
    with tg.no_grad():
        assert share(model(tg.tensor(images)).numpy(), labels) >= 0.8366


def activations(depth: int, every: int | None) -> int:
    """Planned bytes of a step through a chain of layers with a checkpoint after every few of them."""
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(depth)]).to("null")

    def step(x: tg.Tensor) -> tuple[tg.Tensor, ...]:
        if every is None:
            x = layers(x)
        else:
            for n in range(0, depth, every):
                x = tg.checkpoint(layers[n : n + every], x)
        return tg.autograd.grad(x.square().sum(), list(layers.parameters()))

    return int(program(step, given(2048, 8)).arena)


@checklist(183)
def test_memory_grows_with_the_root_of_the_depth() -> None:
    """Nine times as deep: all kept takes about nine times as much, every root-th kept about three times."""
    small, large = activations(4, None), activations(36, None)
    by_root = activations(36, 6)
    assert large > 6 * small
    assert by_root < 3.5 * activations(4, 2)
    assert by_root < 0.45 * large
