"""Compare results: `tg.testing.assert_close`, with the first mismatch in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor import Tensor

RTOL = {"float16": 1e-3, "bfloat16": 1.6e-2, "float32": 1.3e-6, "float64": 1e-7}
ATOL = {"float16": 1e-5, "bfloat16": 1e-5, "float32": 1e-5, "float64": 1e-7}
"""PyTorch's tolerances."""


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
    check_dtype: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """Raise AssertionError unless two tensors agree within tolerances; name the first element that does not."""
    if (rtol is None) is not (atol is None):
        raise ValueError("assert_close: rtol and atol are given together, or neither")
    x, y = _array(actual), _array(expected)
    names = _dtype(actual, x), _dtype(expected, y)
    if x.shape != y.shape:
        raise AssertionError(f"{msg}shapes differ: {list(x.shape)}, and {list(y.shape)} expected")
    if check_dtype and names[0] != names[1]:
        raise AssertionError(f"{msg}dtypes differ: {names[0]}, and {names[1]} expected")
    rtol, atol = _tolerance(RTOL, names, rtol), _tolerance(ATOL, names, atol)
    exact = x.dtype.kind in "biu" and y.dtype.kind in "biu"
    a, b = (x, y) if exact else (x.astype(np.float64), y.astype(np.float64))
    close = a == b if exact and not rtol and not atol else np.isclose(a, b, rtol, atol, equal_nan=equal_nan)
    wrong = np.argwhere(~np.asarray(close).reshape(a.shape))
    if not len(wrong):
        return
    raise AssertionError(f"{msg}{_difference(a, b, wrong)} (allowed: {atol:g} + {rtol:g} * |expected|)")


def _tolerance(of_dtypes: dict[str, float], names: tuple[str, str], given: float | None) -> float:
    """Return the given tolerance, or that of the less precise dtype."""
    return max(of_dtypes.get(name, 0.0) for name in names) if given is None else given


def _difference(a: Any, b: Any, wrong: Any) -> str:
    """Describe the first and the largest of the differences at some positions."""
    at = tuple(int(n) for n in wrong[0])
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a.astype(np.float64) - b.astype(np.float64))
    worst = tuple(int(n) for n in np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=np.inf))), a.shape))
    return (
        f"{len(wrong):,} of {a.size:,} elements differ; the first at {list(at)}: {a[at]} and {b[at]} expected; "
        f"the largest difference is {error[worst]:.6g} at {list(worst)}"
    )


def _array(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu().numpy() if isinstance(x, Tensor) else x)


def _dtype(x: Any, array: np.ndarray) -> str:
    return x.dtype.name if isinstance(x, Tensor) else array.dtype.name
