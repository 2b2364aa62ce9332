"""Stages of a network: one after the other they compute what the network computes, and their costs are about equal."""

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, expected, network
from tilegrad import nn
from tilegrad.engines.stages import cut_into_stages
from tilegrad.transform.operation_count import operations
from tilegrad.tree import flatten


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("name", NETWORKS)
def test_stages_compute_the_network(name: str, count: int) -> None:
    model, example = network(name)
    program = tg.export(model, example(3))
    stages = cut_into_stages(program, count)
    assert 1 <= len(stages) <= count
    with tg.no_grad():
        carried = tuple(map(tg.tensor, example(3)))
        for stage in stages[:-1]:
            carried = stage(*carried)
        found = flatten(stages[-1](*carried))[0]
    for have, wanted in zip(found, expected(model, example(3)), strict=True):
        np.testing.assert_allclose(have.numpy(), wanted, 1e-4, 1e-5)


def test_costs_are_about_equal() -> None:
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    program = tg.export(nn.Sequential(*layers).eval(), tg.ones(32, 64))
    costs = [sum(map(operations, stage.graph.graph.values())) for stage in cut_into_stages(program, 4)]
    assert len(costs) == 4
    assert max(costs) < 1.1 * min(costs)


def test_skip_connections_cross_several_stages() -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])

        def forward(self, x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
            y = x
            for layer in self.layers:
                y = layer(y).relu()
            return y + x, x

    model, x = Skipping().eval(), np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    engine = tg.engine(model, x, max_batch=4)
    first, second = engine.map([x, x[:2]], "pipeline", 3)
    for found, rows in ((first, 4), (second, 2)):
        for have, wanted in zip(found, engine.inferencer()(x[:rows]), strict=True):
            np.testing.assert_allclose(have, wanted, 1e-5)
