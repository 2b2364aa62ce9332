"""Places where formulas have corners, poles or overflows: values and gradients are PyTorch's there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

torch = pytorch()

POINTS = [0.0, 1.0, -1.0, 3.0, -3.0, 20.0, -20.0, 50.0, -50.0, 200.0]
YES = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]

Case = Callable[..., Any]
CASES: dict[str, tuple[Case, list[Any]]] = {
    "logits of 0": (lambda f, t, x: f.binary_cross_entropy_with_logits(x, t(YES), reduction="none"), POINTS),
    "weighed logits": (lambda f, t, x: f.binary_cross_entropy_with_logits(x, t(YES), pos_weight=t([3.0])), POINTS),
    "logsigmoid": (lambda f, t, x: f.logsigmoid(x), POINTS),
    "soft margins": (lambda f, t, x: f.soft_margin_loss(x, t(YES[:9]) * 2 - 1), POINTS[:9]),
    "labels": (lambda f, t, x: f.multilabel_soft_margin_loss(x[None], t(YES)[None]), POINTS),
    "hardswish": (lambda f, t, x: f.hardswish(x), POINTS),
    "certainties that are right": (lambda f, t, x: f.binary_cross_entropy(x, t([0.0, 1.0, 1.0])), [0.0, 1.0, 0.5]),
    "certainties that are wrong": (lambda f, t, x: f.binary_cross_entropy(x, t([1.0, 0.0, 1.0])), [0.0, 1.0, 1e-8]),
    "certain sigmoids": (
        lambda f, t, x: f.binary_cross_entropy(x.sigmoid(), t([1.0, 0.0, 1.0])), [50.0, 50.0, -200.0]
    ),
    "margins that are met": (lambda f, t, x: f.multi_margin_loss(x, t([0, 1])), [[1.0, 1, 0], [0, 1, 2]]),
    "labels whose margins are met": (
        lambda f, t, x: f.multilabel_margin_loss(x, t([[0, -1, -1], [1, 2, -1]])), [[1.0, 1, 0], [0, 1, 2]]
    ),
    "area of everything": (lambda f, t, x: f.interpolate(x, size=1, mode="area"), [[[0.0, 1.0, 5.0]]]),
    "area of less than all": (lambda f, t, x: f.interpolate(x, scale_factor=0.5, mode="area"), [[[0.0, 1.0, 5.0]]]),
    "product of nothing": (lambda f, t, x: x[:0].prod(), [1.0, 2.0]),
    "infinities summed": (lambda f, t, x: x.nansum(), [1.0, float("nan"), float("inf")]),
}  # fmt: skip


def tried(library: Any, case: Case, numbers: list[Any], dtype: Any) -> list[Any]:
    x = library.tensor(numbers, dtype=dtype, requires_grad=True)
    y = case(library.nn.functional, library.tensor, x)
    y.sum().backward()
    return [y.tolist(), x.grad.tolist()]


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case: str) -> None:
    use, numbers = CASES[case]
    found, wanted = tried(tg, use, numbers, tg.float32), tried(torch, use, numbers, torch.float32)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["softplus", "logsigmoid", "mish", "gelu"])
def test_half_precision_does_not_overflow_on_the_way(name: str) -> None:
    """exp(12) and the third power of 41 are infinite in float16."""
    options = {"approximate": "tanh"} if name == "gelu" else {}
    numbers = [-700.0, -41.0, -12.0, 0.0, 12.0, 15.0, 19.0, 41.0, 700.0]
    found = tried(tg, lambda f, t, x: getattr(f, name)(x, **options), numbers, tg.float16)
    wanted = tried(torch, lambda f, t, x: getattr(f, name)(x, **options), numbers, torch.float16)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-4)


def test_differences_of_nothing() -> None:
    assert tg.zeros(0).diff().shape == (0,)
    assert tg.zeros(2, 0).diff(2).shape == (2, 0)


def test_bounds_at_the_end_of_int64() -> None:
    """The difference of a position and the least int64 is no int64."""
    here = tg.arange(3)
    assert here.clamp(max=1).tolist() == [0, 1, 1]
    parts = (here[:1] + 1).clamp(max=2) * 10 + (tg.arange(1) * 2).clamp(max=2)
    assert parts.tolist() == [10]
    assert (here > tg.iinfo(tg.int64).min).tolist() == [True] * 3
    assert (here - 5 <= tg.iinfo(tg.int64).max).tolist() == [True] * 3


def test_a_batch_of_nothing_leaves_running_statistics_alone() -> None:
    for layer, shape in (
        (tg.nn.BatchNorm2d(3), (0, 3, 2, 2)),
        (tg.nn.InstanceNorm1d(3, track_running_stats=True), (0, 3, 4)),
    ):
        assert layer(tg.zeros(*shape)).shape == shape
        assert layer.running_mean.tolist() == [0, 0, 0]
        assert layer.running_var.tolist() == [1, 1, 1]


def test_the_greatest_of_bags_of_nothing() -> None:
    empty = tg.zeros(0, dtype=tg.int64)
    assert tg.nn.EmbeddingBag(5, 2, mode="max")(empty, tg.tensor([0, 0])).tolist() == [[0, 0], [0, 0]]
