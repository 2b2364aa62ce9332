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


@pytest.mark.parametrize("name", ["convolutions", "pair"])
def test_devices_without_contexts_run_on_their_pool(name: str) -> None:
    model, example = network(name)
    known = {n: expected(model, example(n)) for n in (1, 2, 3)}
    engine = tg.engine(model.to("reference"), tuple(tg.tensor(x, device="reference") for x in example(3)), max_batch=3)
    infer = engine.inferencer()
    for rows, wanted in known.items():
        tensors = [tg.tensor(x, device="reference") for x in example(rows)]
        for found in (infer(*example(rows)), infer(*tensors)):
            for have, known_array in zip(flatten(found)[0], wanted, strict=True):
                array = have.cpu().numpy() if isinstance(have, tg.Tensor) else have
                np.testing.assert_allclose(array, known_array, 1e-4, 1e-5)
    with pytest.raises(TilegradError, match=r"the engine is on reference, and an argument on cpu"):
        infer(*map(tg.tensor, example(2)))


def test_results_are_written_to_given_arrays() -> None:
    model, example = network("pair")
    infer = tg.engine(model, example(4), max_batch=4).inferencer()
    for rows in (4, 3, 1):
        wanted = infer(*example(rows))
        memory = np.full(2 * rows * 5 + 1, 7, np.float32)
        out = {"sum": memory[1 : 1 + rows * 5].reshape(rows, 5), "product": memory[1 + rows * 5 :].reshape(rows, 5)}
        found = infer(*example(rows), out=out)
        assert found["sum"] is out["sum"]
        assert all(np.array_equal(out[name], wanted[name]) for name in out)
        assert memory[0] == 7


def test_results_may_be_written_over_an_argument() -> None:
    model = tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.ReLU()).eval()
    infer = tg.engine(model, tg.ones(8, 4), max_batch=8).inferencer()
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    wanted = infer(x)
    infer(x, out=x)
    assert np.array_equal(x, wanted)


BAD_OUTPUTS = [
    ("shape", lambda: np.empty((3, 10), np.float32), r"'output' is to be an array of float32 \[2, 10\], not float32"),
    ("dtype", lambda: np.empty((2, 10)), "not float64"),
    ("order", lambda: np.empty((2, 10), np.float32, "F"), "not contiguous"),
    ("a tensor", lambda: tg.ones(2, 10), "not Tensor"),
    ("count", lambda: [np.empty((2, 10), np.float32)] * 2, r"1 arrays are wanted \(output\), not 2"),
    ("read-only", lambda: np.broadcast_to(np.float32(1), (2, 10)), "read-only"),
]


@pytest.mark.parametrize(("out", "message"), [row[1:] for row in BAD_OUTPUTS], ids=[row[0] for row in BAD_OUTPUTS])
def test_bad_outputs_are_refused(out: object, message: str) -> None:
    model, example = network("convolutions")
    infer = tg.engine(model, example(8), max_batch=8).inferencer()
    with pytest.raises(TilegradError, match=message):
        infer(*example(2), out=out())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "bool"])
def test_element_types(dtype: str) -> None:
    class Arithmetic(tg.nn.Module):
        def forward(self, x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
            return (x, x == x) if x.dtype is tg.bool_ else (x * 2 + x, x > 0)

    x = tg.tensor(np.random.default_rng(1).integers(-3, 3, (4, 5))).to(getattr(tg, dtype.replace("bool", "bool_")))
    infer = tg.engine(Arithmetic(), x, max_batch=4).inferencer()
    for rows in (4, 3, 1):
        wanted = Arithmetic()(x[:rows])
        for given in (x[:rows], x[:rows].numpy()):
            for have, known in zip(infer(given), wanted, strict=True):
                assert np.array_equal(have.numpy() if isinstance(have, tg.Tensor) else have, known.numpy())


def test_arguments_of_other_orders_and_kinds_are_copied() -> None:
    model, example = network("convolutions")
    infer = tg.engine(model, example(8), max_batch=8).inferencer()
    (x,) = example(3)
    wanted = infer(x)
    swapped = np.asfortranarray(x)
    kinds = [swapped, x[:, :, ::1], x.astype(">f4"), np.concatenate([x, x], 3)[..., :8], tg.tensor(swapped)]
    kinds.append(tg.tensor(x.transpose(0, 1, 3, 2).copy()).transpose(2, 3))
    for given in kinds:
        found = infer(given)
        assert np.array_equal(found.numpy() if isinstance(found, tg.Tensor) else found, wanted)
