"""Convolutions with 3 x 3 taps by fewer products: the same numbers as before, and where it is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.ops.examples_windows import sliding
from tests.ops.registry import floats, given
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops import convolution
from tilegrad.ops.convolution import Convolve, ConvolveBack, ConvolveWeight
from tilegrad.ops.transformed import Transformed
from tilegrad.runtime.device import device
from tilegrad.runtime.grain import Grain, Products
from tilegrad.transform import winograd
from tilegrad.transform.laid import laid

GRAIN = Grain()._replace(products=Grain().products._replace(transformed=1))
CASES = {
    "same": ((8, 3, 1, 1), (8, 3, 1, 1)),
    "uneven": ((9, 3, 1, 2), (7, 3, 1, 0)),
    "small": ((3, 3), (4, 3, 1, 1)),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "GAIN", float("inf"))


def graph_of(precision: Any, name: str, groups: int, channels: int, outputs: int) -> tuple[Graph, list[np.ndarray]]:
    """A convolution and both of its gradients."""
    axes = tuple([sliding(*each) for each in CASES[name]])
    arrays = [
        floats(2, groups, channels, *[a.extent for a in axes]).astype(np.float32),
        floats(groups, outputs, channels, 3, 3, seed=1).astype(np.float32),
        floats(2, groups, outputs, *[a.count for a in axes], seed=2).astype(np.float32),
    ]
    x, w, y = map(given, arrays)
    made = (
        Convolve(x, w, axes, precision),
        convolution.convolve_back(y, w, axes, precision),
        ConvolveWeight(x, y, axes, precision),
    )
    return Graph((x, w, y), made), arrays


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("groups", "channels", "outputs"), [(1, 3, 3), (2, 5, 2)])
def test_transformed_convolutions(name: str, groups: int, channels: int, outputs: int, always: None) -> None:
    graph, arrays = graph_of("highest", name, groups, channels, outputs)
    other = laid(graph_of("high", name, groups, channels, outputs)[0], GRAIN)
    kinds = [type(v) for v in other.values()]
    assert kinds.count(Transformed) == 9
    assert not {Convolve, ConvolveBack, ConvolveWeight} & set(kinds)
    for a, b in zip(interpret(graph, arrays), interpret(other, arrays), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-5)


def test_what_is_not_transformed(always: None) -> None:
    def convolve(precision: Any = "high", stride: int = 1, taps: int = 3, dtype: Any = np.float32) -> Value:
        x, w = given(floats(1, 1, 4, 9, 9).astype(dtype)), given(floats(1, 4, 4, taps, taps).astype(dtype))
        return Convolve(x, w, (sliding(9, taps, stride, 0),) * 2, precision)

    def transformed(value: Value, least: int = 1) -> bool:
        return winograd.by_fewer_products(value, Products()._replace(transformed=least)) is not None

    assert transformed(convolve())
    assert transformed(convolve("medium"))
    assert not transformed(convolve(), least=5)
    assert not transformed(convolve("highest"))
    assert not transformed(convolve(stride=2))
    assert not transformed(convolve(taps=5))
    assert not transformed(convolve(dtype=np.float64))


def test_it_is_done_where_it_pays() -> None:
    def pays(images: int, channels: int, extent: int) -> bool:
        axes = (sliding(extent, 3, 1, 1),) * 2
        x, w = (images, 1, channels, extent, extent), (1, channels, channels, 3, 3)
        return winograd._pays(x, w, axes, Products()._replace(transformed=48))

    assert pays(8, 64, 56)
    assert pays(16, 384, 12)
    assert not pays(8, 32, 56), "too few channels"
    assert not pays(1, 256, 14), "too few tiles for so many weights"
    assert not pays(64, 256, 5), "results that nobody asked for"


@pytest.mark.skipif(device("cpu").products["high"] != "float32", reason="the CPU has something faster for `high`")
def test_errors_are_what_the_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU: the root mean square of errors, and the greatest, in units of that of the results."""
    monkeypatch.setitem(device("cpu").__dict__, "grain", GRAIN)
    random = np.random.default_rng(0)
    x = np.maximum(random.standard_normal((4, 128, 28, 28)), 0).astype(np.float32)
    w = (random.standard_normal((128, 128, 3, 3)) / np.sqrt(9 * 128)).astype(np.float32)
    exact = tg.nn.functional.conv2d(*[tg.tensor(a.astype(np.float64)) for a in (x, w)], padding=1).numpy()
    tg.set_float32_matmul_precision("high")
    try:
        found = tg.nn.functional.conv2d(tg.tensor(x), tg.tensor(w), padding=1)
        assert found.dtype is float32
        error = np.abs(found.numpy() - exact) / np.sqrt(np.mean(exact**2))
    finally:
        tg.set_float32_matmul_precision("highest")
    assert 5e-7 < np.sqrt(np.mean(error**2)) < 3e-6
    assert error.max() < 5e-5
