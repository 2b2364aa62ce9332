"""Writes through `unfold`: windows that have no element in common are as good as any view."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import InPlaceError


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize(("extent", "width", "step"), [(6, 2, 2), (7, 2, 3), (5, 5, 1), (3, 1, 1), (4, 4, 4)])
def test_windows_that_are_apart_are_written_to(extent: int, width: int, step: int, dtype: str) -> None:
    start = (np.arange(extent * 3).reshape(extent, 3) % 3).astype(dtype)
    for first in (0, slice(None), -1):
        want, x = start.copy(), tg.tensor(start.copy())
        windows = np.lib.stride_tricks.sliding_window_view(want, width, 0, writeable=True)[::step]
        windows[..., first] = windows[..., ::-1][..., first].copy()
        written = x.unfold(0, width, step)
        written[..., first] = written.flip(-1)[..., first].clone()
        assert x.tolist() == want.tolist()


def test_windows_that_overlap_are_not_written_to() -> None:
    with pytest.raises(InPlaceError, match="may be one element of the base"):
        tg.zeros(6).unfold(0, 2, 1).fill_(1)


def test_gradients_through_windows_that_were_written_to() -> None:
    x = tg.arange(6.0).requires_grad_()
    y = x * 2
    y.unfold(0, 2, 2)[:, 1].mul_(x[:3])
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 6.0, 12.0, 2.0, 2.0, 4.0]
