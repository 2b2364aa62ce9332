"""Train the demonstration's network, written as a user would write it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..autograd.modes import no_grad
from ..data import DataLoader, Digits
from ..functions.creation import from_numpy
from ..jitted.function import Jitted, jit
from ..nn import GELU, LayerNorm, Linear, Module, Sequential
from ..nn.functional import cross_entropy, softmax
from ..optim import AdamW
from ..random import Generator, manual_seed
from ..tensor import Tensor

BATCH = 64
HIDDEN = 128
RATE = 3e-3


class Trained(NamedTuple):
    """The result of training: the loss of each step, the test accuracy after each epoch."""

    model: Module
    step: Jitted[[Tensor, Tensor], Tensor]
    example: tuple[Tensor, Tensor]
    losses: list[float]
    scores: list[float]
    seconds: float
    """Duration of training, without compilation before the second step."""
    compile_seconds: float
    steps: int


class Tested(NamedTuple):
    """The test images, their labels and their predictions."""

    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    chances: np.ndarray[Any, Any]
    """Probabilities of each image and class."""

    @property
    def guesses(self) -> np.ndarray[Any, Any]:
        return np.asarray(self.chances.argmax(axis=1))

    @property
    def accuracy(self) -> float:
        return float((self.guesses == self.labels).mean())

    def confusion(self) -> np.ndarray[Any, Any]:
        """Count how often each digit (row) was classified as each other (column)."""
        counts = np.zeros((10, 10), np.int64)
        np.add.at(counts, (self.labels, self.guesses), 1)
        return counts


def network() -> Module:
    """Return a network with two hidden layers."""
    return Sequential(
        Linear(64, HIDDEN),
        LayerNorm(HIDDEN),
        GELU(),
        Linear(HIDDEN, HIDDEN),
        LayerNorm(HIDDEN),
        GELU(),
        Linear(HIDDEN, 10),
    )


def train(seed: int, epochs: int, progress: Callable[[int, float, float], None]) -> Trained:
    """Train for some epochs; `progress` is called with the epoch, the loss and the test accuracy after each."""
    manual_seed(seed)
    order = Generator().manual_seed(seed)
    loader = DataLoader(Digits(train=True, flat=True), BATCH, shuffle=True, drop_last=True, generator=order)
    model = network()
    optimizer = AdamW(model.parameters(), lr=RATE)

    @jit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses: list[float] = []
    scores: list[float] = []
    total = max(1, epochs * len(loader))
    start = first = time.perf_counter()
    example = next(iter(loader))
    for epoch in range(epochs):
        batches = []
        for images, labels in loader:
            optimizer.param_groups[0]["lr"] = RATE * (0.5 + 0.5 * math.cos(math.pi * len(losses) / total))
            batches.append(step(images, labels))
            losses.append(math.nan)
            if len(losses) == 1:
                batches[0].item()
                first = time.perf_counter()
        losses[len(losses) - len(batches) :] = [x.item() for x in batches]
        scores.append(test(model).accuracy)
        progress(epoch, float(np.mean(losses[-len(loader) :])), scores[-1])
    done = time.perf_counter()
    return Trained(model, step, tuple(example), losses, scores, done - first, first - start, len(losses))


def test(model: Module) -> Tested:
    """Classify the test images."""
    held_out = Digits(train=False, flat=True)
    with no_grad():
        chances = softmax(model(from_numpy(np.ascontiguousarray(held_out.images))), dim=1)
    return Tested(held_out.images, held_out.labels, chances.numpy())
