"""Emit elementary functions (exponentials, logarithms, ...) that have no instruction."""

from __future__ import annotations

from . import maths
from .emit import Builder, LlvmValue, Type
from .maths.vector import Vector


def elementary_function(b: Builder, fn: str, args: tuple[LlvmValue, ...]) -> LlvmValue:
    """Emit an elementary function of float32 or float64 values."""
    if maths.has(fn, args[0].type):
        return maths.emit(b, fn, args)
    return _by_lane(b, fn, args)


def one_plus_erf(b: Builder, x: LlvmValue) -> LlvmValue:
    """Emit 1 + erf(x sqrt(1/2)) of a float32."""
    from .maths import error

    return error.one_plus_erf(Vector(b, x)).value


def _by_lane(b: Builder, fn: str, args: tuple[LlvmValue, ...]) -> LlvmValue:
    """Call the C library's function lane by lane."""
    type = args[0].type
    scalar = Type(type.element)
    if fn == "sigmoid":
        from .emit import constant

        e = _by_lane(b, "exp", (b.pure(f"fneg {type} {args[0]}", type, args),))
        one = constant(1.0, type)
        return b.op("fdiv", one, b.op("fadd", one, e))
    name = fn + ("f" if type.element == "float" else "")
    if not type.lanes:
        return b.call(name, type, *args)
    made = LlvmValue("poison", type)
    for lane in range(type.lanes):
        one = b.call(name, scalar, *(b.extract(a, lane) for a in args))
        made = b.pure(f"insertelement {type} {made}, {scalar} {one}, i64 {lane}", type, (made, one))
    return made
