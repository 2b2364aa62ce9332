"""Examples of ops that broadcast, create, compute on elements, compare, choose and convert."""

from __future__ import annotations

import numpy as np

from tests.ops.registry import (
    NONE,
    PAIRS,
    SMALL,
    SPECIAL,
    bools,
    elementwise,
    example,
    floats,
    ints,
)
from tilegrad.ir import dtype
from tilegrad.ops import arithmetic, bits, broadcasting, cast, comparison, control, creation

WHOLE = np.arange(-9, 10)

# --- what makes shapes meet, and creation ----------------------------------------------------------

example(broadcasting.Reshape, lambda x: broadcasting.reshape(x, (4, -1)), floats(2, 6), numpy=lambda x: x.reshape(4, 3))
example(broadcasting.Reshape, lambda x: broadcasting.reshape(x, (1, 0)), NONE, numpy=lambda x: x.reshape(1, 0))
example(broadcasting.Reshape, lambda x: broadcasting.reshape(x, ()), floats(1, 1), numpy=lambda x: x.reshape(()))
example(
    broadcasting.Expand,
    lambda x: broadcasting.expand(x, (2, -1, 4)),
    floats(3, 1),
    torch=lambda t, x: x.expand(2, 3, 4),
)
example(broadcasting.Expand, lambda x: broadcasting.expand(x, (2, 2)), np.array(0.7), torch=lambda t, x: x.expand(2, 2))
for axes in ((0, 2), (1,), (0, 1, 2)):
    for keep in (False, True):
        example(
            broadcasting.Sum,
            lambda x, a=axes, k=keep: broadcasting.reduce_sum(x, a, k),
            SMALL,
            torch=lambda t, x, a=axes, k=keep: x.sum(a, k),
        )
example(broadcasting.Sum, lambda x: broadcasting.reduce_sum(x, 0), NONE, numpy=lambda x: x.sum(0))
example(broadcasting.Sum, lambda x: broadcasting.reduce_sum(x, -1), ints(3, 4), numpy=lambda x: x.sum(1))
example(broadcasting.Fill, lambda: creation.zeros((2, 3)), numpy=lambda: np.zeros((2, 3), np.float32))
example(broadcasting.Fill, lambda: creation.ones((), dtype.int64), numpy=lambda: np.int64(1))
example(creation.Iota, lambda: creation.positions(5), numpy=lambda: np.arange(5))
example(creation.Iota, lambda: creation.arange(2, 20, 3), numpy=lambda: np.arange(2, 20, 3))
example(creation.Iota, lambda: creation.arange(1, 0, -0.3, dtype.float32), torch=lambda t: t.arange(1, 0, -0.3))
example(creation.Iota, lambda: creation.linspace(-1, 2, 7), torch=lambda t: t.linspace(-1, 2, 7), tolerance=1e-6)
example(creation.Iota, lambda: creation.linspace(3, 9, 1), torch=lambda t: t.linspace(3, 9, 1))
example(creation.Iota, lambda: creation.logspace(-1, 2, 4), torch=lambda t: t.logspace(-1, 2, 4), tolerance=1e-5)
example(creation.Iota, lambda: creation.eye(3, 4), torch=lambda t: t.eye(3, 4))
example(creation.SizeValue, lambda: creation.SizeValue(7, dtype.float32), numpy=lambda: np.float32(7))

# --- arithmetic --------------------------------------------------------------------------------------

elementwise(arithmetic.Add, arithmetic.add, "add", SMALL, floats(3, 1))
elementwise(arithmetic.Sub, arithmetic.sub, "sub", floats(3, 1), SMALL)
elementwise(arithmetic.Mul, arithmetic.mul, "mul", SMALL, floats(4))
elementwise(arithmetic.Div, arithmetic.div, "div", SMALL, floats(3, 1, low=0.5))
elementwise(arithmetic.Remainder, arithmetic.remainder, "remainder", SMALL, floats(4, low=0.7, high=0.9), special=False)
elementwise(arithmetic.Fmod, arithmetic.fmod, "fmod", SMALL, floats(4, low=0.7, high=0.9), special=False)
elementwise(arithmetic.FloorDivide, arithmetic.floor_divide, None, SMALL, floats(4, low=0.7, high=0.9), special=False)
elementwise(arithmetic.TruncDivide, arithmetic.trunc_divide, None, SMALL, floats(4, low=0.7, high=0.9), special=False)
elementwise(arithmetic.Neg, arithmetic.neg, "neg", SMALL)
elementwise(arithmetic.Abs, arithmetic.absolute, "abs", SMALL)
elementwise(arithmetic.Sign, arithmetic.sign, "sign", SMALL)
elementwise(arithmetic.Maximum, arithmetic.maximum, "maximum", SMALL, floats(3, 1))
elementwise(arithmetic.Minimum, arithmetic.minimum, "minimum", floats(4), SMALL)
elementwise(arithmetic.Hypot, arithmetic.hypot, "hypot", SMALL, floats(3, 1))
elementwise(arithmetic.Copysign, arithmetic.copysign, "copysign", SMALL, floats(4))
elementwise(None, arithmetic.reciprocal, "reciprocal", floats(2, 3, low=0.1, high=3.0))
elementwise(None, arithmetic.square, "square", SMALL)
elementwise(None, arithmetic.signbit, "signbit", SMALL)
elementwise(arithmetic.Clamp, lambda x: arithmetic.clamp(x, -1.0, 1.5), lambda t, x: x.clamp(-1.0, 1.5), SMALL)
elementwise(arithmetic.Clamp, lambda x: arithmetic.clamp(x, None, 0.5), lambda t, x: x.clamp(None, 0.5), SMALL)
example(
    arithmetic.Clamp, arithmetic.clamp, SMALL, floats(4, low=-1, high=0), floats(3, 1, low=0, high=1), torch="clamp"
)
example(arithmetic.Clamp, lambda x: arithmetic.clamp(x, 0, 3), ints(9), torch=lambda t, x: x.clamp(0, 3))
example(None, lambda x, y: arithmetic.lerp(x, y, 0.3), SMALL, floats(4), torch=lambda t, x, y: t.lerp(x, y, 0.3))
example(None, arithmetic.lerp, SMALL, floats(4), floats(3, 1), torch="lerp")
example(
    None,
    lambda *a: arithmetic.addcmul(*a, 2.0),
    SMALL,
    floats(4),
    floats(3, 1),
    torch=lambda t, *a: t.addcmul(*a, value=2),
)
example(
    None,
    lambda *a: arithmetic.addcdiv(*a, 2.0),
    SMALL,
    floats(4),
    floats(3, 1, low=1),
    torch=lambda t, *a: t.addcdiv(*a, value=2),
)
example(None, arithmetic.heaviside, np.array([-1.0, 0.0, 2.0]), np.array(0.5), torch="heaviside", gradient=False)
NONZERO = np.where(WHOLE == 0, 4, WHOLE)
for op, build, name in (
    (arithmetic.Add, arithmetic.add, "add"),
    (arithmetic.Mul, arithmetic.mul, "mul"),
    (arithmetic.FloorDivide, arithmetic.floor_divide, "floor_divide"),
    (arithmetic.Remainder, arithmetic.remainder, "remainder"),
    (arithmetic.Fmod, arithmetic.fmod, "fmod"),
    (arithmetic.Maximum, arithmetic.maximum, "maximum"),
):
    example(op, build, WHOLE.reshape(-1, 1), NONZERO, torch=name)
example(
    arithmetic.TruncDivide,
    arithmetic.trunc_divide,
    WHOLE.reshape(-1, 1),
    NONZERO,
    torch=lambda t, x, y: t.div(x, y, rounding_mode="trunc"),
)
example(arithmetic.FloorDivide, arithmetic.floor_divide, *PAIRS, torch="floor_divide", gradient=False)
example(arithmetic.Add, arithmetic.add, NONE, floats(1), torch="add")
example(arithmetic.Add, lambda x: arithmetic.add(1, x), ints(3, dtype=np.uint8, low=0), numpy=lambda x: x + np.uint8(1))
example(
    arithmetic.Mul, lambda x: arithmetic.mul(x, 0.5), floats(3).astype(np.float32), numpy=lambda x: x * np.float32(0.5)
)
# ties share the gradient
for op, build, name in (
    (arithmetic.Maximum, arithmetic.maximum, "maximum"),
    (arithmetic.Minimum, arithmetic.minimum, "minimum"),
):
    example(
        op,
        build,
        np.array([1.0, 2.0, 3.0]),
        np.array([1.0, 3.0, 2.0]),
        torch=name,
        name=f"ties {name}",
        gradient="torch",
    )

# --- comparison, bits, choice, casts -----------------------------------------------------------------

for op, build, name in (
    (comparison.Equal, comparison.eq, "eq"),
    (comparison.NotEqual, comparison.ne, "ne"),
    (comparison.Less, comparison.lt, "lt"),
    (comparison.LessEqual, comparison.le, "le"),
    (comparison.Greater, comparison.gt, "gt"),
    (comparison.GreaterEqual, comparison.ge, "ge"),
):
    example(op, build, *PAIRS, torch=name)
    example(op, build, ints(3, 1, low=-2, high=3), ints(4, low=-2, high=3), torch=name)
example(comparison.IsNan, comparison.isnan, SPECIAL, torch="isnan")
example(comparison.IsInf, comparison.isinf, SPECIAL, torch="isinf")
example(comparison.IsFinite, comparison.isfinite, SPECIAL, torch="isfinite")
example(None, comparison.isfinite, ints(3), torch="isfinite")
for op, build, name in (
    (bits.BitAnd, bits.bitwise_and, "bitwise_and"),
    (bits.BitOr, bits.bitwise_or, "bitwise_or"),
    (bits.BitXor, bits.bitwise_xor, "bitwise_xor"),
):
    example(op, build, ints(3, 1), ints(4), torch=name)
    example(op, build, bools(3, 1), bools(4), torch=name)
example(bits.Invert, bits.bitwise_not, ints(4), torch="bitwise_not")
example(bits.Invert, bits.logical_not, SPECIAL, torch="logical_not")
example(None, bits.logical_and, ints(3, 1, low=-1, high=2), ints(4, low=-1, high=2), torch="logical_and")
example(None, bits.logical_or, ints(3, 1, low=-1, high=2), ints(4, low=-1, high=2), torch="logical_or")
example(None, bits.logical_xor, ints(3, 1, low=-1, high=2), ints(4, low=-1, high=2), torch="logical_xor")
example(bits.ShiftLeft, bits.shift_left, ints(3, 1), np.arange(5), torch="bitwise_left_shift")
example(bits.ShiftRight, bits.shift_right, ints(3, 1), np.arange(5), torch="bitwise_right_shift")
example(control.Where, control.where, bools(3, 1), SMALL, floats(4), torch="where")
example(
    control.Where, lambda c, x: control.where(c, x, 0.0), bools(3, 1), SMALL, torch=lambda t, c, x: t.where(c, x, 0.0)
)
for to, kind in ((dtype.float32, "float32"), (dtype.int32, "int32"), (dtype.bool_, "bool"), (dtype.float16, "float16")):
    example(
        cast.Cast,
        lambda x, to=to: cast.cast(x, to),
        SMALL,
        torch=lambda t, x, k=kind: x.to(getattr(t, k)),
        gradient=False,
    )
example(
    cast.Cast,
    lambda x: cast.cast(cast.cast(x, dtype.bfloat16), dtype.float32),
    SMALL,
    torch=lambda t, x: x.to(t.bfloat16).to(t.float32),
    gradient=False,
)
example(cast.Cast, lambda x: cast.cast(x, dtype.float64), ints(4), numpy=lambda x: x.astype(np.float64))
example(cast.Bitcast, lambda x: cast.bitcast(x, dtype.int64), SPECIAL, numpy=lambda x: x.view(np.int64))
example(cast.Detach, cast.detach, SMALL, numpy=lambda x: x, gradient=False)
example(None, lambda x: arithmetic.mul(cast.detach(x), x), SMALL, torch=lambda t, x: x.detach() * x, gradient="torch")
