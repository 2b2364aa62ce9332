"""How exact products of float32 matrices are, in the field's words, and what each word means.

    highest    float32 arithmetic
    high       each number is rounded to 11 bits (tf32), or is the sum of two of bfloat16, and three of the four
               products of these are added
    medium     each number is rounded to bfloat16

A word says how exact a product is at least: a device may do better. With sums of two, what is infinite, NaN, or so
small that its bfloat16 parts lose bits is multiplied as at `highest`; `medium` and tf32 round it first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

Precision: TypeAlias = Literal["highest", "high", "medium"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

PRODUCTS: dict[Precision, str] = {"highest": "mul", "high": "mul_high", "medium": "mul_medium"}
"""The function of the scalar language that multiplies two numbers."""

PRECISION_OF: dict[str, Precision] = {fn: precision for precision, fn in PRODUCTS.items()}

BFLOAT16_PARTS: dict[Precision, tuple[int, int]] = {"highest": (3, 6), "high": (2, 3), "medium": (1, 1)}
"""Where a unit multiplies only bfloat16: the parts that a float32 number is the sum of, and products that are added."""

TRITON: dict[str, Precision] = {
    "ieee": "highest",
    "tf32x3": "highest",
    "bf16x6": "highest",
    "bf16x3": "highest",
    "tf32": "high",
}
"""What Triton's words for `input_precision` become: ours that are at least as exact."""

SMALLEST = 2.0**-100
"""Below this, the lower part of a number may be too small for bfloat16 to hold all of its bits."""
LARGEST = 3.3895313892515355e38
"""Of bfloat16. What would be rounded up to infinity is cut off instead, where a lower part holds the rest."""


def to_bfloat16(x: Any) -> Any:
    """Each float32 number rounded to the nearest of bfloat16, as float32.

    >>> to_bfloat16(np.float32([1.0, 1.00390625, 1.01171875, np.inf])).tolist()
    [1.0, 1.0, 1.015625, inf]
    """
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32).reshape(x.shape))


def in_parts(x: Any) -> tuple[Any, Any]:
    """Finite numbers as sums of two of bfloat16, up to 2**-17 of each.

    >>> upper, lower = in_parts(np.float32([1.01, 1e38]))
    >>> bool(np.all(np.abs(upper + lower - np.float32([1.01, 1e38])) <= 2.0**-17 * upper))
    True
    """
    x = np.asarray(x, np.float32)
    upper = np.clip(to_bfloat16(x), np.float32(-LARGEST), np.float32(LARGEST))
    return upper, to_bfloat16(x - upper)


def is_plain(x: Any) -> Any:
    """Which numbers have parts that say all of them."""
    return (np.isfinite(x) & (np.abs(x) >= SMALLEST)) | (x == 0)


def product(x: Any, y: Any, precision: Precision, times: Callable[[Any, Any], Any] = np.multiply) -> Any:
    """What `times`, a product of float32 numbers or of matrices of them, gives at a precision."""
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
