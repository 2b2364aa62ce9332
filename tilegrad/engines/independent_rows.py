"""Find out whether the examples of a batch are computed independently, so that batches may be cut and padded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.graph import Value
from ..runtime.device import device
from .plans import Plan

FIRST_SEED, OTHER_SEED = 1, 2
"""Seeds of the rows and of those that replace them."""
LARGE_MAGNITUDE = 1e4
"""Magnitude of rows that exceed the limits of networks which clip: comparisons with NaN are false."""
TOLERANCE = 1e-3
"""Largest relative difference between an example alone and in a batch: the order of sums differs."""


def has_independent_rows(batch: Plan, single: Plan) -> bool:
    """Whether each row of the results depends on the same row of the arguments alone.

    A run in which some rows are NaN (which spreads to whatever computes with it), large, or other integers must leave
    all bits of the other rows as they were. The rows are chosen so that any two are told apart, but for those of one
    half whose numbers are equal modulo 4. The first and the last row must also be what they are alone.
    """
    tensors = (*batch.arguments, *batch.outputs)
    if not batch.arguments or not all(x.type.shape and x.type.shape[0] == batch.rows for x in tensors):
        return False  # an argument or a result belongs to no row, or to several
    given = [_example(x, FIRST_SEED) for x in batch.arguments]
    other = [_example(x, OTHER_SEED) for x in batch.arguments]
    spreading, large = (
        [x if x.dtype.kind in "iub" else x * x.dtype.type(by) for x in other] for by in (np.nan, LARGE_MAGNITUDE)
    )
    results = _results(batch, given)
    numbers = np.arange(given[0].shape[0])
    halves = numbers % 2 == 0, numbers // 2 % 2 == 0, numbers < len(numbers) // 2
    for chosen, replacing in (*[(half, spreading) for half in halves], (halves[0], large)):
        for changed in (chosen, ~chosen):
            found = _results(batch, [_with_rows(x, y, changed) for x, y in zip(given, replacing, strict=True)])
            if any(x[~changed].tobytes() != y[~changed].tobytes() for x, y in zip(results, found, strict=True)):
                return False
    for row in (0, -1):
        alone = _results(single, [x[row][None] for x in given])
        if not all(_are_close(x[row], y[0]) for x, y in zip(results, alone, strict=True)):
            return False
    return True


def _with_rows(x: np.ndarray[Any, Any], other: np.ndarray[Any, Any], changed: np.ndarray[Any, Any]) -> Any:
    """Replace some rows by those of another array."""
    made = x.copy()
    made[changed] = other[changed]
    return made


def _example(x: Value, seed: int) -> np.ndarray[Any, Any]:
    """Make elements on which networks differ: normal numbers, or zeros and ones."""
    draw = np.random.default_rng(seed)
    shape: Any = x.type.shape
    made = draw.standard_normal(shape) if x.type.dtype.is_float else draw.integers(0, 2, shape)
    return np.asarray(made).astype(x.type.dtype.numpy)


def _results(plan: Plan, given: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    place = device(plan.compiled.device)
    made = plan.runner([*map(place.from_host, given), *plan.shared])
    return [place.to_host(b, x.type.dtype, x.type.shape) for b, x in zip(made, plan.outputs, strict=True)]  # type: ignore[arg-type]


def _are_close(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    if x.dtype.kind in "iub":
        return bool(np.array_equal(x, y))
    a, b = x.astype(np.float64), y.astype(np.float64)
    return bool(np.allclose(a, b, TOLERANCE, TOLERANCE * float(np.abs(b).max(initial=0)), equal_nan=True))
