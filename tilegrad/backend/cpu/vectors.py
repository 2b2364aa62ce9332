"""Elementwise functions, casts and memory formats as vector instructions.

Arguments are scalars or vectors of equal lanes, in the register format of their dtype (`emit.element_type`). float16
and bfloat16 are computed in float32 and rounded after each function. No fast-math flag is set: NaN, infinities and
signed zeros come out as the function table says. An integer division by zero gives 0 and never reaches the divider.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.dtype import FLOAT8, DType, bfloat16, bool_, float16, float32, float64
from .emit import Builder, LlvmValue, Type, constant, dtype_constant, element_type

Rule = Callable[[Builder, DType, tuple[LlvmValue, ...]], LlvmValue]


def apply(b: Builder, fn: str, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    """Emit a function of the table on arguments of one dtype (`where`: a bool and two of the dtype)."""
    if fn == "where":
        return _where(b, *args)
    lanes = max(a.type.lanes for a in args)
    args = tuple([b.splat(a, lanes) for a in args])
    if dtype in (float16, bfloat16) and fn not in ("neg", "abs", "copysign"):
        wide = tuple([cast(b, a, dtype, float32) for a in args])
        made = apply(b, fn, float32, wide)
        return made if made.type.element == "i1" else cast(b, made, float32, dtype)
    rule = _RULES.get(fn)
    if rule is not None:
        return rule(b, dtype, args)
    from .elementary import elementary_function

    return elementary_function(b, fn, args)


def _where(b: Builder, condition: LlvmValue, x: LlvmValue, y: LlvmValue) -> LlvmValue:
    if condition.text in ("true", "splat (i1 true)"):
        return x
    if condition.text in ("false", "splat (i1 false)"):
        return y
    lanes = max(condition.type.lanes, x.type.lanes, y.type.lanes)
    if condition.type.lanes:
        return b.select(condition, b.splat(x, lanes), b.splat(y, lanes))
    x, y = b.splat(x, lanes), b.splat(y, lanes)
    return b.select(condition, x, y)


def _is_signed(dtype: DType) -> bool:
    return dtype.kind == "int"


def _arithmetic(floating: str, integer: str) -> Rule:
    return lambda b, dtype, args: b.op(floating if dtype.is_float else integer, args[0], args[1])


def _comparison(floating: str, signed: str, unsigned: str) -> Rule:
    def compared(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
        predicate = floating if dtype.is_float else signed if _is_signed(dtype) else unsigned
        return b.compare(predicate, args[0], args[1])

    return compared


def _divided(b: Builder, x: LlvmValue, y: LlvmValue, signed: bool) -> tuple[LlvmValue, LlvmValue, LlvmValue]:
    """Replace a divisor that would trap; return it, the dividend, and whether the divisor was 0."""
    zero, one = constant(0, x.type), constant(1, x.type)
    if y.is_constant and y.text not in (zero.text, "zeroinitializer"):
        nothing = constant(False, x.type.of("i1"))
        if y.text != constant(-1, x.type).text or not signed:
            return x, y, nothing
    nothing = b.compare("eq", y, zero)
    safe = b.select(nothing, one, y)
    if signed:  # the least integer by -1 overflows and traps; its quotient wraps to itself, as by 1
        least = constant(-(1 << (x.type.bits - 1)), x.type)
        overflows = b.op("and", b.compare("eq", x, least), b.compare("eq", y, constant(-1, x.type)))
        safe = b.select(overflows, one, safe)
    return x, safe, nothing


def floor_divided(b: Builder, x: LlvmValue, y: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """Quotient and remainder of signed integers, rounded down; the divisor must not be 0."""
    zero, one = constant(0, x.type), constant(1, x.type)
    quotient, rest = b.op("sdiv", x, y, "quotient"), b.op("srem", x, y, "rest")
    opposed = b.compare("slt", b.op("xor", rest, y), zero)
    down = b.op("and", opposed, b.compare("ne", rest, zero), "down")
    return b.select(down, b.op("sub", quotient, one), quotient), b.select(down, b.op("add", rest, y), rest)


def _integer_division(which: str) -> Rule:
    """floordiv, mod, truncdiv or fmod of integers, or of floats."""

    def divided(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
        if dtype.is_float:
            return _float_division(b, which, *args)
        signed = _is_signed(dtype)
        x, y, nothing = _divided(b, args[0], args[1], signed)
        if signed and which in ("floordiv", "mod"):
            quotient, rest = floor_divided(b, x, y)
            made = quotient if which == "floordiv" else rest
        else:
            opcode = "div" if which in ("floordiv", "truncdiv") else "rem"
            made = b.op(("s" if signed else "u") + opcode, x, y)
        if nothing.is_constant:
            return made
        return b.select(nothing, constant(0, made.type), made)

    return divided


def _float_division(b: Builder, which: str, x: LlvmValue, y: LlvmValue) -> LlvmValue:
    from .elementary import elementary_function

    if which == "truncdiv":
        return b.intrinsic("trunc", b.op("fdiv", x, y))
    rest = elementary_function(b, "fmod", (x, y))
    if which == "fmod":
        return rest
    # As in numpy: the remainder takes the divisor's sign, the quotient is rounded from x - rest.
    zero, one = constant(0.0, x.type), constant(1.0, x.type)
    nonzero = b.compare("une", rest, zero)
    opposed = b.op("xor", b.compare("olt", y, zero), b.compare("olt", rest, zero))
    shift = b.op("and", nonzero, opposed)
    moved = b.select(shift, b.op("fadd", rest, y), b.select(nonzero, rest, b.intrinsic("copysign", zero, y)))
    if which == "mod":
        return b.select(b.compare("oeq", y, zero), rest, moved)
    quotient = b.op("fdiv", b.op("fsub", x, rest), y)
    quotient = b.select(shift, b.op("fsub", quotient, one), quotient)
    floor = b.intrinsic("floor", quotient)
    up = b.compare("ogt", b.op("fsub", quotient, floor), constant(0.5, x.type))
    rounded = b.select(up, b.op("fadd", floor, one), floor)
    ratio = b.op("fdiv", x, y)
    rounded = b.select(b.compare("une", quotient, zero), rounded, b.intrinsic("copysign", zero, ratio))
    return b.select(b.compare("oeq", y, zero), ratio, rounded)


def _extreme(floating: str, signed: str, unsigned: str, logical: str) -> Rule:
    """maximum or minimum; vector instructions return their second operand if one is NaN, so a constant comes first."""

    def chosen(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
        x, y = args
        if dtype is bool_:
            return b.op(logical, x, y)
        if not dtype.is_float:
            return b.intrinsic(signed if _is_signed(dtype) else unsigned, x, y)
        if y.is_constant:
            x, y = y, x
        best = b.select(b.compare(floating, x, y), x, y)
        if x.is_constant and "7FF8" not in x.text:
            return best
        return b.select(b.compare("uno", x, x), x, best)

    return chosen


def _neg(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    (x,) = args
    if dtype is bfloat16:
        return b.op("xor", x, constant(-0x8000, x.type))
    if dtype.is_float:
        return b.pure(f"fneg {x.type} {x}", x.type, (x,))
    return b.op("sub", constant(0, x.type), x)


def _abs(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    (x,) = args
    if dtype is bfloat16:
        return b.op("and", x, constant(0x7FFF, x.type))
    if dtype.is_float:
        return b.intrinsic("fabs", x)
    if not _is_signed(dtype):
        return x
    return b.intrinsic("smax", x, b.op("sub", constant(0, x.type), x))


def _copysign(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    x, y = args
    if dtype is bfloat16:
        size, sign = constant(0x7FFF, x.type), constant(-0x8000, x.type)
        return b.op("or", b.op("and", x, size), b.op("and", y, sign))
    return b.intrinsic("copysign", x, y)


def _mulhi(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    x, y = (b.convert("zext", a, "i64") for a in args)
    high = b.op("lshr", b.op("mul", x, y), constant(32, x.type))
    return b.convert("trunc", high, "i32")


def _shift(left: bool) -> Rule:
    """Shifts by at least the width, or by less than 0, give 0; arithmetic right shifts give the sign."""

    def shifted(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
        x, y = args
        bits = x.type.bits
        width = constant(bits, x.type)
        inside = b.compare("ult", y, width)
        if left:
            safe = b.select(inside, y, constant(0, x.type))
            return b.select(inside, b.op("shl", x, safe), constant(0, x.type))
        safe = b.select(inside, y, constant(bits - 1, x.type))
        if _is_signed(dtype):
            return b.op("ashr", x, safe)
        return b.select(inside, b.op("lshr", x, safe), constant(0, x.type))

    return shifted


def _invert(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    (x,) = args
    return b.op("xor", x, constant(True if dtype is bool_ else -1, x.type))


def _isinf(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    return b.compare("oeq", b.intrinsic("fabs", args[0]), constant(float("inf"), args[0].type))


def _power(b: Builder, dtype: DType, args: tuple[LlvmValue, ...]) -> LlvmValue:
    """Integer powers by repeated squaring over all bits of the exponent; floats have a function of their own."""
    if dtype.is_float:
        from .elementary import elementary_function

        return elementary_function(b, "pow", args)
    x, y = args
    one, zero = constant(1, x.type), constant(0, x.type)
    signed = _is_signed(dtype)
    negative = b.compare("slt", y, zero) if signed else constant(False, x.type.of("i1"))
    result, base = one, x
    bits = x.type.bits if not y.is_constant else 64
    for n in range(min(bits, x.type.bits)):
        odd = b.compare("ne", b.op("and", b.op("lshr", y, constant(n, x.type)), one), zero)
        result = b.select(odd, b.op("mul", result, base), result)
        base = b.op("mul", base, base)
    if not signed:
        return result
    odd = b.compare("ne", b.op("and", y, one), zero)
    minus = constant(-1, x.type)
    of_minus_one = b.select(b.compare("eq", x, minus), b.select(odd, minus, one), zero)
    return b.select(negative, b.select(b.compare("eq", x, one), one, of_minus_one), result)


def _intrinsic(name: str) -> Rule:
    return lambda b, dtype, args: b.intrinsic(name, *args)


_RULES: dict[str, Rule] = {
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": lambda b, dtype, args: b.op("fdiv", args[0], args[1]),
    "floordiv": _integer_division("floordiv"),
    "mod": _integer_division("mod"),
    "truncdiv": _integer_division("truncdiv"),
    "fmod": _integer_division("fmod"),
    "pow": _power,
    "neg": _neg,
    "abs": _abs,
    "copysign": _copysign,
    "maximum": _extreme("ogt", "smax", "umax", "or"),
    "minimum": _extreme("olt", "smin", "umin", "and"),
    "fma": lambda b, dtype, args: b.op("fadd", b.op("fmul", args[0], args[1]), args[2]),
    "mulhi": _mulhi,
    "eq": _comparison("oeq", "eq", "eq"),
    "ne": _comparison("une", "ne", "ne"),
    "lt": _comparison("olt", "slt", "ult"),
    "le": _comparison("ole", "sle", "ule"),
    "gt": _comparison("ogt", "sgt", "ugt"),
    "ge": _comparison("oge", "sge", "uge"),
    "isnan": lambda b, dtype, args: b.compare("uno", args[0], args[0]),
    "isinf": _isinf,
    "bitand": lambda b, dtype, args: b.op("and", args[0], args[1]),
    "bitor": lambda b, dtype, args: b.op("or", args[0], args[1]),
    "bitxor": lambda b, dtype, args: b.op("xor", args[0], args[1]),
    "invert": _invert,
    "shl": _shift(True),
    "shr": _shift(False),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _intrinsic("roundeven"),
    "trunc": _intrinsic("trunc"),
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": lambda b, dtype, args: b.op("fdiv", constant(1.0, args[0].type), b.intrinsic("sqrt", args[0])),
}


# Conversions.


def cast(b: Builder, x: LlvmValue, source: DType, target: DType) -> LlvmValue:
    """Convert elements to another dtype; floats beyond an integer's range saturate."""
    if source is target:
        return x
    if source is bfloat16:
        return cast(b, _from_bfloat16(b, x), float32, target)
    if source in FLOAT8:
        from . import float8

        return cast(b, float8.widen_float8(b, x, source), float32, target)
    if target is bool_:
        return b.compare("une" if source.is_float else "ne", x, constant(0, x.type))
    if target is bfloat16:
        return _to_bfloat16(b, cast(b, x, source, float32))
    if target in FLOAT8:
        from . import float8

        return float8.round_to_float8(b, cast(b, x, source, float32), target)
    if source.is_float:
        return _cast_float(b, x, source, target)
    return _cast_integer(b, x, source, target)


def _cast_float(b: Builder, x: LlvmValue, source: DType, target: DType) -> LlvmValue:
    if source is float64 and target is float16:
        # There is no such instruction. LLVM merges both steps if only the sign is used (copysign), and then calls a
        # library function; `freeze` prevents that.
        single = cast(b, x, float64, float32)
        return cast(b, b.pure(f"freeze {single.type} {single}", single.type, (single,), "v"), float32, float16)
    if target.is_float:
        return b.convert("fpext" if target.bits > source.bits else "fptrunc", x, element_type(target))
    return _float_to_integer(b, x, target)


def _cast_integer(b: Builder, x: LlvmValue, source: DType, target: DType) -> LlvmValue:
    element = element_type(target)
    if target.is_float:
        if source is bool_:
            return b.select(x, constant(1.0, x.type.of(element)), constant(0.0, x.type.of(element)))
        return b.convert("sitofp" if _is_signed(source) else "uitofp", x, element)
    if target.bits <= source.bits and source is not bool_:
        return b.convert("trunc", x, element) if target.bits < source.bits else x
    return b.convert("sext" if _is_signed(source) else "zext", x, element)


def _float_to_integer(b: Builder, x: LlvmValue, target: DType) -> LlvmValue:
    """Convert to an integer; small integers go through int32, as the hardware does it, and keep its low bits."""
    wide = "i64" if target.bits == 64 or target.name == "uint32" else "i32"
    unsigned = target.name == "uint64"
    made = x.type.of(wide)
    name = f"llvm.fpto{'u' if unsigned else 's'}i.sat.{made.short}.{x.type.short}"
    whole = b.call(name, made, x)
    return b.convert("trunc", whole, f"i{target.bits}") if target.bits < made.bits else whole


def _from_bfloat16(b: Builder, x: LlvmValue) -> LlvmValue:
    wide = b.convert("zext", x, "i32")
    return b.convert("bitcast", b.op("shl", wide, constant(16, wide.type)), "float", "wide")


def _to_bfloat16(b: Builder, x: LlvmValue) -> LlvmValue:
    """Round to nearest even; NaN stays NaN."""
    bits = b.convert("bitcast", x, "i32", "bits")
    type = bits.type
    odd = b.op("and", b.op("lshr", bits, constant(16, type)), constant(1, type))
    rounded = b.op("add", b.op("add", bits, constant(0x7FFF, type)), odd)
    quiet = b.op("or", bits, constant(0x400000, type))
    chosen = b.select(b.compare("uno", x, x), quiet, rounded)
    return b.convert("trunc", b.op("lshr", chosen, constant(16, type)), "i16", "narrow")


def bitcast(b: Builder, x: LlvmValue, target: DType) -> LlvmValue:
    """Reinterpret the bits as another type."""
    return b.convert("bitcast", x, element_type(target))


# What memory holds: bool as bytes.


def memory_element(dtype: DType) -> str:
    """Return the LLVM element type of a dtype in memory: bool is a byte."""
    return "i8" if dtype is bool_ else element_type(dtype)


def from_memory(b: Builder, x: LlvmValue, dtype: DType) -> LlvmValue:
    """Convert a loaded value to its register format."""
    return b.compare("ne", x, constant(0, x.type)) if dtype is bool_ else x


def to_memory(b: Builder, x: LlvmValue, dtype: DType) -> LlvmValue:
    """Convert a value to its memory format."""
    return b.convert("zext", x, "i8") if dtype is bool_ else x


def zero(dtype: DType, lanes: int) -> LlvmValue:
    """Return a vector of zeros."""
    return dtype_constant(0, dtype, lanes)


def lanes_type(dtype: DType, lanes: int) -> Type:
    """Return the type of a vector of a dtype."""
    return Type(element_type(dtype), lanes)
