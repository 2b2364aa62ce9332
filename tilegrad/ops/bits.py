"""Bitwise operations on integers, and logic on bools."""

from __future__ import annotations

from typing import final

from ..ir.graph import Value
from .base import Binary, Operand, Unary, pair
from .cast import to_bool


class Bits(Binary):
    """Bitwise binary ops, without gradients."""

    differentiable = False

    def share_x(self, upstream: Value) -> Value | None:
        return None

    def share_y(self, upstream: Value) -> Value | None:
        return None


@final
class BitAnd(Bits):
    fn = "bitand"


@final
class BitOr(Bits):
    fn = "bitor"


@final
class BitXor(Bits):
    fn = "bitxor"


@final
class ShiftLeft(Bits):
    """Left shift; 0 if the distance is negative or not less than the width of the type."""

    fn = "shl"


@final
class ShiftRight(Bits):
    """Arithmetic right shift; if the distance is negative or not less than the width of the type, only sign bits
    remain: 0 or -1.
    """

    fn = "shr"


@final
class Invert(Unary):
    """Bitwise complement."""

    fn = "invert"
    differentiable = False

    def share_x(self, upstream: Value) -> Value | None:
        return None


def bitwise_and(x: Operand, y: Operand) -> Value:
    return BitAnd(*pair(x, y))


def bitwise_or(x: Operand, y: Operand) -> Value:
    return BitOr(*pair(x, y))


def bitwise_xor(x: Operand, y: Operand) -> Value:
    return BitXor(*pair(x, y))


def bitwise_not(x: Value) -> Value:
    return Invert(x)


def shift_left(x: Operand, y: Operand) -> Value:
    return ShiftLeft(*pair(x, y))


def shift_right(x: Operand, y: Operand) -> Value:
    return ShiftRight(*pair(x, y))


def logical_and(x: Value, y: Value) -> Value:
    return BitAnd(to_bool(x), to_bool(y))


def logical_or(x: Value, y: Value) -> Value:
    return BitOr(to_bool(x), to_bool(y))


def logical_xor(x: Value, y: Value) -> Value:
    return BitXor(to_bool(x), to_bool(y))


def logical_not(x: Value) -> Value:
    return Invert(to_bool(x))
