"""Networks trained as people train them, in several ways: every loss, parameter, gradient and buffer is PyTorch's."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.programs.networks import NETWORKS, Network
from tests.recorded import pytorch

STEPS = 5
SIZES = {"sizes": (4, 3, 2, 5, 3)}
"""Rows of each batch, where they change: the second size is compiled for, the others are served by that."""
WAYS = ("looked", "model", "sizes", "resumed")
"""Each number is looked at in every step; only the loss is jitted; the step is, and sizes change, or it is loaded."""


class Training:
    """A network, its optimizer and its step, in either library."""

    def __init__(self, library: Any, network: Network, start: dict[str, np.ndarray], way: str) -> None:
        self.library, self.network, self.way = library, network, way
        self.model = library.nn.ModuleDict(network.layers(library.nn)).double()
        self.model.load_state_dict({name: library.tensor(array) for name, array in start.items()})
        self.optimizer = network.optimizer(library, self.model.parameters())
        self.loss = self._jitted("model", self._loss)
        self.step = self._step if way in ("looked", "model") else self._jitted(way, self._step)

    def _jitted(self, way: str, function: Any) -> Any:
        return tg.jit(function) if self.library is tg and way == self.way else function

    def _loss(self, *batch: Any) -> Any:
        return self.network.loss(self.library, self.model, *batch)

    def _step(self, *batch: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def numbers(self, names: tuple[list[str], list[str]]) -> Iterator[np.ndarray]:
        """The state, and the gradients of those parameters that have some."""
        state, parameters = names
        own = self.model.state_dict()
        for name in state:
            yield own[name].numpy()
        for name in parameters:
            yield self.model.get_parameter(name).grad.numpy()

    def save(self) -> io.BytesIO:
        file = io.BytesIO()
        self.library.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
        file.seek(0)
        return file

    def load(self, file: io.BytesIO) -> None:
        saved = self.library.load(file)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])


def first_state(network: Network) -> dict[str, np.ndarray]:
    """Numbers for all that a network keeps, of the size that trains well."""
    rng = np.random.default_rng(7)
    model = tg.nn.ModuleDict(network.layers(tg.nn)).double()
    start = {name: x.numpy() for name, x in model.state_dict().items()}
    drawn = {n: rng.standard_normal(x.shape) / np.sqrt(max(1, np.prod(x.shape[1:]))) for n, x in start.items()}
    return {
        n: drawn[n] if n.endswith("weight") and x.ndim > 1 else x + 0.1 * (n.endswith("bias")) for n, x in start.items()
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_training(name: str, way: str) -> None:
    torch = pytorch()
    network, start = NETWORKS[name], first_state(NETWORKS[name])
    ours, theirs = (Training(library, network, start, way) for library in (tg, torch))
    idle = [n for n, p in ours.model.named_parameters() if n.startswith("slow")]
    names = list(start), [n for n, _ in ours.model.named_parameters() if n not in idle]
    rng = np.random.default_rng(1)
    for n in range(STEPS):
        arrays = network.arrays(rng, max(network.least, SIZES.get(way, (4,) * STEPS)[n]))
        losses = [run.step(*map(run.library.tensor, arrays)).detach().numpy() for run in (ours, theirs)]
        np.testing.assert_allclose(*losses, rtol=1e-8)
        if way == "looked":
            assert all(np.isfinite(mine).all() for mine in ours.numbers(names))
        if n == STEPS - 1:
            for mine, its in zip(ours.numbers(names), theirs.numbers(names), strict=True):
                np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-9)
        if way == "resumed" and n == 1:
            saved, best = [run.save() for run in (ours, theirs)], copy.deepcopy(ours.model.state_dict())
            kept = {name: x.numpy().copy() for name, x in best.items()}
            for run in (ours, theirs):
                run.step(*map(run.library.tensor, arrays))
                run.load(saved.pop(0))  # into the objects that the jitted step has
    if way == "resumed":
        for name, x in best.items():
            np.testing.assert_array_equal(x.numpy(), kept[name])
