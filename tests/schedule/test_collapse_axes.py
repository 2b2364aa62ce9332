"""Axes at even distances become one, and only those."""

from __future__ import annotations

import random
from itertools import pairwise, product

import numpy as np
import pytest

from tests.ops.examples_windows import sliding
from tests.schedule.test_lowering import check
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.scalar import Expr, Index, size
from tilegrad.ops.convolution import Convolve
from tilegrad.schedule.collapse_axes import _constant_strides


def test_axes_are_one_where_each_begins_beyond_the_one_before() -> None:
    draw = random.Random(0)
    outcomes = set()
    for _ in range(500):
        role = [Index(f"i{n}", draw.choice((2, 3, 4))) for n in range(draw.choice((2, 3)))]
        steps = {i: draw.choice((1, 2, 3, 4, 6, 8, 12, 16, 24)) for i in role}
        offset: Expr = size(draw.choice((0, 5))) + Index("other", 7)
        for i, step in steps.items():
            offset = offset + i * size(step)
        places = [sum(n * s for n, s in zip(at, steps.values(), strict=True)) for at in product(*map(_range, role))]
        even = all(b % a == 0 for a, b in pairwise(sorted(steps.values())))
        expected = even and len(set(places)) == len(places)
        assert _constant_strides(role, offset) == (steps if expected else None), offset
        outcomes.add((len(role), expected))
    assert len(outcomes) == 4


def test_axes_that_are_not_even_stay() -> None:
    i, j = Index("i", 4), Index("j", 4)
    for offset in (i * size(8), i * size(8) + j // size(2), i * size(8) - j, i * j, i * size(8) + j * Index("k", 3)):
        assert _constant_strides((i, j), offset) is None, offset
    assert _constant_strides((i, j), i * size(8) + j) == {i: 8, j: 1}


@pytest.mark.parametrize("sides", [(6, 6), (5, 7), (4, 4, 4)], ids=str)
def test_products_over_axes_with_gaps_are_the_same(sides: tuple[int, ...]) -> None:
    axes = tuple([sliding(side, 3, 1, 1) for side in sides])
    x = Input(TensorType(float32, (3, 1, 16, *sides)), "x")
    w = Input(TensorType(float32, (1, 16, 16, *(3 for _ in sides))), "w")
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, v.shape).astype(np.float32) for v in (x, w)]
    check(Graph((x, w), (Convolve(x, w, axes),)), given, gpu_model(132))


def _range(index: Index) -> range:
    assert isinstance(index.extent, int)
    return range(index.extent)
