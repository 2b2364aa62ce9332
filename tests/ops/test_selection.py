"""Choosing by masks: places, selected elements, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.registry import bools, floats
from tests.ops.test_indexing import computed, value
from tilegrad.errors import DTypeError, ShapeError
from tilegrad.ir.graph import Value
from tilegrad.ops.selection import count_true, masked_fill, masked_select, nonzero, nonzero_along, one_hot


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 0, 3), (600, 3)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    x = bools(*shape)
    count = int(computed(count_true, x))
    found = computed(lambda v: nonzero(v, count), x)
    np.testing.assert_array_equal(found, np.argwhere(x))


def test_a_mask_broadcasts() -> None:
    x, mask = floats(3, 4), bools(4)
    found = computed(lambda v, m: masked_select(v, m, 3 * int(mask.sum())), x, mask)
    np.testing.assert_array_equal(found, x[np.broadcast_to(mask, x.shape)])


def test_places_along_each_axis() -> None:
    x = bools(3, 4)
    count = int(x.sum())
    for axis, wanted in enumerate(np.nonzero(x)):
        found = computed(lambda v, axis=axis: nonzero_along(v, count)[axis], x)
        np.testing.assert_array_equal(found, wanted)
    assert computed(lambda v: nonzero(v, 2), np.array([0.0, 2.0, np.nan])).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: masked_fill(value(4), value(4), 1.0), DTypeError, "mask != 0"),
        (lambda: masked_fill(value(4), value(4, dtype=np.bool_), value(4)), ShapeError, "use where"),
        (lambda: one_hot(value(4), 3), DTypeError, "not integers"),
    ],
)
def test_what_is_refused(wrong: Callable[[], Value], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
