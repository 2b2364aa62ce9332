"""Engines on GPUs: inferencers on streams of their own."""

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, expected, network
from tilegrad.backend.cuda import contexts
from tilegrad.engines.pooled_inferencer import PooledInferencer
from tilegrad.tree import flatten


@pytest.mark.skipif(not tg.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", NETWORKS)
def test_callers_have_streams_of_their_own(name: str) -> None:
    model, example = network(name)
    known = {n: expected(model, example(n)) for n in range(1, 5)}
    engine = tg.engine(model.to("cuda"), tuple(tg.tensor(x, device="cuda") for x in example(4)), max_batch=4)
    first, second = engine.inferencer(), engine.inferencer()
    assert isinstance(first, PooledInferencer)
    assert isinstance(second, PooledInferencer)
    assert isinstance(first._stream, contexts.CallerStream)
    assert isinstance(second._stream, contexts.CallerStream)
    assert first._stream.queue is not second._stream.queue
    for _ in range(4):
        for infer in (first, second):
            for n, wanted in known.items():
                for have, array in zip(flatten(infer(*example(n)))[0], wanted, strict=True):
                    np.testing.assert_allclose(have, array, 1e-3, 1e-4)
    calls = [example(1 + n % 4) for n in range(20)]
    for mode in ("threads", "pipeline"):
        for n, found in enumerate(engine.map(calls, mode)):
            for have, array in zip(flatten(found)[0], known[1 + n % 4], strict=True):
                np.testing.assert_allclose(have, array, 1e-3, 1e-4)
