"""Print expressions as C++ with a minimum of parentheses."""

from __future__ import annotations

import math

from ..ir.dtype import bool_, float32, int32, int64
from . import thread_ir as ir
from .builtin import FUNCTIONS
from .names import TYPES, cpp_name

PRECEDENCE = {
    **dict.fromkeys(("*", "/", "//", "%"), 12), **dict.fromkeys(("+", "-"), 11), **dict.fromkeys(("<<", ">>"), 10),
    **dict.fromkeys(("<", "<=", ">", ">="), 9), **dict.fromkeys(("==", "!="), 8), "&": 7, "^": 6, "|": 5,
    "and": 4, "or": 3, "?": 2,
}  # fmt: skip
"""Operator precedence in C++; higher binds tighter."""
ATOM_PRECEDENCE = 14
FENCED_ATOMIC = "ordering"
"""Wrapper for atomic operations in kernels whose threads synchronise through them."""
PARENTHESISED_PAIRS = frozenset(("&", "^", "|", "<<", ">>"))
"""Pairs of operators that get redundant parentheses for readability."""


class ExpressionWriter:
    """Prints expressions."""

    fenced: bool

    def expression(self, x: ir.Expression) -> str:
        return self.bound(x)[0]

    def raw(self, x: ir.Expression) -> str:
        """Return the 32-bit expression inside a conversion to int: sums and products of `threadIdx.x` and the like wrap
        alike.
        """
        return self.sums(x)[0] if is_sum(x) else self.expression(x)

    def sums(self, x: ir.Expression) -> tuple[str, int]:
        match x:
            case ir.BuiltinVariable(name=name):
                return name, ATOM_PRECEDENCE
            case ir.OperatorExpression(op=op, operands=(left, right)) if op in ("+", "-", "*"):
                strength = PRECEDENCE[op]
                first, second = self.sums(left), self.sums(right)
                return f"{_inside(first, strength)} {op} {_inside(second, strength + (op == '-'))}", strength
            case _:
                return self.bound(x)

    def short_circuit(self, op: str, left: ir.Expression, right: ir.Expression) -> tuple[str, int]:
        """Return the text of `and` or `or`; && inside || in parentheses, as compilers ask for."""
        strength, sides = PRECEDENCE[op], (self.bound(left), self.bound(right))
        if op == "and":
            return " && ".join([_inside(y, strength) for y in sides]), strength
        least = [ATOM_PRECEDENCE if y[1] == PRECEDENCE["and"] else strength for y in sides]
        return " || ".join(map(_inside, sides, least)), strength

    def bound(self, x: ir.Expression) -> tuple[str, int]:
        """Return the text and the precedence of its outermost operator."""
        match x:
            case ir.NumberLiteral():
                return literal(x), ATOM_PRECEDENCE
            case ir.VariableReference(name=name):
                return cpp_name(name), ATOM_PRECEDENCE
            case ir.BuiltinVariable(name=name):
                return f"int({name})", ATOM_PRECEDENCE
            case ir.ArrayElement(array=array, index=index):
                return cpp_name(array.name) + "".join(f"[{self.raw(i)}]" for i in index), ATOM_PRECEDENCE
            case ir.OperatorExpression():
                return self.operation(x)
            case ir.ShortCircuit(op=op, left=left, right=right):
                return self.short_circuit(op, left, right)
            case ir.Conditional(condition=condition, yes=yes, no=no):
                texts = [_inside(self.bound(y), 3) for y in (condition, yes, no)]
                return f"{texts[0]} ? {texts[1]} : {texts[2]}", PRECEDENCE["?"]
            case ir.Conversion(operand=ir.BuiltinVariable(name=name)) if x.dtype is int64:
                return f"(long long){name}", 13
            case ir.Conversion(operand=operand):
                return f"{_cast_name(TYPES[x.dtype])}({self.expression(operand)})", 13
            case _:
                return self.called(x), ATOM_PRECEDENCE

    def called(self, x: ir.Expression) -> str:
        match x:
            case ir.FunctionCall(operands=operands):
                return f"{cuda_function_name(x)}({', '.join(map(self.expression, operands))})"
            case ir.DeviceCall(routine=routine, arguments=arguments):
                given = [cpp_name(y.name) if isinstance(y, ir.Array) else self.expression(y) for y in arguments]
                return f"{routine.text}({', '.join(given)})"
            case ir.AtomicOperation(name=name, target=target, operands=operands):
                text = f"{name}({', '.join([f'&{self.expression(target)}', *map(self.expression, operands)])})"
                return f"{FENCED_ATOMIC}((__threadfence(), {text}))" if self.fenced else text
            case ir.WarpExchange(name=name, operands=(mask, *others), width=width):
                assert isinstance(mask, ir.NumberLiteral)
                more = [str(width)] if width != 32 else []
                return f"__{name}({', '.join([hex(int(mask.value)), *map(self.expression, others), *more])})"
            case _:
                raise NotImplementedError(type(x).__name__)

    def operation(self, x: ir.OperatorExpression) -> tuple[str, int]:
        if len(x.operands) == 1:
            return f"{'!' if x.op == 'not' else x.op}{_inside(self.bound(x.operands[0]), 13)}", 13
        strength = PRECEDENCE[x.op]
        op = "/" if x.op == "//" else x.op
        left, right = (self.bound(y) for y in x.operands)
        if x.op in PARENTHESISED_PAIRS:
            left, right = (_operand(y, x.op) for y in (left, right))
        return f"{_inside(left, strength)} {op} {_inside(right, strength + 1)}", strength


def _inside(text: tuple[str, int], strength: int) -> str:
    return text[0] if text[1] >= strength else f"({text[0]})"


def _operand(text: tuple[str, int], op: str) -> tuple[str, int]:
    return text if text[1] >= 13 else (f"({text[0]})", ATOM_PRECEDENCE)


def is_sum(x: ir.Expression) -> bool:
    """Whether an expression is an int computed by sums and products only."""
    match x:
        case ir.OperatorExpression(op="+" | "-" | "*", operands=(left, right)):
            return x.dtype is int32 and (is_sum(left) or is_sum(right))
        case _:
            return isinstance(x, ir.BuiltinVariable)


def literal(x: ir.NumberLiteral) -> str:
    """Print a number as a C++ literal.

    >>> [literal(ir.NumberLiteral(dtype, x)) for dtype, x in ((float32, 0.5), (int64, 2), (bool_, True))]
    ['0.5f', '2LL', 'true']
    """
    value = x.value
    if x.dtype is bool_:
        return "true" if value else "false"
    if not x.dtype.is_float:
        suffix = {"int64": "LL", "uint64": "ULL", "uint32": "u"}.get(x.dtype.name, "")
        if value == x.dtype.min and value < 0:
            return f"({value + 1}{suffix} - 1)"
        return f"{value}{suffix}"
    if math.isfinite(value):
        return f"{value!r}f" if x.dtype is float32 else repr(float(value))
    bits = "0x7fc00000" if value != value else "0x7f800000" if value > 0 else "0xff800000"
    return f"__int_as_float({bits})"


def cuda_function_name(x: ir.FunctionCall) -> str:
    """Return the name of a function in CUDA C++."""
    if x.name in ("min", "max", "abs") and x.dtype.is_float:
        return f"f{x.name}{'f' if x.dtype is float32 else ''}"
    if x.name == "popc":
        return "__popcll" if x.operands[0].dtype.bits == 64 else "__popc"
    return FUNCTIONS[x.name].spelled or f"{x.name}{'f' if x.dtype is float32 else ''}"


def _cast_name(type: str) -> str:
    """Return a type as a conversion names it: in parentheses if it is several words."""
    return f"({type})" if " " in type else type
