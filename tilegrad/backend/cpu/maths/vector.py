r"""Vectors with operators: formulas of this package are Python expressions that emit LLVM IR.

Arithmetic on a `Vector` appends one instruction to its builder. Python numbers become constants of the other operand's
type. There are no fast-math flags: operations and their order are as written.

>>> from ..emit import Builder, Type, LlvmValue
>>> b = Builder()
>>> x = Vector(b, LlvmValue("%x", Type("float", 8)))
>>> y = fma(x, x, 1.0) * 0.5
>>> print(*b.scopes[0].lines, sep="\n")
  %fma = call <8 x float> @llvm.fma.v8f32(<8 x float> %x, <8 x float> %x, <8 x float> splat (float 0x3FF0000000000000))
  %v = fmul <8 x float> %fma, splat (float 0x3FE0000000000000)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..emit import Builder, LlvmValue, Type, constant

Number = float | int


class Vector:
    """An LLVM value, a vector or a scalar, with its builder."""

    __slots__ = ("builder", "for_float32", "value")

    def __init__(self, builder: Builder, value: LlvmValue, for_float32: bool = False) -> None:
        self.builder, self.value = builder, value
        self.for_float32 = for_float32
        """Whether a float64 is an intermediate of a float32 result, so that shorter polynomials suffice."""

    @property
    def type(self) -> Type:
        return self.value.type

    @property
    def element(self) -> str:
        return self.value.type.element

    @property
    def bits(self) -> int:
        return self.value.type.bits

    # Operands and instructions.

    def of(self, value: LlvmValue) -> Vector:
        return Vector(self.builder, value, self.for_float32)

    def like(self, x: Vector | Number) -> Vector:
        """Convert an operand: a vector as it is, a number to a constant in all lanes."""
        return x if isinstance(x, Vector) else self.of(constant(x, self.type))

    def binary(self, op: str, x: Vector | Number, y: Vector | Number) -> Vector:
        return self.of(self.builder.op(op, self.like(x).value, self.like(y).value))

    def intrinsic(self, name: str, *others: Vector | Number) -> Vector:
        operands = [self.value, *(self.like(x).value for x in others)]
        return self.of(self.builder.intrinsic(name, *operands, hint=name))

    def converted(self, opcode: str, element: str) -> Vector:
        return self.of(self.builder.convert(opcode, self.value, element))

    # Arithmetic, of floats or integers.

    def _arithmetic(self, op: str, x: Vector | Number, y: Vector | Number) -> Vector:
        return self.binary("f" + op if self.type.is_float else op, x, y)

    def __add__(self, y: Vector | Number) -> Vector:
        return self._arithmetic("add", self, y)

    def __radd__(self, y: Number) -> Vector:
        return self._arithmetic("add", y, self)

    def __sub__(self, y: Vector | Number) -> Vector:
        return self._arithmetic("sub", self, y)

    def __rsub__(self, y: Number) -> Vector:
        return self._arithmetic("sub", y, self)

    def __mul__(self, y: Vector | Number) -> Vector:
        return self._arithmetic("mul", self, y)

    def __rmul__(self, y: Number) -> Vector:
        return self._arithmetic("mul", y, self)

    def __truediv__(self, y: Vector | Number) -> Vector:
        return self.binary("fdiv", self, y)

    def __rtruediv__(self, y: Number) -> Vector:
        return self.binary("fdiv", y, self)

    def __neg__(self) -> Vector:
        if not self.type.is_float:
            return 0 - self
        return self.of(self.builder.pure(f"fneg {self.type} {self.value}", self.type, (self.value,)))

    # Bits of integers, and booleans.

    def __and__(self, y: Vector | Number) -> Vector:
        return self.binary("and", self, y)

    def __or__(self, y: Vector | Number) -> Vector:
        return self.binary("or", self, y)

    def __xor__(self, y: Vector | Number) -> Vector:
        return self.binary("xor", self, y)

    def __lshift__(self, y: Vector | Number) -> Vector:
        return self.binary("shl", self, y)

    def __rshift__(self, y: Vector | Number) -> Vector:
        """Return an arithmetic shift: integers are signed here."""
        return self.binary("ashr", self, y)

    def shift_in_zeros(self, y: Vector | Number) -> Vector:
        return self.binary("lshr", self, y)

    # Comparisons of floats are false if either side is NaN, except `differs`, which is true.

    def compare(self, predicate: str, y: Vector | Number) -> Vector:
        equality = predicate in ("eq", "ne")
        if self.type.is_float:
            full = "une" if predicate == "ne" else "o" + predicate
        else:
            full = predicate if equality else "s" + predicate
        return self.of(self.builder.compare(full, self.value, self.like(y).value))

    def __lt__(self, y: Vector | Number) -> Vector:
        return self.compare("lt", y)

    def __le__(self, y: Vector | Number) -> Vector:
        return self.compare("le", y)

    def __gt__(self, y: Vector | Number) -> Vector:
        return self.compare("gt", y)

    def __ge__(self, y: Vector | Number) -> Vector:
        return self.compare("ge", y)

    def equals(self, y: Vector | Number) -> Vector:
        return self.compare("eq", y)

    def differs(self, y: Vector | Number) -> Vector:
        return self.compare("ne", y)


def fma(x: Vector, y: Vector | Number, z: Vector | Number) -> Vector:
    """x * y + z, rounded once."""
    return x.intrinsic("fma", y, z)


def two_sum(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """x + y, and the exact rounding error of the sum."""
    total = x + y
    taken = total - x
    return total, (x - (total - taken)) + (y - taken)


def where(condition: Vector, x: Vector | Number, y: Vector | Number) -> Vector:
    shape = x if isinstance(x, Vector) else y
    assert isinstance(shape, Vector), "a choice of two numbers has no type"
    return shape.of(shape.builder.select(condition.value, shape.like(x).value, shape.like(y).value))


def polynomial(x: Vector, coefficients: Sequence[Number]) -> Vector:
    """Evaluate a polynomial by Horner's rule, lowest power first: shortest code; other elements hide its latency."""
    *rest, last = coefficients
    value = x.like(last)
    for coefficient in reversed(rest):
        value = fma(x, value, coefficient)
    return value


def at_least(x: Vector, bound: Number) -> Vector:
    """max(x, bound), keeping NaN: the order of the comparison is that of `maxps`, one instruction."""
    low = x.like(bound)
    return where(low > x, low, x)


def at_most(x: Vector, bound: Number) -> Vector:
    """min(x, bound), keeping NaN."""
    high = x.like(bound)
    return where(high < x, high, x)


def absolute(x: Vector) -> Vector:
    return x.intrinsic("fabs")


def copysign(magnitude: Vector | Number, sign: Vector) -> Vector:
    return sign.like(magnitude).intrinsic("copysign", sign)


def square_root(x: Vector) -> Vector:
    return x.intrinsic("sqrt")


def truncated(x: Vector) -> Vector:
    return x.intrinsic("trunc")


def bits_of(x: Vector) -> Vector:
    """Reinterpret a float as a signed integer."""
    return x.converted("bitcast", f"i{x.bits}")


def from_bits(x: Vector) -> Vector:
    return x.converted("bitcast", "float" if x.bits == 32 else "double")


def convert(x: Vector, element: str) -> Vector:
    """Convert between float types, or a signed integer to a float."""
    if not x.type.is_float:
        return x.converted("sitofp", element)
    return x.converted("fpext" if Type(element).bits > x.bits else "fptrunc", element)


def widened(x: Vector) -> Vector:
    """Widen a float32 to float64 for a function computed to float32 accuracy."""
    wide = convert(x, "double")
    return Vector(wide.builder, wide.value, for_float32=True)


def any_lane(condition: Vector) -> Vector:
    """Whether the condition is true in any lane."""
    if not condition.type.lanes:
        return condition
    value = condition.value
    return condition.of(
        condition.builder.call(f"llvm.vector.reduce.or.{value.type.short}", Type("i1"), value, hint="any")
    )
