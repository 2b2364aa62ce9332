"""Pooling against PyTorch: values, indices, gradients of first and second order, over generated geometries."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, ShapeError, TilegradError
from tilegrad.nn import functional as F

torch = pytorch()


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def compare(function: str, array: np.ndarray, *arguments: Any, **geometry: Any) -> None:
    """Values (and indices) are equal, and so is the gradient of a weighted sum."""
    x, t = tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    y = getattr(F, function)(x, *arguments, **geometry)
    z = getattr(torch.nn.functional, function)(t, *arguments, **geometry)
    if isinstance(z, tuple):
        np.testing.assert_array_equal(y[1].numpy(), z[1].numpy())
        y, z = y[0], z[0]
    assert tuple(y.shape) == tuple(z.shape)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-9)
    weights = random(*z.shape, seed=9)
    (y * tg.tensor(weights)).sum().backward()
    (z * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-9)


@st.composite
def geometries(draw: Any, dilated: bool) -> tuple[int, np.ndarray, dict[str, Any]]:
    rank = draw(st.integers(1, 3))

    def each(numbers: Any) -> tuple[int, ...]:
        return tuple(draw(st.lists(numbers, min_size=rank, max_size=rank)))

    taps, stride = each(st.integers(1, 4 if rank < 3 else 2)), each(st.integers(1, 3))
    dilation = each(st.integers(1, 2)) if dilated else (1,) * rank
    padding = tuple(draw(st.integers(0, k // 2)) for k in taps)
    geometry: dict[str, Any] = {"kernel_size": taps, "stride": draw(st.sampled_from([stride, None]))}
    geometry |= {"padding": padding, "ceil_mode": draw(st.booleans())}
    if dilated:
        geometry["dilation"] = dilation
    span = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    extents = [n + m for n, m in zip(span, each(st.integers(0, 4)), strict=True)]
    # few different numbers, so that windows have equal ones
    array = np.round(random(*(2, draw(st.integers(1, 2)))[draw(st.integers(0, 1)) :], *extents) * 2)
    return rank, array, geometry


@settings(max_examples=15)
@given(geometries(dilated=True))
def test_max(case: tuple[int, np.ndarray, dict[str, Any]]) -> None:
    rank, array, geometry = case
    compare(f"max_pool{rank}d", array, **geometry, return_indices=True)


@settings(max_examples=15)
@given(geometries(dilated=False), st.booleans(), st.sampled_from([None, 3]))
def test_average(case: tuple[int, np.ndarray, dict[str, Any]], include_pad: bool, divisor: int | None) -> None:
    rank, array, geometry = case
    if rank > 1:
        geometry["divisor_override"] = divisor
    compare(f"avg_pool{rank}d", array, **geometry, count_include_pad=include_pad)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=3), st.booleans())
def test_adaptive(axes: list[tuple[int, int]], greatest: bool) -> None:
    kind, more = ("max", {"return_indices": True}) if greatest else ("avg", {})
    array = np.round(random(2, *[n for n, _ in axes]) * 2)
    compare(f"adaptive_{kind}_pool{len(axes)}d", array, tuple(n for _, n in axes), **more)


def test_global() -> None:
    compare("adaptive_avg_pool2d", random(2, 3, 5, 4), 1)
    compare("adaptive_max_pool2d", random(2, 3, 5, 4), (1, None))


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_norms_of_windows(norm: float) -> None:
    if norm == float("inf") and torch.nn.functional.lp_pool1d(torch.tensor([[2.0, 3.0]]), norm, 2) != 3:
        pytest.skip("this PyTorch has another norm")
    compare("lp_pool1d", np.abs(random(2, 3, 9)), norm, 3, stride=2)
    compare("lp_pool2d", np.abs(random(2, 3, 6, 7)), norm, (2, 3), ceil_mode=True)


def test_special_numbers() -> None:
    """A window of the smallest numbers has its first real element; NaN is the greatest."""
    array = np.full((1, 1, 4, 4), -np.inf)
    compare("max_pool2d", array, 3, 2, padding=1, return_indices=True)
    array = random(1, 1, 6)
    array[0, 0, 3] = np.nan
    found = F.max_pool1d(tg.tensor(array), 2)
    np.testing.assert_array_equal(found.numpy(), torch.nn.functional.max_pool1d(torch.tensor(array), 2).numpy())


def test_integers_and_half_precision() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 7))
    wanted = torch.nn.functional.max_pool1d(torch.tensor(x).double(), 3, padding=1)
    assert F.max_pool1d(tg.tensor(x), 3, padding=1).tolist() == wanted.long().tolist()
    half = random(1, 2, 32, 32).astype(np.float16)
    averages = F.avg_pool2d(tg.tensor(half), 32)
    assert averages.dtype is tg.float16
    np.testing.assert_allclose(averages.numpy()[..., 0, 0], half.astype(float).mean((2, 3)), rtol=2e-3, atol=1e-4)


SECOND_ORDER: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max_pool2d", (1, 2, 5, 5), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", (1, 2, 5, 5), {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    ("adaptive_avg_pool1d", (2, 2, 7), {"output_size": 3}),
    ("adaptive_max_pool1d", (2, 2, 7), {"output_size": 3}),
    ("max_pool3d", (1, 3, 3, 3), {"kernel_size": 2, "stride": 1}),
]


@pytest.mark.parametrize(("function", "shape", "geometry"), SECOND_ORDER, ids=lambda v: v if isinstance(v, str) else "")
def test_second_order(function: str, shape: tuple[int, ...], geometry: dict[str, Any]) -> None:
    x = tg.tensor(random(*shape), requires_grad=True)
    assert tg.autograd.gradgradcheck(lambda x: getattr(F, function)(x, **geometry).sin(), (x,))


def test_one_for_each_entry() -> None:
    x = tg.tensor(random(3, 2, 4, 7))
    mapped = tg.vmap(tg.grad(lambda x: F.max_pool1d(x, 3, 2, 1).square().sum()))(x)
    alone = tg.grad(lambda x: F.max_pool1d(x, 3, 2, 1).square().sum())(x.reshape(6, 4, 7))
    np.testing.assert_allclose(mapped.numpy(), alone.reshape(3, 2, 4, 7).numpy())


def test_gradients_gather() -> None:
    shown = tg.explain(tg.grad(lambda x: F.max_pool2d(x, 3, 2).square().sum()), tg.ones(1, 2, 9, 9))
    assert not any("atomic" in str(kernel) for kernel in shown.kernels)


IMAGE = tg.ones(1, 4, 5, 6)
BAD: list[tuple[Any, type[TilegradError], str]] = [
    (lambda: F.max_pool2d(IMAGE, 7), ShapeError, r"windows of 7 do not fit.*\(1, 4, 5, 6\).*smaller kernel"),
    (lambda: F.max_pool2d(IMAGE, 3, dilation=3), ShapeError, "windows of 7"),
    (lambda: F.max_pool2d(IMAGE, 2, padding=2), ArgumentError, "more than half"),
    (lambda: F.avg_pool2d(IMAGE, 3, padding=2), ArgumentError, "more than half"),
    (lambda: F.avg_pool2d(IMAGE, 3, stride=0), ArgumentError, "stride=0"),
    (lambda: F.avg_pool2d(IMAGE, 2, divisor_override=0), ArgumentError, "divisor_override=0"),
    (lambda: F.max_pool2d(tg.ones(5), 2), ShapeError, r"\(5,\) has 1 axes"),
    (lambda: F.max_pool2d([1.0], 2), ArgumentError, "tensor"),  # type: ignore[arg-type]
    (lambda: F.adaptive_avg_pool2d(IMAGE, (1, 2, 3)), ArgumentError, "2 axes"),
    (lambda: F.adaptive_avg_pool2d(IMAGE, -1), ArgumentError, "-1"),
    (lambda: F.adaptive_max_pool1d(tg.ones(1, 2, 0), 2), ShapeError, "without elements"),
    (lambda: F.avg_pool3d(tg.ones(1, 2, 4, 4, 4), 9, ceil_mode=True), ShapeError, r"\(9, 9, 9\) are larger"),
    (lambda: F.avg_pool3d(tg.ones(1, 2, 4, 4, 4), 5, padding=2), ShapeError, r"\(5, 5, 5\) are larger"),
    (lambda: tg.nn.AvgPool1d((2, 2)), ArgumentError, "has 2 numbers"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_geometry(number: int) -> None:
    use, error, message = BAD[number]
    with pytest.raises(error, match=message):
        use()


MODULES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("MaxPool1d", (3, 2, 1), {}, (2, 3, 9)),
    ("MaxPool2d", (2,), {"return_indices": True}, (2, 3, 6, 8)),
    ("MaxPool3d", (2, 1), {"dilation": 2, "ceil_mode": True}, (1, 2, 5, 4, 6)),
    ("AvgPool1d", (3,), {"padding": 1}, (2, 3, 9)),
    ("AvgPool2d", ((3, 2), 2, 1), {"count_include_pad": False}, (2, 3, 9, 8)),
    ("AvgPool3d", (2,), {"divisor_override": 3}, (1, 2, 4, 4, 4)),
    ("AdaptiveAvgPool1d", (2,), {}, (2, 3, 9)),
    ("AdaptiveAvgPool2d", ((1, None),), {}, (2, 3, 5, 6)),
    ("AdaptiveAvgPool3d", (2,), {}, (2, 3, 3, 4, 5)),
    ("AdaptiveMaxPool1d", (4,), {}, (2, 3, 9)),
    ("AdaptiveMaxPool2d", (3,), {"return_indices": True}, (2, 3, 5, 7)),
    ("AdaptiveMaxPool3d", ((1, 2, 3),), {}, (1, 3, 3, 4, 5)),
    ("LPPool1d", (2, 3), {}, (2, 3, 9)),
    ("LPPool2d", (2.0, (2, 3)), {"stride": 1}, (2, 3, 5, 6)),
    ("LPPool3d", (2, 2), {}, (1, 2, 4, 4, 4)),
]


@pytest.mark.parametrize(("name", "arguments", "more", "shape"), MODULES, ids=lambda v: v if isinstance(v, str) else "")
def test_module(name: str, arguments: tuple[Any, ...], more: dict[str, Any], shape: tuple[int, ...]) -> None:
    ours, theirs = getattr(tg.nn, name)(*arguments, **more), getattr(torch.nn, name)(*arguments, **more)
    assert repr(ours) == repr(theirs)
    x = np.abs(random(*shape)).astype(np.float32)
    made, wanted = ours(tg.tensor(x)), theirs(torch.tensor(x))
    for y, z in zip(made, wanted, strict=True) if isinstance(wanted, tuple) else [(made, wanted)]:
        np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "geometry"), [
    ((1, 2, 3, 4), {"kernel_size": (2, 3), "stride": (3, 2), "dilation": (1, 2)}),
    ((1, 2, 1), {"kernel_size": 3, "stride": 4, "padding": 0}),
], ids=["dilated", "one"])  # fmt: skip
def test_rounded_up_a_window_may_be_larger_than_the_input(shape: tuple[int, ...], geometry: dict[str, Any]) -> None:
    rank = len(shape) - 2
    compare(f"max_pool{rank}d", random(*shape), ceil_mode=True, **geometry)
    if "dilation" not in geometry:
        compare(f"avg_pool{rank}d", random(*shape), ceil_mode=True, **geometry)
