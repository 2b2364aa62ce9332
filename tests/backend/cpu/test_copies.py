"""Parts of memory are copied to slices of a result, or left to kernels on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad.backend.cpu.copies import MAX_CONTIGUOUS_BYTES, MAX_STRIDED_BYTES, copies
from tilegrad.first_tier.strided_sources import StridedSource


class Memory:
    """An array as a buffer."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.address = array, array.ctypes.data


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_parts_are_copied(item: int) -> None:
    rng = np.random.default_rng(item)
    given = rng.integers(0, 100, (6, 7)).astype(f"i{item}")
    out = np.full((5, 7), -1, f"i{item}")
    first = StridedSource(0, (2, 7), (7, 1), 14, item)  # rows
    second = StridedSource(0, (3, 7), (0, 1), 7, item)  # a row, repeated
    copy: Any = copies([(first, 0), (second, 14)], (7, 1))
    copy([Memory(given)], out.ctypes.data)
    np.testing.assert_array_equal(out, np.concatenate([given[2:4], given[[1, 1, 1]]]))
    column = StridedSource(0, (6,), (7,), 3, item)
    copy = copies([(column, 2)], (1,))
    copy([Memory(given)], out.ctypes.data)
    np.testing.assert_array_equal(out.reshape(-1)[2:8], given[:, 3])


def test_large_parts_are_left_to_all_threads() -> None:
    rows = MAX_STRIDED_BYTES // 4
    assert copies([(StridedSource(0, (rows,), (2,)), 0)], (1,)) is not None
    assert copies([(StridedSource(0, (rows + 1,), (2,)), 0)], (1,)) is None
    assert copies([(StridedSource(0, (MAX_CONTIGUOUS_BYTES // 4 + 1,), (1,)), 0)], (1,)) is None


def test_nothing_is_copied_of_empty_parts() -> None:
    copy: Any = copies([(StridedSource(0, (0, 3), (3, 1)), 0)], (3, 1))
    copy([], 0)
