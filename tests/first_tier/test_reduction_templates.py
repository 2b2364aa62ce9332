"""Reductions are bound to sizes and strides without a translation, and are what a translation of their shape gives."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.backend.cpu import ready_kernels
from tilegrad.backend.cpu.interpreter import reduction_templates, templates
from tilegrad.first_tier import group_step, step_plan

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, axis: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis),
    "amax": lambda x, axis: x.amax(axis),
    "amin": lambda x, axis: x.amin(axis),
    "prod": lambda x, axis: x.prod(axis if isinstance(axis, int) else axis[0]),
    "argmax": lambda x, axis: x.argmax(axis if isinstance(axis, int) else axis[-1]),
    "argmin": lambda x, axis: x.argmin(axis if isinstance(axis, int) else axis[-1]),
    "any": lambda x, axis: (x > 0.5).any(axis if isinstance(axis, int) else axis[0]),
    "all": lambda x, axis: (x > -2).all(axis if isinstance(axis, int) else axis[0]),
    "squares": lambda x, axis: (x * x + 1).sum(axis),
    "var": lambda x, axis: x.var(axis),
    "count": lambda x, axis: x.count_nonzero(axis),
    "kept": lambda x, axis: x.sum(axis, keepdim=True) if isinstance(axis, int) else x.amax(axis, keepdim=True),
}
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "bool")
SHAPES = (
    (7,),
    (64,),
    (1000,),
    (3, 5),
    (40, 33),
    (2, 200),
    (200, 2),
    (16, 12, 4),
    (5, 70, 9),
    (16, 20, 2, 2),
    (3, 1, 40),
)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.swapaxes(0, -1),
    "every second": lambda x: x[..., ::2],
    "without the first": lambda x: x[1:],
    "repeated": lambda x: x[:1].expand(4, *x.shape[1:]) if isinstance(x, tg.Tensor) else x,
}


def drawn(shape: tuple[int, ...], dtype: str, special: bool) -> Any:
    rng = np.random.default_rng(len(shape))
    if dtype in INTEGERS:
        return tg.tensor(rng.integers(0, 2 if dtype == "bool" else 60, shape)).to(getattr(tg, dtype))
    array = rng.standard_normal(shape).astype(np.float32)
    if special:
        flat = array.reshape(-1)
        flat[::11], flat[3::17], flat[5::29], flat[6::13] = np.nan, np.inf, -np.inf, -0.0
    return tg.tensor(array).to(getattr(tg, dtype))


def axes_of(rank: int) -> list[int | tuple[int, ...]]:
    several: list[int | tuple[int, ...]] = [
        axes for count in range(2, rank + 1) for axes in itertools.combinations(range(rank), count)
    ]
    return [*range(rank), *several]


def forget() -> None:
    step_plan._plans.clear()
    group_step._steps.clear()


def bits(x: Any) -> bytes:
    return bytes(np.ascontiguousarray(x.numpy()).tobytes())


def same_without_templates(work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compare the bits of a result with those of a translation for its shape."""
    forget()
    with config.changed(tier="interpreted"):
        found = work()
        got = bits(found)
        with monkeypatch.context() as patch:
            forget()
            patch.setattr(ready_kernels, "bind_reduction", lambda *arguments: None)
            assert bits(work()) == got
    forget()
    return found


def takes(name: str, dtype: str) -> bool:
    refused = ("mean", "var", "argmax", "argmin") if dtype == "bool" else ("mean", "var")
    return dtype in FLOATS or name not in refused


@pytest.mark.parametrize(
    "name, dtype", [(name, dtype) for name in REDUCTIONS for dtype in (*FLOATS, *INTEGERS) if takes(name, dtype)]
)
def test_templates_are_what_translations_are(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(f"{name} {dtype}")
    for shape in SHAPES:
        for view in draw.sample(list(VIEWS), 2):
            x = drawn(shape, dtype, special=draw.random() < 0.3)
            bits(x)
            for axis in draw.sample(axes_of(len(shape)), min(2, len(axes_of(len(shape))))):
                if 0 not in VIEWS[view](x).shape:
                    same_without_templates(lambda: REDUCTIONS[name](VIEWS[view](x), axis), monkeypatch)  # noqa: B023


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_and_extremes_are_those_of_numpy(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(shape, "float32", special=False)
    array = x.numpy()
    for axis in axes_of(len(shape)):
        got = same_without_templates(lambda: x.sum(axis), monkeypatch)  # noqa: B023
        np.testing.assert_allclose(got.numpy(), array.sum(axis, dtype=np.float64), rtol=1e-5, atol=1e-5)
        got = same_without_templates(lambda: x.amax(axis), monkeypatch)  # noqa: B023
        np.testing.assert_array_equal(got.numpy(), array.max(axis))
        if isinstance(axis, int):
            got = same_without_templates(lambda: x.argmin(axis), monkeypatch)  # noqa: B023
            np.testing.assert_array_equal(got.numpy(), array.argmin(axis))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod", "argmax"])
def test_nan_and_infinities_are_those_of_the_compiled_tier(name: str, dtype: str) -> None:
    for shape in ((9, 70), (70, 9), (300,)):
        x = drawn(shape, dtype, special=True)
        for axis in range(len(shape)):
            found = []
            for tier in ("interpreted", "compiled"):
                with config.changed(tier=tier):
                    found.append(REDUCTIONS[name](x, axis).to(tg.float64).numpy())
            np.testing.assert_allclose(*found, rtol=1e-2 if dtype in FLOATS[2:] else 1e-5)


def test_sizes_share_a_template() -> None:
    known = set()
    for rows, columns in ((100, 500), (101, 777), (37, 3000)):
        x = tg.tensor(np.ones((rows, columns), np.float32))
        with config.changed(tier="interpreted"):
            np.testing.assert_array_equal((x * 2).sum(1).numpy(), np.full(rows, 2 * columns, np.float32))
            np.testing.assert_array_equal((x * 2).sum(0).numpy(), np.full(columns, 2 * rows, np.float32))
        known.add(len(templates._templates))
    assert len(known) == 1


def test_long_reductions_are_translated_for_their_shape() -> None:
    loops = reduction_templates.reduction_loops
    assert loops((100_000, 1000), (0,), [(1000, 1)]) is None  # columns in pieces
    assert loops((100_000,), (0,), [(1,)]) is None  # a row in pieces
    assert loops((100, 30), (1,), [(30, 1)]) is not None


@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    program = """
import numpy as np, tilegrad as tg
x = tg.tensor(np.random.default_rng(0).standard_normal((500, 900), dtype=np.float32))
print([hash(y.numpy().tobytes()) for y in (x.sum(0), x.sum(1), x.sum(), (x * x).mean(1), x.prod(0))])
"""
    environment = {**os.environ, "TILEGRAD_TIER": "interpreted", "PYTHONHASHSEED": "0"}
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "TILEGRAD_THREADS": str(count)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for count in (1, threads)
    ]
    assert printed[0] == printed[1]
