"""sin and cos.

The argument is brought to within pi/4 of a multiple of pi/2 (a number of quarter turns), which is subtracted in three
parts by fma; two polynomials give the sine and the cosine of what is left, and the quarter turns choose between them and
the sign. That holds up to 2^17 in float32. Vectors with a greater element take a branch in which each element's product
with 2/pi is formed in integers of 128 bits.
"""

from __future__ import annotations

import math

from ..emit import Builder, Type, Value
from .coefficients import TWO_OVER_PI
from .exponential import rounded, table
from .vector import (
    Vector,
    absolute,
    any_lane,
    bits_of,
    convert,
    fma,
    from_bits,
    polynomial,
    where,
)

HALF_PI_2_64 = math.pi / 2**65
FAR = 2.0**17
"""From here on the reduction in three parts loses digits."""


def sin(x: Vector) -> Vector:
    size = absolute(x)
    n, quarter = rounded(size, table(x)["2/pi"][0], 0)
    value = turned(less_quarters(size, n), quarter)
    return beyond(x, "sin", from_bits(bits_of(value) ^ sign_of(x)))


def cos(x: Vector) -> Vector:
    size = absolute(x)
    n, quarter = rounded(size, table(x)["2/pi"][0], 0)
    return beyond(x, "cos", turned(less_quarters(size, n), quarter + 1))


def less_quarters(x: Vector, n: Vector) -> Vector:
    """x - n pi/2."""
    for part in table(x)["pi/2"]:
        x = fma(n, -part, x)
    return x


def turned(r: Vector, quarter: Vector) -> Vector:
    """sin(r + quarter pi/2); above its two lowest bits `quarter` may be anything."""
    square = r * r
    sine = fma(r * square, polynomial(square, table(r)["sin"]), r)
    cosine = fma(square, fma(square, polynomial(square, table(r)["cos"]), -0.5), 1.0)
    top = r.bits - 1
    value = where((quarter << top) < 0, cosine, sine)
    return from_bits(bits_of(value) ^ ((quarter & 2) << (top - 1)))


def sign_of(x: Vector) -> Vector:
    """The highest bit alone."""
    return bits_of(x) & -(1 << (x.bits - 1))


# Great arguments.


def beyond(x: Vector, fn: str, near: Vector) -> Vector:
    """`near`, but where an element is great, infinite or NaN, what the slow function gives."""
    b = x.builder
    great = any_lane(near.of(b.compare("uge", absolute(x).value, x.like(FAR).value)))
    b.open_branch("great")
    far = _by_element(x, fn, near)
    slow = b.close_branch()
    b.open_branch("usual")
    usual = b.close_branch()
    (value,) = b.close_branches(great.value, slow, usual, [(far.value, near.value)])
    return x.of(value)


def _by_element(x: Vector, fn: str, near: Vector) -> Vector:
    b, scalar = x.builder, Type(x.element)
    name = f"tg.{fn}.{scalar.short}"
    if name not in b.declarations:
        define_slow(b, fn, name)

    def slow(x: Value, near: Value) -> Value:
        return b.instruction(f"call {scalar} @{name}({scalar} {x}, {scalar} {near})", scalar)

    if not x.type.lanes:
        return x.of(slow(x.value, near.value))
    made = near.value
    for lane in range(x.type.lanes):
        one = slow(b.extract(x.value, lane), b.extract(near.value, lane))
        made = b.pure(f"insertelement {x.type} {made}, {scalar} {one}, i64 {lane}", x.type, (made, one))
    return x.of(made)


def define_slow(user: Builder, fn: str, name: str) -> None:
    """`float NAME(float x, float near)`: near itself where |x| is not great. `cold` keeps its cost out of the way."""
    b = Builder()
    scalar = Type("float")
    x, near = Vector(b, Value("%x", scalar)), Vector(b, Value("%near", scalar))
    quarter, r = quarter_turns(x)
    value = turned(r, quarter.converted("zext", "i64") + (fn == "cos"))
    result = convert(value, "float")
    if fn == "sin":
        result = from_bits(bits_of(result) ^ sign_of(x))
    finite = where(absolute(x) < float("inf"), result, float("nan"))
    chosen = where(absolute(x) < FAR, near, finite)
    head = f"define internal float @{name}(float %x, float %near) cold noinline {{"
    user.declarations |= b.declarations
    user.declarations[name] = "\n".join([head, *b.scopes[0].lines, f"  ret float {chosen.value}", "}"])


def quarter_turns(x: Vector) -> tuple[Vector, Vector]:
    """|x| = (n + f) pi/2 of a great x: n modulo 4, and f pi/2 in float64, |f| <= 1/2.

    |x| is m 2^e, m an integer. Of 2/pi, as 256 bits after the point, the 128 are taken whose products with m 2^e have
    weights from 2 down to 2^-126: what stands above makes whole turns, what stands below is too small to count.
    """
    b = x.builder
    pattern = bits_of(x)
    m = ((pattern & 0x7FFFFF) | 0x800000).converted("zext", "i128")
    e = ((pattern.shift_in_zeros(23) & 0xFF) - 150).converted("sext", "i256")
    two_over_pi = e.of(Value(str(TWO_OVER_PI), Type("i256")))
    window = two_over_pi.shift_in_zeros(256 + 2 - 128 - e).converted("trunc", "i128")
    product = m * window
    n = (product + (1 << 125)).shift_in_zeros(126).converted("trunc", "i32")
    fraction = (product << 2).shift_in_zeros(64).converted("trunc", "i64")
    return n, convert(fraction, "double") * HALF_PI_2_64
