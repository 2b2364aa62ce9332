"""Every op, and its gradient, runs in the first tier and means the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.registry import Example
from tests.ops.test_examples import DIFFERENTIABLE, EXAMPLES, backward
from tilegrad import config
from tilegrad.backend.reference.graph import interpret
from tilegrad.first_tier.decision import plan_for
from tilegrad.ir.dtype import DType, bfloat16, float16, float32
from tilegrad.ir.graph import Graph
from tilegrad.lazy.realize import structure
from tilegrad.runtime.device import device

TOLERANCES: dict[DType, float] = {float32: 2e-6, float16: 2e-3, bfloat16: 2e-2}


def in_first_tier(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a graph on arrays."""
    place = device("cpu")
    for x, array in zip(graph.inputs, arrays, strict=True):
        x.hold(place.from_host(np.ascontiguousarray(array)))
    key, order, leaves, numbers = structure(list(dict.fromkeys(graph.outputs)))
    with config.changed(tier="interpreted"):
        plan = plan_for(key, order, place)
    assert plan is not None
    given = [v.buffer for v in leaves] + [place.from_host(np.asarray(v.value, v.dtype.numpy)) for v in numbers]
    found = dict(zip(dict.fromkeys(graph.outputs), plan.run(given), strict=True))
    shapes: Any = {v: v.shape for v in found}
    return [place.to_host(found[v], v.dtype, shapes[v]) for v in graph.outputs]


def check(graph: Graph, arrays: Sequence[np.ndarray], tolerance: float) -> None:
    with np.errstate(all="ignore"):
        wanted = interpret(graph, arrays)
    for v, got, want in zip(graph.outputs, in_first_tier(graph, arrays), wanted, strict=True):
        assert got.shape == want.shape
        if not v.dtype.is_float:
            np.testing.assert_array_equal(got, want)
            continue
        near = max([tolerance, *[TOLERANCES.get(x.dtype, 0.0) for x in graph.values()]])
        size = np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=1.0).astype(np.float64)
        wide = [x.astype(np.float64) for x in (got, want)]
        np.testing.assert_allclose(*wide, rtol=near, atol=near * size)


@pytest.mark.parametrize("e", EXAMPLES, ids=lambda e: e.name)
def test_values(e: Example) -> None:
    graph = e.graph()
    if all(isinstance(n, int) for v in graph.values() for n in v.shape):
        check(graph, e.arrays, e.tolerance)


@pytest.mark.parametrize("e", DIFFERENTIABLE, ids=lambda e: e.name)
def test_gradients(e: Example) -> None:
    graph = backward(e.graph())
    upstreams = [np.random.default_rng(2).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(e.arrays) :]]
    check(graph, (*e.arrays, *upstreams), max(e.tolerance, 1e-8))
