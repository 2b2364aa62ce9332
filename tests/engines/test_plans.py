"""Plans: how batches are cut, when rows are independent, and which plans are kept."""

import itertools
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, expected, network
from tilegrad import nn
from tilegrad.engines.plans import batch_parts


@pytest.mark.parametrize("batches", [(1,), (1, 8), (1, 4, 16), (3, 5), (2, 3, 7, 16)])
def test_parts_cover_a_batch(batches: tuple[int, ...]) -> None:
    for rows in range(1, 17):
        parts = batch_parts(rows, batches)
        assert [start for start, _, _ in parts] == [0, *itertools.accumulate(n for _, n, _ in parts)][:-1]
        assert sum(n for _, n, _ in parts) == rows
        assert all(0 < n <= batch and batch in batches for _, n, batch in parts)
        assert sum(batch + 1 for _, _, batch in parts) <= min(-(-rows // b) * (b + 1) for b in batches)


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_in_between_compile_nothing(name: str) -> None:
    model, example = network(name)
    engine = tg.engine(model, example(8), max_batch=8, batches=(3,))
    assert engine.batches == (1, 3, 8)
    infer = engine.inferencer()
    for rows in range(1, 9):
        found = infer(*example(rows))
        for have, wanted in zip(found.values() if isinstance(found, dict) else [found], expected(model, example(rows))):
            np.testing.assert_allclose(have, wanted, 1e-4, 1e-5)
    assert len(engine.plans) == 3


class Mixing(nn.Module):
    """Rows that read each other, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        match self.way:
            case "mean":
                return x - x.mean(0)
            case "softmax":
                return x.softmax(0)
            case "flip":
                return x.flip(0)
            case "maximum":
                return x - x.amax(0)
            case "count":
                return x / tg.ones_like(x).sum(0)
            case "place":
                return x + tg.ones_like(x).cumsum(0)
            case "sum":
                return x.sum()
            case "clip":
                most = x.abs().amax()
                return x * tg.where(most > 10, 10 / most, tg.ones(()))
        return x.cumsum(0)


@pytest.mark.parametrize("way", ["mean", "softmax", "flip", "maximum", "count", "place", "sum", "clip", "cumsum"])
def test_rows_that_depend_on_each_other_are_neither_cut_nor_padded(way: str) -> None:
    model, x = Mixing(way).eval(), np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    x[0] *= 100
    engine = tg.engine(model, x, max_batch=6)
    infer = engine.inferencer()
    for rows in (6, 5, 2, 1):
        np.testing.assert_allclose(infer(x[:rows]), expected(model, (x[:rows],))[0], 1e-5, 1e-6)
    assert engine.batches == ()


def test_shapes_that_vary_have_a_bounded_number_of_plans() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU()).eval()
    engine = tg.engine(model, shapes=[("n", 1, "h", "w")], max_batch=4, max_plans=3)
    infer = engine.inferencer()
    sizes = [(n, 1, h, w) for n in (1, 3) for h in (4, 5) for w in (4, 6)]
    for shape in sizes * 2:
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(infer(x), expected(model, (x,))[0], 1e-4, 1e-5)
    assert len(engine.plans) == 3
    assert all(plan.seconds > 0 for plan in engine.plans)


def test_a_plan_that_another_thread_evicts_is_returned() -> None:
    class Evicting(OrderedDict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return self.pop(key, default)

    engine = tg.engine(nn.Linear(2, 1).eval(), np.ones((2, 2), np.float32), max_batch=2)
    plan = engine.plans[-1]
    engine._plans = Evicting(engine._plans)
    assert engine.plan(plan.sizes) is plan
