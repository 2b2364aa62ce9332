"""Views are strides on stored values, wherever numpy finds strides too."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.first_tier.strided_sources import StridedSource, view_of
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType, Value
from tilegrad.ir.position import row_major
from tilegrad.ops.broadcasting import Expand, Reshape, reshaped_strides
from tilegrad.ops.movement import Permute, Slice
from tilegrad.ops.windows import Diagonal, Unfold


def elements(x: StridedSource) -> np.ndarray:
    """The positions in memory of the elements of a strided source."""
    at = np.full(x.shape, x.offset)
    for axis, stride in enumerate(x.strides):
        at = at + (np.arange(x.shape[axis]) * stride).reshape([-1 if n == axis else 1 for n in range(len(x.shape))])
    return at


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_chains_of_views(shape: list[int], random: object) -> None:
    value: Value = Input(TensorType(float32, tuple(shape)))
    found: StridedSource | None = StridedSource(0, tuple(shape), row_major(tuple(shape)))
    array = np.arange(np.prod(shape)).reshape(shape)
    for _ in range(4):
        kind = random.randrange(4)  # type: ignore[attr-defined]
        rank = len(array.shape)
        if kind == 0:
            axes = random.sample(range(rank), rank)  # type: ignore[attr-defined]
            value, array = Permute(value, tuple(axes)), array.transpose(axes)
        elif kind == 1:
            value, array = Expand(value, (2, *array.shape)), np.broadcast_to(array, (2, *array.shape))
        elif kind == 2 and array.shape and array.shape[0] > 1:
            sizes = ((array.shape[0] + 1) // 2, *array.shape[1:])
            value = Slice(value, (array.shape[0] - 1, *[0] * (rank - 1)), (-2, *[1] * (rank - 1)), sizes)
            array = array[::-2]
        else:
            value, array = (
                Reshape(value, (*array.shape[2:], array.size // int(np.prod(array.shape[2:])))),
                array.reshape(*array.shape[2:], -1),
            )
        found = None if found is None else view_of(value, found)
        if found is None:
            return
        np.testing.assert_array_equal(elements(found), array)


def test_windows_and_diagonals() -> None:
    x = Input(TensorType(float32, (5, 6)))
    whole = StridedSource(0, (5, 6), (6, 1))
    array = np.arange(30).reshape(5, 6)
    diagonal, windows = view_of(Diagonal(x, 1, 0, 1, 5), whole), view_of(Unfold(x, 1, 3, 2, 2), whole)
    assert diagonal is not None
    assert windows is not None
    np.testing.assert_array_equal(elements(diagonal), np.diagonal(array, 1))
    np.testing.assert_array_equal(elements(windows), np.lib.stride_tricks.sliding_window_view(array, 3, 1)[:, ::2])


def test_what_has_no_strides() -> None:
    assert reshaped_strides((4, 3), (1, 4), (2, 6)) is None
