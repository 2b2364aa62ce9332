"""Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers").

An element depends only on the seed, the number of elements drawn before and its position, so it is the same on every
device and for every number of threads. The state is a tensor `(seed, offset)`, advanced by the number of elements drawn
(`advance`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import DType, bfloat16, float16, float32, float64, int64, uint32, uint64
from ..ir.graph import Reader, TensorType, Value
from ..ir.position import flat_position, row_major
from ..ir.scalar import Expr, Position, apply, const
from ..ir.scalar import cast as cast_element
from ..ir.size import Dim, Shape
from .arithmetic import add, mul, remainder
from .base import Operand
from .bits import bitwise_or, shift_left, shift_right
from .cast import bitcast, cast
from .comparison import lt
from .control import where
from .creation import positions, size_number
from .exponential import log, sqrt

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
"""Rounds of Philox, of which seven pass statistical tests."""


def philox(counter: Sequence[Expr], key: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return four random words (uint32) for a counter of four words and a key of two."""
    a, b, c, d = counter
    k, m = key
    first, second = (const(x, uint32) for x in MULTIPLIERS)
    for _ in range(ROUNDS):
        high, low = apply("mulhi", first, a), first * a
        other_high, other_low = apply("mulhi", second, c), second * c
        a, b, c, d = _xor(other_high, b, k), other_low, _xor(high, d, m), low
        k, m = k + KEY_STEPS[0], m + KEY_STEPS[1]
    return a, b, c, d


def _xor(x: Expr, y: Expr, z: Expr) -> Expr:
    return apply("bitxor", apply("bitxor", x, y), z)


def halves(x: Expr) -> tuple[Expr, Expr]:
    """Split an int64 into its low and high words."""
    return cast_element(x, uint32), cast_element(apply("shr", x, const(32, int64)), uint32)


@final
class Philox(Value):
    """Random bits: word `word` of the four that each counter gives.

    The counter of an element is the offset in `state` plus its row-major position, the key is the seed.
    """

    cost = "expensive"
    differentiable = False
    state: Value
    sizes: Shape
    word: int = 0

    def infer(self) -> TensorType:
        if self.state.dtype is not int64 or self.state.shape != (2,):
            raise ShapeError(f"a random state is an int64 tensor (seed, offset), not {self.state.type}")
        return TensorType(uint32, self.sizes, self.state.device)

    def element(self, position: Position, read: Reader) -> Expr:
        seed, start = (read(self.state, (const(n, int64),)) for n in (0, 1))
        counter = start + flat_position(position, row_major(self.sizes))
        zero = const(0, uint32)
        return philox((*halves(counter), zero, zero), halves(seed))[self.word]

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


# --- distributions -----------------------------------------------------------------------


def advance(state: Value, drawn: Dim) -> Value:
    """Return the state after a number of elements have been drawn."""
    return add(state, mul(positions(2, state.device), size_number(drawn, int64, state.device)))


def rand(state: Value, sizes: Shape, dtype: DType = float32) -> Value:
    """Draw uniform numbers in [0, 1) with as many bits as the mantissa has."""
    _require_float("rand", dtype)
    if dtype is float64:
        high = shift_right(_wide(Philox(state, sizes, 0)), 5)
        low = shift_right(_wide(Philox(state, sizes, 1)), 6)
        return mul(add(mul(cast(high, float64), 2.0**26), cast(low, float64)), 2.0**-53)
    digits = {float32: 24, float16: 11, bfloat16: 8}[dtype]
    return cast(mul(cast(shift_right(Philox(state, sizes), 32 - digits), float32), 2.0**-digits), dtype)


def randn(state: Value, sizes: Shape, dtype: DType = float32) -> Value:
    """Draw standard normal numbers by the Box-Muller transform."""
    _require_float("randn", dtype)
    work = float64 if dtype is float64 else float32
    radius = mul(add(cast(Philox(state, sizes, 0), work), 1.0), 2.0**-32)  # in (0, 1]: its logarithm is finite
    angle = mul(cast(Philox(state, sizes, 1), work), 2.0 * math.pi * 2.0**-32)
    from .trigonometric import cos

    return cast(mul(sqrt(mul(log(radius), -2.0)), cos(angle)), dtype)


def randint(state: Value, low: int, high: int, sizes: Shape, dtype: DType = int64) -> Value:
    """Draw integers low <= n < high, with relative bias at most 2**-32."""
    if low >= high:
        raise ArgumentError(f"randint: there is no number from {low} to below {high}; low must be less than high")
    if not dtype.is_float and (low < dtype.min or high - 1 > dtype.max):
        raise ArgumentError(f"randint: {low} to {high - 1} does not fit {dtype.name}; give a wider dtype")
    width = high - low
    if width <= uint32.max + 1:  # the upper half of 64 bits times the width
        upper, lower = (mul(_wide(Philox(state, sizes, n)), width) for n in (0, 1))
        number = shift_right(add(upper, shift_right(lower, 32)), 32)
    else:
        bits = _random64(state, sizes)
        number = bits if width == 1 << 64 else remainder(bits, width)
    return cast(add(bitcast(number, int64), low), dtype)


def _random64(state: Value, sizes: Shape) -> Value:
    high = shift_left(_wide(Philox(state, sizes, 0)), 32)
    return bitwise_or(high, _wide(Philox(state, sizes, 1)))


def _wide(x: Value) -> Value:
    return cast(x, uint64)


def bernoulli(state: Value, probability: Operand, sizes: Shape) -> Value:
    """Draw bools that are true with a probability (a number, or a tensor that broadcasts)."""
    dtype = probability.dtype if isinstance(probability, Value) else float32
    if isinstance(probability, float | int) and not 0 <= probability <= 1:
        raise ArgumentError(f"bernoulli: a probability is between 0 and 1, not {probability}")
    drawn = rand(state, sizes, dtype if dtype is float64 else float32)
    wanted = cast(probability, drawn.dtype) if isinstance(probability, Value) else probability
    return lt(drawn, wanted)


def randperm(state: Value, n: int, dtype: DType = int64) -> Value:
    """Draw a permutation of 0 to n - 1."""
    from .sorting import argsort

    return cast(argsort(bitcast(_random64(state, (n,)), int64), 0), dtype)


def dropout(x: Value, state: Value, p: float) -> Value:
    """Zero elements with probability p, and scale the others to keep the mean."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: a probability is between 0 and 1, not {p}")
    if p == 0:
        return x
    if p == 1:
        return mul(x, 0.0)
    kept = bernoulli(state, 1 - p, x.shape)
    return where(kept, mul(x, 1 / (1 - p)), 0.0)


def _require_float(op: str, dtype: DType) -> None:
    if not dtype.is_float:
        raise DTypeError(f"{op} draws floating-point elements, not {dtype.name}; use randint")
