"""Winograd convolutions: the same numbers as direct ones, and the choice between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.ops.examples_windows import sliding
from tests.ops.registry import floats, given
from tilegrad.backend.cpu.costs import MATRIX_UNIT
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops import convolution
from tilegrad.ops.convolution import Convolve, ConvolveBack, ConvolveWeight
from tilegrad.ops.movement import Permute
from tilegrad.ops.odd_tiles import RepairedTiles
from tilegrad.ops.winograd_tiles import TransformedTiles
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import MatmulModel, TargetModel
from tilegrad.transform import winograd


def target(least: int, unit: MatmulModel | None = None) -> TargetModel:
    """A CPU that uses Winograd tiles from a number of channels on."""
    return TargetModel(matmul=MatmulModel(winograd_min_channels=least), matrix_unit=unit)


TARGET = target(1)
CASES = {
    "same": ((8, 3, 1, 1), (8, 3, 1, 1)),
    "uneven": ((9, 3, 1, 2), (7, 3, 1, 0)),
    "small": ((3, 3), (4, 3, 1, 1)),
    "wide": ((7, 5, 1, 2), (8, 5, 1, 1)),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "MAX_TIME_RATIO", float("inf"))


def graph_of(precision: Any, name: str, groups: int, channels: int, outputs: int) -> tuple[Graph, list[np.ndarray]]:
    """A convolution and both of its gradients."""
    axes = tuple([sliding(*each) for each in CASES[name]])
    arrays = [
        floats(2, groups, channels, *[a.extent for a in axes]).astype(np.float32),
        floats(groups, outputs, channels, axes[0].taps, axes[0].taps, seed=1).astype(np.float32),
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
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_transformed_convolutions(
    name: str, groups: int, channels: int, outputs: int, precision: str, always: None
) -> None:
    graph, arrays = graph_of(precision, name, groups, channels, outputs)
    other = winograd.winograd(graph, TARGET)
    kinds = [type(v) for v in other.values()]
    exact = precision == "highest"
    assert (kinds.count(TransformedTiles), kinds.count(RepairedTiles)) == ((4, 2) if exact else (9, 0))
    assert {Convolve, ConvolveBack, ConvolveWeight} & set(kinds) == ({ConvolveWeight} if exact else set())
    # at `high` products of tiles are made of bfloat16 parts, whose error tiles enlarge: up to 1.4e-3 here
    allowed = 2e-3 if not exact else 3e-4 if name == "wide" else 1e-4
    for a, b in zip(interpret(graph, arrays), interpret(other, arrays), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=allowed)


def _odd(x: np.ndarray, w: np.ndarray, kind: str) -> None:
    match kind:
        case "infinity":
            x[1, 0, 3, 5, 5], x[0, 0, 0, 0, 0] = np.inf, 3e38
        case "nan":
            x[1, 0, 3, 5, 5], x[0, 0, 2, 0, 0] = np.nan, -np.inf
        case "one of 10 million":
            x[0, 0, :, 4, 4] *= 1e7
        case "weights":
            w[0, 2, 1, 1, 1] = np.inf
        case "large":
            x *= 1e30
        case "denormal":
            x *= 1e-38
        case "zeros":
            x[:, :, :, :4] = 0


@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("kind", ["infinity", "nan", "one of 10 million", "weights", "large", "denormal", "zeros"])
def test_odd_numbers_at_highest(kind: str, taps: int, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, infinities and NaN are where float32 has them, and do not spread to neighbours."""
    x, w = floats(2, 1, 8, 10, 9).astype(np.float32), floats(1, 8, 8, taps, taps, seed=1).astype(np.float32)
    _odd(x, w, kind)
    axes = (sliding(10, taps, 1, 1), sliding(9, taps, 1, 1))
    inputs = given(x), given(w)
    graph = Graph(inputs, (Convolve(*inputs, axes),))
    assert RepairedTiles in [type(v) for v in winograd.winograd(graph, TARGET).values()]
    monkeypatch.setitem(device("cpu").__dict__, "target", TARGET)
    found = tg.nn.functional.conv2d(tg.tensor(x[:, 0]), tg.tensor(w[0]), padding=1).numpy()[:, None]
    check_as_float32(found, graph, [x, w])


@pytest.mark.parametrize("kind", ["infinity", "one of 10 million"])
def test_odd_numbers_on_the_way_back(kind: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for gradients; weights are read in place, transposed."""
    y, w = floats(2, 1, 8, 10, 9).astype(np.float32), floats(1, 8, 6, 3, 3, seed=1).astype(np.float32)
    _odd(y, w, kind)
    inputs = given(y), given(w)
    graph = Graph(inputs, (convolution.convolve_back(*inputs, (sliding(10, 3, 1, 1), sliding(9, 3, 1, 1))),))
    assert not any(
        isinstance(v, Permute) and set(v.inputs) & set(inputs[1:]) for v in winograd.winograd(graph, TARGET).values()
    )
    monkeypatch.setitem(device("cpu").__dict__, "target", TARGET)
    x = tg.zeros(2, 6, 10, 9)
    _, back = tg.vjp(lambda x: tg.nn.functional.conv2d(x, tg.tensor(w[0]), padding=1), x)
    check_as_float32(back(tg.tensor(y[:, 0]))[0].numpy()[:, None], graph, [y, w])


def check_as_float32(found: np.ndarray, graph: Graph, arrays: list[np.ndarray]) -> None:
    """Results of a graph are what float32 gives, to the sum of magnitudes that each is made of."""
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) for a in arrays]
        (exact,), (most,) = (interpret(graph, list(given)) for given in (wide, [abs(a) for a in wide]))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(found[~finite], exact[~finite].astype(np.float32))
    assert (abs(found[finite] - exact[finite]) <= 2e-6 * most[finite] + 1e-44).all()


def test_what_is_not_transformed(always: None) -> None:
    def convolve(precision: Any = "highest", stride: int = 1, taps: int = 3, dtype: Any = np.float32) -> Value:
        x, w = given(floats(1, 1, 4, 9, 9).astype(dtype)), given(floats(1, 4, 4, taps, taps).astype(dtype))
        return Convolve(x, w, (sliding(9, taps, stride, 0),) * 2, precision)

    def transformed(value: Value, least: int = 1, unit: MatmulModel | None = None) -> bool:
        return winograd.as_winograd(value, target(least, unit)) is not None

    assert transformed(convolve())
    assert transformed(convolve("medium"))
    assert not transformed(convolve("medium"), unit=MATRIX_UNIT)
    assert not transformed(convolve(), least=5)
    assert transformed(convolve(taps=5))
    assert not transformed(convolve(stride=2))
    assert not transformed(convolve(taps=4))
    assert not transformed(convolve(dtype=np.float64))


def test_it_is_done_where_it_pays() -> None:
    def pays(images: int, channels: int, extent: int, taps: int = 3, precision: Any = "highest", **unit: Any) -> bool:
        axes = (sliding(extent, taps, 1, taps // 2),) * 2
        x, w = (images, 1, channels, extent, extent), (1, channels, channels, taps, taps)
        return winograd._pays(x, w, axes, precision, target(48, **unit))

    assert pays(8, 64, 56)
    assert pays(16, 384, 12)
    assert not pays(8, 32, 56), "too few channels"
    assert not pays(1, 256, 14), "too few tiles for so many weights"
    assert pays(8, 96, 26, 5)
    assert not pays(64, 192, 26, 5), "too much memory"
    assert not pays(64, 256, 5), "results that nobody asked for"
    assert pays(16, 384, 12, unit=MATRIX_UNIT)
    assert pays(16, 384, 12, 3, "high", unit=MATRIX_UNIT)
    assert pays(16, 96, 26, 5, unit=MATRIX_UNIT)
    assert not pays(16, 96, 26, 5, "high", unit=MATRIX_UNIT), "what is transformed takes as long as what is saved"


@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_errors_are_what_the_documentation_says(
    precision: Any, taps: int, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root mean square and the maximum of errors on a CPU, relative to the results."""
    monkeypatch.setitem(device("cpu").__dict__, "target", TARGET)
    random = np.random.default_rng(0)
    x = np.maximum(random.standard_normal((2, 96, 28, 28)), 0).astype(np.float32)
    w = (random.standard_normal((96, 96, taps, taps)) / np.sqrt(taps**2 * 96)).astype(np.float32)
    exact = tg.nn.functional.conv2d(*[tg.tensor(a.astype(np.float64)) for a in (x, w)], padding=1).numpy()
    tg.set_float32_matmul_precision(precision)
    try:
        found = tg.jit(tg.nn.functional.conv2d)(tg.tensor(x), tg.tensor(w), padding=1)
        assert found.dtype is float32
        error = np.abs(found.numpy() - exact) / np.sqrt(np.mean(exact**2))
    finally:
        tg.set_float32_matmul_precision("highest")
    of_parts = 30 if precision == "high" and device("cpu").products["high"] != "float32" else 1
    assert 2e-7 < np.sqrt(np.mean(error**2)) < of_parts * 1.3e-6
    assert error.max() < of_parts * 2e-5
