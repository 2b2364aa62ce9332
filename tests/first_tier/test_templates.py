"""Pointwise stages are bound to sizes and strides by writing words: nothing is translated for a shape."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.backend.cpu.interpreter import templates

LENGTHS = (1, 2, 7, 8, 63, 64, 65, 300, 2048, 2049, 5000)


def drawn_view(draw: random.Random, x: Any, rank: int) -> Any:
    """A view of a tensor or an array of some rank, of the same shape for the same draws."""
    for _ in range(3):
        axis = draw.randrange(rank)
        match draw.randrange(4):
            case 0:
                x = x.swapaxes(axis, draw.randrange(rank))
            case 1 if x.shape[axis] > 2:
                x = x[(slice(None),) * axis + (slice(1, None),)]
            case 2:
                x = x[(slice(None),) * axis + (slice(None, None, 2),)]
            case _ if x.shape[0] > 1:
                x = x[1:]
    return x


@pytest.mark.parametrize("seed", range(40))
def test_views_of_any_shape(seed: int) -> None:
    draw = random.Random(seed)
    rank = draw.randrange(1, 5)
    shape = [draw.choice(LENGTHS[: 11 - 3 * (rank - 1)] if rank < 4 else (1, 3, 9, 17)) for _ in range(rank)]
    array = np.random.default_rng(seed).normal(size=shape).astype(draw.choice(["float32", "float64"]))
    state = draw.getstate()
    want = drawn_view(draw, array, rank)
    draw.setstate(state)
    with config.changed(tier="interpreted"):
        view = drawn_view(draw, tg.tensor(array), rank)
        row = view[..., :1]
        got = (view * 2.0 - abs(row) + view[:1]).numpy()
    np.testing.assert_allclose(got, want * 2.0 - abs(want[..., :1]) + want[:1], rtol=1e-6, atol=1e-6)


def test_lengths_share_a_template() -> None:
    with config.changed(tier="interpreted"):
        known = set()
        for length in (100, 101, 4097, 7):
            x = tg.tensor(np.arange(float(length), dtype=np.float32))
            np.testing.assert_array_equal((x * 3.0 + x).numpy(), np.arange(float(length), dtype=np.float32) * 4)
            known.add(len(templates._templates))
        assert len(known) == 1


def test_long_rows_run_on_all_threads() -> None:
    array = np.arange(1 << 18, dtype=np.float32)
    with config.changed(tier="interpreted"):
        for length in (1 << 18, (1 << 18) - 77):
            x = tg.tensor(array[:length])
            np.testing.assert_array_equal((x * 0.5).numpy(), array[:length] * np.float32(0.5))
