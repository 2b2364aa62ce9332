"""Compile load-free expressions to numpy functions over a group of threads."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..ir.dtype import DType
from ..tiles.read.source import KernelLocation
from . import thread_ir as ir
from .builtin import FUNCTIONS
from .lanes import LaneGroup

Evaluate: TypeAlias = Callable[[LaneGroup], Any]


class EvaluationFault(Exception):
    """A fault in evaluation; `mask` marks the threads of the group that caused it."""

    def __init__(self, place: KernelLocation, mask: Any, reason: str) -> None:
        super().__init__(reason)
        self.place, self.mask, self.reason = place, mask, reason


PLAIN: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": np.true_divide, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": np.left_shift, ">>": np.right_shift, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def compile_expression(x: ir.Expression, rename: Callable[[str], str]) -> Evaluate:
    """Compile an expression to a function; `rename` maps variables to their names in the chunk."""

    def made(y: ir.Expression) -> Evaluate:
        return compile_expression(y, rename)

    match x:
        case ir.NumberLiteral(dtype=dtype, value=value):
            number = dtype.numpy.type(value)
            return lambda lanes: number
        case ir.VariableReference(name=name):
            full = rename(name)
            return lambda lanes: lanes.variable(full)
        case ir.BuiltinVariable(name=name):
            return lambda lanes: lanes.of(lanes.chunk.special(name))
        case ir.Conversion(dtype=dtype, operand=operand):
            inner, wanted = made(operand), dtype.numpy
            return lambda lanes: inner(lanes).astype(wanted)
        case ir.OperatorExpression():
            return operation(x, [made(y) for y in x.operands])
        case ir.FunctionCall(name=name, operands=operands):
            return function(FUNCTIONS[name].meaning, [made(y) for y in operands], x.dtype)
        case ir.ShortCircuit(op=op, left=left, right=right):
            first, second = made(left), made(right)
            return (
                (lambda lanes: first(lanes) & second(lanes))
                if op == "and"
                else (lambda lanes: first(lanes) | second(lanes))
            )
        case ir.Conditional(dtype=dtype, condition=condition, yes=yes, no=no):
            return choice(made(condition), made(yes), made(no), dtype)
        case _:
            raise NotImplementedError(type(x).__name__)


def function(meaning: Callable[..., Any], operands: list[Evaluate], dtype: DType) -> Evaluate:
    wanted = dtype.numpy

    def computed(lanes: LaneGroup) -> Any:
        found: Any = meaning(*[f(lanes) for f in operands])
        return found.astype(wanted) if found.ndim else wanted.type(found)

    return computed


def choice(condition: Evaluate, yes: Evaluate, no: Evaluate, dtype: DType) -> Evaluate:
    wanted = dtype.numpy.type

    def chosen(lanes: LaneGroup) -> Any:
        found: Any = np.where(condition(lanes), yes(lanes), no(lanes))
        return found if found.ndim else wanted(found)

    return chosen


def operation(x: ir.OperatorExpression, operands: list[Evaluate]) -> Evaluate:
    if len(operands) == 1:
        (operand,) = operands
        match x.op:
            case "not":
                return lambda lanes: np.logical_not(operand(lanes))
            case "-":
                return lambda lanes: np.negative(operand(lanes))
            case _:
                return lambda lanes: np.invert(operand(lanes))
    left, right = operands
    if x.op in ("//", "%"):
        return division(x, left, right)
    plain = PLAIN[x.op]
    if x.op in ("<<", ">>"):
        return shift(x, left, right)
    return lambda lanes: plain(left(lanes), right(lanes))


def division(x: ir.OperatorExpression, left: Evaluate, right: Evaluate) -> Evaluate:
    """Divide as in C: quotient truncated towards zero, and remainder."""
    place, remainder = x.place, x.op == "%"

    def divided(lanes: LaneGroup) -> Any:
        above, below = left(lanes), right(lanes)
        zero = below == 0
        if np.any(zero):
            raise EvaluationFault(place, zero, f"{'remainder of a' if remainder else ''} division by zero".strip())
        rest = np.fmod(above, below)
        return rest if remainder else (above - rest) // below

    return divided


def shift(x: ir.OperatorExpression, left: Evaluate, right: Evaluate) -> Evaluate:
    place, bits, plain = x.place, x.dtype.bits, PLAIN[x.op]

    def shifted(lanes: LaneGroup) -> Any:
        by = right(lanes)
        wrong = (by < 0) | (by >= bits)
        if np.any(wrong):
            raise EvaluationFault(
                place, wrong, f"a shift by {first_masked(by, wrong)} bits of a number that has {bits}"
            )
        return plain(left(lanes), by)

    return shifted


def first_masked(values: Any, mask: Any) -> Any:
    """Return the first value at which a mask is true."""
    return values[np.argmax(mask)] if np.ndim(values) else values
