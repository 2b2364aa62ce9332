"""Networks for the tests of engines: a few of each kind, with examples."""

from collections.abc import Callable
from typing import Any

import numpy as np

import tilegrad as tg
from tilegrad import nn


class Pair(nn.Module):
    """Two inputs and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5)

    def forward(self, x: tg.Tensor, y: tg.Tensor) -> dict[str, tg.Tensor]:
        a, b = self.left(x), self.right(y)
        return {"sum": (a + b).relu(), "product": (a * b).softmax(1)}


class Tokens(nn.Module):
    """A transformer layer on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: tg.Tensor) -> tg.Tensor:
        return self.head(self.layer(self.embedding(tokens)).mean(1))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def images(rows: int) -> tuple[np.ndarray[Any, Any], ...]:
    return (np.random.default_rng(rows).standard_normal((rows, 1, 8, 8)).astype(np.float32),)


def vectors(rows: int) -> tuple[np.ndarray[Any, Any], ...]:
    draw = np.random.default_rng(rows)
    return (
        draw.standard_normal((rows, 6)).astype(np.float32),
        draw.standard_normal((rows, 4)).astype(np.float32),
    )


def words(rows: int) -> tuple[np.ndarray[Any, Any], ...]:
    return (np.random.default_rng(rows).integers(0, 20, (rows, 7)),)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[np.ndarray[Any, Any], ...]]]] = {
    "convolutions": (convolutional, images),
    "pair": (Pair, vectors),
    "tokens": (Tokens, words),
}


def network(name: str) -> tuple[nn.Module, Callable[[int], tuple[np.ndarray[Any, Any], ...]]]:
    """Make a network, in evaluation mode, and the function that makes its arguments for a batch."""
    make, example = NETWORKS[name]
    tg.manual_seed(5)
    return make().eval(), example


def expected(model: nn.Module, args: tuple[np.ndarray[Any, Any], ...]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a network that is called as it is."""
    with tg.no_grad():
        found = model(*map(tg.tensor, args))
    return [x.numpy() for x in (found.values() if isinstance(found, dict) else [found])]
