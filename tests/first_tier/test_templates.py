"""Pointwise stages and reductions are bound to sizes and strides by writing words: no shape is translated."""

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


REDUCED: dict[str, tuple[Any, Any]] = {
    "sum": (lambda x, axes: x.sum(axes), lambda x, axes: x.sum(axes)),
    "mean of squares": (lambda x, axes: (x * x - 1.0).mean(axes), lambda x, axes: (x * x - 1.0).mean(axes)),
    "max": (lambda x, axes: x.amax(axes), lambda x, axes: x.max(axes)),
    "min kept": (lambda x, axes: x.amin(axes, keepdim=True), lambda x, axes: x.min(axes, keepdims=True)),
    "centred": (lambda x, axes: (x - x[..., :1]).sum(axes), lambda x, axes: (x - x[..., :1]).sum(axes)),
    "largest": (lambda x, axes: (-x).argmax(axes[-1]), lambda x, axes: (-x).argmax(axes[-1])),
    "any": (lambda x, axes: (x > 1.5).any(axes[0]), lambda x, axes: (x > 1.5).any(axes[0])),
    "count": (lambda x, axes: (x > 0.0).sum(axes), lambda x, axes: (x > 0.0).sum(axes)),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("seed", range(15))
def test_reductions_of_views_of_any_shape(seed: int, name: str) -> None:
    draw = random.Random(seed * 7 + len(name))
    rank = draw.randrange(1, 5)
    shape = [draw.choice(LENGTHS[: 11 - 3 * (rank - 1)] if rank < 4 else (1, 3, 9, 17)) for _ in range(rank)]
    array = np.random.default_rng(seed).normal(size=shape).astype(draw.choice(["float32", "float64"]))
    state = draw.getstate()
    viewed = drawn_view(draw, array, rank)
    draw.setstate(state)
    axes = tuple(sorted(draw.sample(range(rank), draw.randrange(1, rank + 1))))
    ours, numpys = REDUCED[name]
    with config.changed(tier="interpreted"):
        got = ours(drawn_view(draw_from(state), tg.tensor(array), rank), axes).numpy()
    want = numpys(viewed.astype(np.float64) if name != "largest" else viewed, axes)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def draw_from(state: Any) -> random.Random:
    """A source of random numbers in a state."""
    draw = random.Random()
    draw.setstate(state)
    return draw


def test_lengths_share_a_template_of_reductions() -> None:
    with config.changed(tier="interpreted"):
        known = set()
        for rows, columns in ((40, 100), (31, 120), (50, 64)):
            array = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
            np.testing.assert_allclose(
                (tg.tensor(array) * 2.0).sum(1).numpy(), array.sum(1) * 2.0, rtol=1e-4, atol=1e-4
            )
            np.testing.assert_allclose(
                (tg.tensor(array) * 2.0).sum(0).numpy(), array.sum(0) * 2.0, rtol=1e-4, atol=1e-4
            )
            known.add(len(templates._templates))
        assert len(known) == 1


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


@pytest.mark.parametrize("seed", range(20))
def test_large_parts_are_copied_by_templates(seed: int) -> None:
    draw = random.Random(seed)
    dtype = draw.choice(["float32", "float64", "int8", "bool"])
    shape = draw.choice([(40, 700, 16), (3, 5, 7, 2000), (300, 900), (1 << 20,), (9, 1, 30000)])
    axis = draw.randrange(len(shape))
    moved = draw.random() < 0.3
    arrays = []
    for n in range(draw.randrange(2, 6)):
        own = list(shape)
        own[axis] = draw.choice([own[axis], 1, 0 if n else 3])
        arrays.append(np.random.default_rng(n).integers(-2, 3, own).astype(dtype))
    with config.changed(tier="interpreted"):
        parts = [
            tg.tensor(np.ascontiguousarray(a.T)).permute(*range(a.ndim)[::-1]) if moved else tg.tensor(a)
            for a in arrays
        ]
        np.testing.assert_array_equal(tg.cat(parts, axis).numpy(), np.concatenate(arrays, axis))


def test_a_concatenation_of_large_parts_translates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegrad.backend.cpu.ready_kernels.translate", None)
    with config.changed(tier="interpreted"):
        for rows in (400, 401):
            x, y = tg.ones(16, rows, 256), tg.zeros(16, 32, 256)
            np.testing.assert_array_equal(tg.cat([x, y], 1)[:, rows - 1 : rows + 1, 7].numpy(), [[1, 0]] * 16)
