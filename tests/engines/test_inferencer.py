"""Calls of engines: batches, kinds of arguments and results, threads, bad input."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import expected, network
from tilegrad.errors import TilegradError
from tilegrad.tree import flatten


def test_results_are_of_the_kind_of_the_arguments_and_owned_by_the_caller() -> None:
    model, example = network("convolutions")
    infer = tg.engine(model, example(4), max_batch=4).inferencer()
    (x,) = example(3)
    first = infer(x)
    before = first.copy()
    assert (type(first), type(infer(tg.tensor(x)))) == (np.ndarray, tg.Tensor)
    infer(x + 1)
    assert np.array_equal(first, before)
    first[:] = 0  # nobody else's memory
    assert np.array_equal(infer(x), before)


def test_many_threads_compute_the_same() -> None:
    model, example = network("pair")
    engine = tg.engine(model, example(8), max_batch=8)
    wanted = {n: expected(model, example(n)) for n in range(1, 9)}

    def work(seed: int) -> None:
        infer = engine.inferencer()
        for n in np.random.default_rng(seed).integers(1, 9, 20):
            for have, known in zip(flatten(infer(*example(n)))[0], wanted[n], strict=True):
                np.testing.assert_allclose(have, known, 1e-5, 1e-6)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


BAD = [
    ("batch", lambda x: (np.zeros((9, 1, 8, 8), np.float32),), "a batch of 9 examples is larger than max_batch=8"),
    ("shape", lambda x: (x[:, :, :7],), r"'input' has shape \(2, 1, 7, 8\); the network takes \(n, 1, 8, 8\)"),
    ("rank", lambda x: (x[0],), r"has shape \(1, 8, 8\)"),
    ("dtype", lambda x: (x.astype(np.float64),), "has float64 elements; the network takes float32"),
    ("too many", lambda x: (x, x), "takes 1 arguments"),
    ("missing", lambda x: (), "the argument 'input' is missing"),
    ("a number", lambda x: (3,), "is to be a tensor, not int"),
    ("a list", lambda x: ([x],), r"is built as \[tensor\], not tensor"),
    ("empty", lambda x: (x[:0],), r"has shape \(0, 1, 8, 8\)"),
]


@pytest.mark.parametrize(("given", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_calls_are_refused(given: object, message: str) -> None:
    model, example = network("convolutions")
    infer = tg.engine(model, example(8), max_batch=8).inferencer()
    (x,) = example(2)
    with pytest.raises(TilegradError, match=message):
        infer(*given(x))
    with pytest.raises(TilegradError, match="'image' is unknown: the network takes input"):
        infer(image=x)
