"""Memory of engines and inferencers: weights are shared, activations are one's own, and calls allocate nothing."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, network
from tilegrad import nn
from tilegrad.runtime.device import device

CPU = device("cpu")


@pytest.fixture(autouse=True)
def settled() -> Iterator[None]:
    """Collect what other tests have left, and nothing while memory is measured."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def wide() -> nn.Module:
    """A network whose weights and activations are large enough to be measured."""
    tg.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 256, 100)).eval()


def test_memory_is_that_of_the_weights_and_of_each_inferencer() -> None:
    model, x = wide(), np.ones((8, 3, 16, 16), np.float32)
    engine = tg.engine(model, x, max_batch=8)
    before = CPU.statistics.live
    inferencers = [engine.inferencer() for _ in range(5)]
    for infer in inferencers:
        infer(x), infer(x[:5]), infer(x[:1])
    added = CPU.statistics.live - before
    assert added == pytest.approx(5 * engine.memory.activations, rel=0.05)
    assert engine.memory.weights >= sum(p.nbytes for p in model.parameters())
    del inferencers, infer
    assert CPU.statistics.live == before


@pytest.mark.parametrize("name", NETWORKS)
def test_calls_allocate_nothing_after_the_first(name: str) -> None:
    model, example = network(name)
    infer = tg.engine(model, example(8), max_batch=8).inferencer()
    batches = [example(n) for n in range(1, 9)]
    for args in batches:
        infer(*args)
    before = CPU.statistics
    for args in batches * 3:
        infer(*args)
    assert CPU.statistics == before


def test_inferencers_share_one_set_of_weights() -> None:
    engine = tg.engine(wide(), np.ones((8, 3, 16, 16), np.float32), max_batch=8, batches=(2, 4))
    alone = tg.engine(wide(), np.ones((8, 3, 16, 16), np.float32), max_batch=1)
    pointers = {tuple(id(b) for b in plan.shared[: len(engine.weights.buffers)]) for plan in engine.plans}
    assert len(pointers) == 1
    assert len(engine.plans) == 4
    assert engine.memory.weights <= len(engine.plans) * alone.memory.weights  # each may have a layout of its own


def test_an_engine_keeps_the_weights_that_it_was_made_with() -> None:
    model, x = nn.Linear(6, 3).eval(), np.ones((2, 6), np.float32)
    infer = tg.engine(model, x, max_batch=2).inferencer()
    before = infer(x)
    with tg.no_grad():
        model.weight.add_(1.0)
        model.bias.zero_()
    tg.optim.SGD(model.parameters(), lr=0.1).step()
    assert np.array_equal(infer(x), before)
    assert not np.array_equal(tg.engine(model, x, max_batch=2).inferencer()(x), before)


def test_weights_on_memory_of_numpy_are_copied() -> None:
    memory, x = np.ones((3, 6), np.float32), np.ones((2, 6), np.float32)
    model = nn.Linear(6, 3, bias=False)
    model.weight = nn.Parameter(tg.from_numpy(memory))
    infer = tg.engine(model.eval(), x, max_batch=2).inferencer()
    memory[:] = 7
    assert infer(x).tolist() == [[6.0] * 3] * 2
