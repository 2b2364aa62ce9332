"""Gradients of tables, sorting of many keys, and training steps that reuse the memory of gradients, on a GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.test_jit_steps import MEANWHILE, Training, compare
from tilegrad.backend.cuda.device import CudaDevice


@pytest.mark.parametrize("kind", ["drawn", "one", "few", "ends"])
@pytest.mark.parametrize("width", [32, 768, 1100])
def test_gradient_of_a_table(gpu: CudaDevice, kind: str, width: int) -> None:
    random = np.random.default_rng(width)
    rows, shape = 5003, (8, 500)
    most = {"drawn": rows, "one": 1, "few": 7, "ends": 2}[kind]
    index = random.integers(0, most, shape) * (rows - 1 if kind == "ends" else 1)
    upstream = random.integers(-8, 9, (*shape, width)).astype(np.float32)  # sums of whole numbers are exact
    table = tg.zeros(rows, width).to(gpu.name).requires_grad_()
    found = tg.nn.functional.embedding(tg.tensor(index).to(gpu.name), table)
    (given,) = tg.autograd.grad(found, [table], tg.tensor(upstream).to(gpu.name))
    wanted = np.zeros((rows, width), np.float32)
    np.add.at(wanted, index, upstream)
    np.testing.assert_array_equal(given.cpu().numpy(), wanted)


@pytest.mark.parametrize("shape", [(1,), (33,), (3, 1000), (40_000,)])
def test_orders_of_keys(gpu: CudaDevice, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)
    order = tg.argsort(tg.tensor(x).to(gpu.name), -1, stable=True)
    np.testing.assert_array_equal(order.cpu().numpy(), np.argsort(x, -1, kind="stable"))


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_steps_on_a_gpu(gpu: CudaDevice, meanwhile: Callable[[Training, list[Any]], None]) -> None:
    compare(gpu.name, meanwhile)


def test_gradient_of_long_rows(gpu: CudaDevice) -> None:
    """Rows of 8192 elements are prefetched."""
    random = np.random.default_rng(1)
    x, w, b, dy = (random.standard_normal(s).astype(np.float32) for s in ((300, 8192), (8192,), (8192,), (300, 8192)))

    def gradients(place: str) -> list[np.ndarray]:
        given = [tg.tensor(a).to(place).requires_grad_() for a in (x, w, b)]
        y = tg.nn.functional.layer_norm(given[0], (8192,), given[1], given[2])
        return [g.cpu().numpy() for g in tg.autograd.grad(y, given, tg.tensor(dy).to(place))]

    for found, wanted in zip(gradients(gpu.name), gradients("cpu"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


LONG = {
    "cumsum": (lambda l, x, i: l.cumsum(x.astype(np.int64) if l is np else x.long(), 0), 1_000_003),
    "argsort": (lambda l, x, i: np.argsort(x, kind="stable") if l is np else x.argsort(), 300_001),
    "sort of 64 bits": (lambda l, x, i: np.sort(i) if l is np else i.sort().values, 200_003),
    "least": (lambda l, x, i: np.sort(x)[:7] if l is np else x.topk(7, largest=False).values, 1_000_003),
    "unique": (lambda l, x, i: l.unique(i), 300_001),
    "counts": (lambda l, x, i: l.bincount(i % 1000), 1_000_003),
    "counts of many": (lambda l, x, i: l.bincount(i % 100_000), 1_000_003),
    "places": (lambda l, x, i: l.searchsorted(np.arange(999.0, dtype=np.float32), x) if l is np
               else tg.searchsorted(tg.arange(999.0, device="cuda"), x), 1_000_003),
}  # fmt: skip
"""A reduction over all instances, with numpy and with tensors."""


@pytest.mark.parametrize("name", LONG)
def test_one_long_row(name: str) -> None:
    function, length = LONG[name]
    random = np.random.default_rng(length)
    x, i = random.integers(-500, 1500, length).astype(np.float32), random.integers(0, 1 << 40, length)
    found = function(tg, tg.tensor(x, device="cuda"), tg.tensor(i, device="cuda"))
    np.testing.assert_array_equal(found.cpu().numpy(), function(np, x, i))


@pytest.mark.parametrize("fn", ["sum", "prod", "amax", "amin", "put"])
@pytest.mark.parametrize("rows", [3, 100_003])
def test_wide_scatter(fn: str, rows: int) -> None:
    """Integers, whose sums are exact in any order; two runs are equal."""
    random = np.random.default_rng(rows)
    index, source = random.integers(0, rows, 300_001), random.integers(1, 9, 300_001).astype(np.float32)
    if fn == "prod":
        source = np.sign(source - 4.5)
    wanted = np.ones(rows, np.float32)
    at = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
    if fn == "put":
        wanted[index] = source
    else:
        at[fn].at(wanted, index, source)
    base, i, x = (tg.tensor(a, device="cuda") for a in (np.ones(rows, np.float32), index, source))
    for _ in range(2):
        found = base.scatter(0, i, x) if fn == "put" else base.scatter_reduce(0, i, x, fn)
        np.testing.assert_array_equal(found.cpu().numpy(), wanted)
