"""Tensors outside of a jitted function that become others in place, between its calls, are read as they are then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg

CHANGES: dict[str, Callable[[tg.Tensor], Any]] = {
    "t_": lambda w: w.t_(),
    "transpose_": lambda w: w.transpose_(0, 1),
    "unsqueeze_": lambda w: w.unsqueeze_(0),
    "data of another shape": lambda w: setattr(w, "data", tg.ones(w.shape[-1] + 1, 2)),
    "data of another type": lambda w: setattr(w, "data", w.half() if w.dtype is tg.float32 else w.float()),
    "data that is a view": lambda w: setattr(w, "data", tg.arange(4.0).view(2, 2).t()),
    "out": lambda w: tg.add(tg.ones(3, w.shape[0]), 1, out=w),
    "elements": lambda w: w.add_(1),
}


def read(w: tg.Tensor) -> tuple[str, Any]:
    summed = (w * 2).sum(-1)
    return str(summed.dtype), summed.tolist()


@pytest.mark.parametrize("extents", [(2, 3), (2, 2)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_tensor_that_became_another(change: str, extents: tuple[int, int]) -> None:
    w = tg.arange(float(extents[0] * extents[1])).view(extents).clone()
    jitted = tg.jit(lambda: (w * 2).sum(-1))
    for _ in range(2):  # the second call settles what is looked at
        jitted()
    for other in (change, "elements", change):
        if other == "t_" and w.dim() > 2:
            break
        CHANGES[other](w)
        for _ in range(2):
            found = jitted()
            assert (str(found.dtype), found.tolist()) == read(w)


def test_a_leaf_made_of_a_view_is_another_tensor() -> None:
    x = tg.arange(4.0)
    w = x[:2]
    jitted = tg.jit(lambda: w.sum())
    assert jitted().item() == 1
    w.requires_grad_()
    x.add_(1)
    assert jitted().item() == w.sum().item()
    assert jitted().requires_grad


def test_layers_in_another_precision() -> None:
    layer = tg.nn.Linear(2, 2)
    jitted = tg.jit(lambda: layer.weight.sum())
    jitted()
    for change in (layer.double, layer.half, layer.float):
        change()
        assert jitted().dtype is layer.weight.dtype
