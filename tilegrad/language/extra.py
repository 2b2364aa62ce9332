"""`libdevice`: the names of `tl.math` and further functions of CUDA's libdevice, written in the tile language.

from tilegrad.language.extra import libdevice
"""

# mypy: ignore-errors
# (In kernels a constexpr is the number that it stands for.)

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..tiles.read import core as tl
from .kernel import kernel


@kernel
def hypot(x: Any, y: Any) -> Any:
    """Compute sqrt(x * x + y * y) without intermediate overflow."""
    a = tl.maximum(tl.abs(x), tl.abs(y))
    b = tl.minimum(tl.abs(x), tl.abs(y))
    ratio = tl.where(a == b, 1.0, b / a)  # 0 / 0, inf / inf
    return tl.where(a == 0.0, a, a * tl.sqrt(1.0 + ratio * ratio))


@kernel
def rhypot(x: Any, y: Any) -> Any:
    """Compute 1 / hypot(x, y)."""
    return 1.0 / hypot(x, y)


@kernel
def cbrt(x: Any) -> Any:
    """Compute the cube root, refined by one Newton step."""
    guess = tl.math.copysign(tl.exp2(tl.log2(tl.abs(x)) / 3.0), x)
    better = guess - (guess - x / (guess * guess)) / 3.0
    plain = (x == 0.0) | tl.math.isinf(x) | (x != x)
    return tl.where(plain, x, better)


@kernel
def rcbrt(x: Any) -> Any:
    """Compute 1 / cbrt(x)."""
    return 1.0 / cbrt(x)


@kernel
def exp10(x: Any) -> Any:
    """Compute 10 ** x."""
    return tl.math.pow(10.0, x)


@kernel
def sinpi(x: Any) -> Any:
    """Compute sin(pi * x)."""
    return tl.sin((x - 2.0 * tl.math.round(x * 0.5)) * 3.141592653589793)


@kernel
def cospi(x: Any) -> Any:
    """Compute cos(pi * x)."""
    return tl.cos((x - 2.0 * tl.math.round(x * 0.5)) * 3.141592653589793)


@kernel
def normcdf(x: Any) -> Any:
    """Compute the cumulative distribution function of the standard normal distribution."""
    return 0.5 * tl.math.erfc(x * -0.7071067811865476)


@kernel
def fmax(x: Any, y: Any) -> Any:
    """Return the greater number; NaN loses."""
    return tl.where(x != x, y, tl.where(y != y, x, tl.maximum(x, y)))


@kernel
def fmin(x: Any, y: Any) -> Any:
    """Return the smaller number; NaN loses."""
    return tl.where(x != x, y, tl.where(y != y, x, tl.minimum(x, y)))


@kernel
def fdim(x: Any, y: Any) -> Any:
    """Return x - y where it is positive, else 0."""
    return tl.where(x <= y, 0.0, x - y)


@kernel
def remainder(x: Any, y: Any) -> Any:
    """Return x minus the nearest multiple of y (for quotients that the type can count)."""
    return x - y * tl.math.round(x / y)


@kernel
def saturatef(x: Any) -> Any:
    """Clamp x to [0, 1]; NaN becomes 0."""
    return tl.where(x != x, 0.0, tl.clamp(x, 0.0, 1.0))


@kernel
def signbit(x: Any) -> Any:
    """Whether the sign bit is set, also for -0 and NaN."""
    return (tl.math.copysign(1.0, x) < 0.0).to(tl.int32)


@kernel
def isfinited(x: Any) -> Any:
    """Whether x is neither infinite nor NaN."""
    return (tl.abs(x) < float("inf")).to(tl.int32)


@kernel
def add_rn(x: Any, y: Any) -> Any:
    """Add, rounded to nearest."""
    return x + y


@kernel
def sub_rn(x: Any, y: Any) -> Any:
    """Subtract, rounded to nearest."""
    return x - y


@kernel
def mul_rn(x: Any, y: Any) -> Any:
    """Multiply, rounded to nearest."""
    return x * y


@kernel
def llrint(x: Any) -> Any:
    """Round to the nearest 64-bit integer, ties to even."""
    return tl.math.round(x).to(tl.int64)


@kernel
def popc(x: Any) -> Any:
    """Count the bits that are set."""
    v = x.to(tl.uint32, bitcast=True)
    v = v - ((v >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    return ((((v + (v >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(tl.int32)


@kernel
def clz(x: Any) -> Any:
    """Count leading zero bits."""
    v = x.to(tl.uint32, bitcast=True)
    v = v | (v >> 1)
    v = v | (v >> 2)
    v = v | (v >> 4)
    v = v | (v >> 8)
    v = v | (v >> 16)
    return 32 - popc(v)


@kernel
def ffs(x: Any) -> Any:
    """Return the 1-based position of the lowest set bit, 0 if there is none."""
    return tl.where(x == 0, 0, 32 - clz(x & -x))


@kernel
def brev(x: Any) -> Any:
    """Reverse the bits."""
    v = x.to(tl.uint32, bitcast=True)
    v = ((v >> 1) & 0x55555555) | ((v & 0x55555555) << 1)
    v = ((v >> 2) & 0x33333333) | ((v & 0x33333333) << 2)
    v = ((v >> 4) & 0x0F0F0F0F) | ((v & 0x0F0F0F0F) << 4)
    v = ((v >> 8) & 0x00FF00FF) | ((v & 0x00FF00FF) << 8)
    return ((v >> 16) | (v << 16)).to(x.dtype, bitcast=True)


@kernel
def mulhi(x: Any, y: Any) -> Any:
    """Return the high 32 bits of the product of two 32-bit integers."""
    return ((x.to(tl.int64) * y.to(tl.int64)) >> 32).to(tl.int32)


@kernel
def mul24(x: Any, y: Any) -> Any:
    """Multiply two 24-bit integers."""
    return x * y


_own = {name: fn for name, fn in globals().items() if type(fn) is type(hypot)}
_maths = vars(tl.math)
_renamed = {
    "nearbyint": _maths["round"], "rsqrt_rn": tl.rsqrt, "finitef": isfinited, "llround": llrint,
    "fast_expf": tl.exp, "fast_logf": tl.log, "fast_log2f": tl.log2, "fast_log10f": _maths["log10"],
    "fast_sinf": tl.sin, "fast_cosf": tl.cos, "fast_tanf": _maths["tan"], "fast_tanhf": _maths["tanh"],
    "fast_exp10f": exp10, "fast_powf": _maths["pow"], "fast_dividef": tl.fdiv, "fast_fdividef": tl.fdiv,
}  # fmt: skip
libdevice = SimpleNamespace(**_maths, **_own, **_renamed)

__all__ = ["libdevice"]
