"""Define the precision of float32 matrix products.

    highest    float32 arithmetic
    high       operands are rounded to 11 bits (tf32), or split into a sum of two bfloat16 of which three of the four
               products are added
    medium     operands are rounded to bfloat16

Each is a lower bound: a device may be more precise. Split operands that are infinite, NaN, or so small that their
bfloat16 parts lose bits are multiplied as at `highest`; `medium` and tf32 round first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

Precision: TypeAlias = Literal["highest", "high", "medium"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

PRODUCTS: dict[Precision, str] = {"highest": "mul", "high": "mul_high", "medium": "mul_medium"}
"""The function of the scalar language that multiplies two numbers at each precision."""

PRECISION_OF: dict[str, Precision] = {fn: precision for precision, fn in PRODUCTS.items()}

BFLOAT16_PARTS: dict[Precision, tuple[int, int]] = {"highest": (3, 6), "high": (2, 3), "medium": (1, 1)}
"""Number of bfloat16 parts of each operand and of partial products that are added, on units that multiply bfloat16
only.
"""

TRITON: dict[str, Precision] = {
    "ieee": "highest",
    "tf32x3": "highest",
    "bf16x6": "highest",
    "bf16x3": "highest",
    "tf32": "high",
}
"""Triton's `input_precision` words, mapped to ours that are at least as precise."""

SMALLEST = 2.0**-100
"""Magnitude below which the lower bfloat16 part of a float32 may lose bits."""
LARGEST = 3.3895313892515355e38
"""Largest finite bfloat16. Values that would round to infinity are truncated instead if a lower part holds the rest."""


def to_bfloat16(x: Any) -> Any:
    """Round float32 to the nearest bfloat16, returned as float32.

    >>> to_bfloat16(np.float32([1.0, 1.00390625, 1.01171875, np.inf])).tolist()
    [1.0, 1.0, 1.015625, inf]
    """
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32).reshape(x.shape))


def in_parts(x: Any) -> tuple[Any, Any]:
    """Split finite numbers into a sum of two bfloat16, with a relative error of at most 2**-17.

    >>> upper, lower = in_parts(np.float32([1.01, 1e38]))
    >>> bool(np.all(np.abs(upper + lower - np.float32([1.01, 1e38])) <= 2.0**-17 * upper))
    True
    """
    x = np.asarray(x, np.float32)
    upper = np.clip(to_bfloat16(x), np.float32(-LARGEST), np.float32(LARGEST))
    return upper, to_bfloat16(x - upper)


def is_plain(x: Any) -> Any:
    """Select the numbers that two bfloat16 parts represent."""
    return (np.isfinite(x) & (np.abs(x) >= SMALLEST)) | (x == 0)


def product(x: Any, y: Any, precision: Precision, times: Callable[[Any, Any], Any] = np.multiply) -> Any:
    """Multiply float32 numbers or matrices with `times` at a precision."""
    x, y = np.asarray(x), np.asarray(y)
    if precision == "highest" or x.dtype != np.float32:
        return times(x, y)
    with np.errstate(all="ignore"):
        if precision == "medium":
            return times(to_bfloat16(x), to_bfloat16(y))
        exact = times(x, y)
        (upper, lower), (high, low) = in_parts(x), in_parts(y)
        summed = times(upper, low) + times(lower, high) + times(upper, high)
        odd = times((~is_plain(x)).astype(np.float32), np.ones_like(y))
        odd = odd + times(np.ones_like(x), (~is_plain(y)).astype(np.float32))
        return np.where((odd == 0) & np.isfinite(summed), summed, exact)
