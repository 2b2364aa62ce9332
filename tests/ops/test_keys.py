"""Keys of ops differ if their programs do: compiled programs are looked up by key."""

import math

import numpy as np

from tests.ops.registry import given
from tilegrad.ir.dtype import float32
from tilegrad.ops import broadcasting, movement


def test_numbers_are_told_apart_by_their_bits() -> None:
    zero, minus_zero, nan = (broadcasting.fill(x, (), float32).attributes for x in (0.0, -0.0, math.nan))
    assert zero != minus_zero
    assert nan == broadcasting.fill(float("nan"), (), float32).attributes
    x = given(np.zeros(3))
    assert movement.pad(x, ((1, 1),), 0.0).attributes != movement.pad(x, ((1, 1),), -0.0).attributes
