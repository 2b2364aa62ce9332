"""Elementary functions of the CPU: accuracy and special values."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.maths_accuracy import BINARY, ORACLES, computed, errors, floats, greatest_error
from tilegrad.backend.cpu import maths
from tilegrad.backend.cpu.emit import Builder, LlvmValue, Type
from tilegrad.ir.functions import FUNCTIONS

UNARY = tuple(fn for fn in ORACLES if fn not in BINARY)
INF, NAN = math.inf, math.nan
PI = math.pi


def test_every_formula_is_stated_and_tested() -> None:
    assert set(maths.FORMULAS) == set(maths.ACCURACY) == set(maths.ACCURACY_FLOAT64) == set(ORACLES)
    assert set(maths.FORMULAS) <= set(FUNCTIONS)
    assert max(maths.ACCURACY.values()) <= 2.0


@pytest.mark.parametrize("fn", UNARY)
def test_float32_everywhere(fn: str) -> None:
    """About a million numbers over all bit patterns: every exponent, denormals, infinities and NaN."""
    error, at = greatest_error(fn, 4099 if fn not in ("erf", "erfc") else 40009)
    assert error <= maths.ACCURACY[fn], f"{fn}({at!r}) is off by {error:.2f} ULP"


@pytest.mark.parametrize("fn", UNARY)
def test_float32_of_ordinary_size(fn: str) -> None:
    """Numbers of ordinary size, one of 977 between 1/16 and 8."""
    x = np.concatenate([floats(0x3D800000, 0x41800000, 977), floats(0xBD800000, 0xC1800000, 977)])
    with np.errstate(all="ignore"):
        error = errors(computed(fn, x), ORACLES[fn](x.astype(np.float64)))
    assert error.max() <= maths.ACCURACY[fn], f"{fn}({x[error.argmax()]!r}) is off by {error.max():.2f} ULP"


def arguments_of_float64(fn: str) -> np.ndarray:
    random = np.random.default_rng(0)
    count = 2000
    bits = random.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)
    near_quarters = np.round(random.uniform(-1e6, 1e6, count)) * (np.pi / 2)
    usual = random.normal(0, 1, count) * np.exp(random.normal(0, 2, count))
    spread = [random.uniform(-1, 1, count), random.uniform(-740, 710, count), 1 + random.normal(0, 0.1, count)]
    return np.concatenate([bits, near_quarters, usual, *spread])


@pytest.mark.parametrize("fn", UNARY)
def test_float64(fn: str) -> None:
    x = arguments_of_float64(fn)
    wide = np.longdouble if fn not in ("erf", "erfc") else np.float64
    allowed = maths.ACCURACY_FLOAT64[fn] + (0.0 if np.finfo(wide).nmant > 52 else 1.0)
    with np.errstate(all="ignore"):
        error = errors(computed(fn, x, lanes=4), ORACLES[fn](x.astype(wide)))
    assert error.max() <= allowed, f"{fn}({x[error.argmax()]!r}) is off by {error.max():.2f} ULP"


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary pairs, pairs of any bits, and every pair of special numbers."""
    random = np.random.default_rng(1)
    count = 1 << 14
    size = np.dtype(dtype).itemsize
    any_bits = random.integers(0, 1 << (8 * size), (2, count), dtype=np.uint64)
    patterns = any_bits.astype(f"u{size}").view(dtype)
    usual = np.stack([np.exp(random.normal(0, 3, count)), random.normal(0, 10, count)]).astype(dtype)
    special = np.array([0.0, 1.0, 2.0, 3.0, 0.5, 7.5, 1e-40, np.finfo(dtype).max, np.finfo(dtype).tiny, INF], dtype)
    special = np.concatenate([special, -special, np.array([NAN], dtype)])
    every = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    x, y = np.concatenate([patterns, usual, every], axis=1)
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fn", BINARY)
def test_of_two(fn: str, dtype: type) -> None:
    x, y = pairs(dtype)
    wide = np.float64 if dtype is np.float32 else np.longdouble
    stated = maths.ACCURACY if dtype is np.float32 else maths.ACCURACY_FLOAT64
    allowed = stated[fn] + (0.0 if np.finfo(wide).nmant > np.finfo(dtype).nmant else 1.0)
    with np.errstate(all="ignore"):
        error = errors(computed(fn, x, y, lanes=4), ORACLES[fn](x.astype(wide), y.astype(wide)))
    at = error.argmax()
    assert error.max() <= allowed, f"{fn}({x[at]!r}, {y[at]!r}) is off by {error.max():.2f} ULP"


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0)],
    "exp2": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (10.0, 1024.0), (-126.0, 2.0**-126)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log2": [(1.0, 0.0), (8.0, 3.0), (2.0**-149, -149.0), (0.0, -INF), (INF, INF), (-1.0, NAN)],
    "log10": [(1.0, 0.0), (1000.0, 3.0), (0.0, -INF), (INF, INF), (-1.0, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, PI / 2), (-1.0, -PI / 2), (1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (-1.0, PI), (0.0, PI / 2), (1.5, NAN), (INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (1.0, PI / 4), (INF, PI / 2), (-INF, -PI / 2)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0)],
}


@pytest.mark.parametrize("lanes", [1, 3, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values(dtype: type, lanes: int) -> None:
    """Special values of C99's Annex F, bit by bit, in vectors of every width."""
    for fn, cases in SPECIAL.items():
        x, expected = (np.array(column, dtype) for column in zip(*cases, (NAN, NAN), strict=True))
        result = computed(fn, x, lanes=lanes)
        np.testing.assert_array_equal(result, expected, err_msg=fn)
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(expected[number]), err_msg=fn)


def test_bounds_are_kept() -> None:
    """No sine and no probability exceeds 1 after rounding."""
    x = floats(0x3F000000, 0x47000000, 127)
    for fn in ("sin", "cos", "tanh", "erf", "sigmoid"):
        assert np.abs(computed(fn, x)).max() <= 1.0, fn


def test_large_arguments_in_one_lane_only() -> None:
    """The slow path for large arguments leaves the other lanes of the vector unchanged."""
    x = np.array([0.5, 1e38, -2.0, 1e7, INF, 3.0, -1e20, 0.0], np.float32)
    with np.errstate(invalid="ignore"):
        for fn in ("sin", "cos", "tan"):
            assert errors(computed(fn, x), ORACLES[fn](x.astype(np.float64))).max() <= 2.0


def test_no_function_of_a_library_is_called() -> None:
    for fn in maths.FORMULAS:
        for element in ("float", "double"):
            b = Builder()
            type = Type(element, 8)
            maths.emit(b, fn, tuple(LlvmValue(f"%x{n}", type) for n in range(2 if fn in BINARY else 1)))
            outside = [text for text in b.declarations.values() if text.startswith("declare")]
            assert all("@llvm." in text for text in outside), (fn, outside)


def test_gelu_is_as_accurate_as_its_sum() -> None:
    """The normal distribution comes from one exponential here, shared with the derivative."""
    x = np.concatenate([np.linspace(-20, 20, 40_001), np.linspace(-0.1, 0.1, 999), [np.inf, np.nan]]).astype(np.float32)
    wide = x[:-2].astype(np.float64)
    below = np.array([math.erfc(-n * math.sqrt(0.5)) / 2 for n in wide])
    tensor = tg.tensor(x, requires_grad=True)
    made = tg.nn.functional.gelu(tensor)
    made.sum().backward()
    found = made.detach().numpy()
    assert found[-2] == np.inf
    assert np.isnan(found[-1])
    assert np.all(np.abs(found[:-2] - wide * below) <= 1.2e-7 * np.abs(wide))
    slope = below + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    assert np.all(np.abs(tensor.grad.numpy()[:-2] - slope) <= 1.5e-7)
