"""Lists of Python's numbers become tensors without numpy, with the elements and dtypes that numpy gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import TilegradError
from tilegrad.functions import creation

NUMBERS: list[Any] = [
    0.5, 1, True, -0.0, math.nan, math.inf, 1e39, -(1 << 62), [1.0], [1, 2.5], [1, 2], [True, False], [True, 1],
    [True, 1.0], [1e39, -1e39], [math.nan, -0.0, 1e-50], [0.1, 1 / 3, 2**24 + 1], (1, 2), (1.5,), [], (), [[1.0, 2.0]],
    [np.float32(1)], [np.int64(3)], np.float64(1.5), np.bool_(True), range(3), [1.0] * 64, [1] * 65, [2**53 + 1, 0.5],
]  # fmt: skip


@pytest.mark.parametrize("default", [tg.float32, tg.float64, tg.float16])
@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda x: repr(x)[:20])
def test_elements_and_dtypes(numbers: Any, default: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tg.set_default_dtype(default)
    try:
        got = tg.tensor(numbers)
        monkeypatch.setattr(creation, "part", lambda module, name: None)
        want = tg.tensor(numbers)
    finally:
        tg.set_default_dtype(tg.float32)
    assert got.dtype is want.dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert np.array_equal(np.signbit(got.float().numpy()), np.signbit(want.float().numpy()))


def test_large_integers_beside_floats_are_rounded() -> None:
    assert tg.tensor([1.0, 2**70]).tolist() == [1.0, 2.0**70]


@pytest.mark.parametrize("numbers", [[1 << 63], 1 << 70, [10**400, 1.0], "1", None, [None], [1j]])
def test_what_fits_in_no_dtype_is_refused(numbers: Any) -> None:
    with pytest.raises(TilegradError):
        tg.tensor(numbers)


def test_tensors_are_like_others() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.is_leaf
    assert x.grad.tolist() == [2.0, 4.0]
    y = tg.tensor([1, 2, 3])
    y[1] = 7
    assert y.tolist() == [1, 7, 3]
    assert y._value.location is None or "test_listed_numbers" in str(tg.tensor([1.5])._value.location)
    f = tg.jit(lambda z: z + tg.tensor([1.0, 2.0]) + tg.tensor(3.0))
    assert f(tg.zeros(2)).tolist() == [4.0, 5.0]
    assert f(tg.ones(2)).tolist() == [5.0, 6.0]
