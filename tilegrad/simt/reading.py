"""Read expressions: fold Python constants, and build typed expressions from the rest."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..errors import KernelSourceError
from ..ir.dtype import DType, bool_, float32, int32, int64
from ..lazy.handle import Handle
from ..tiles.read.values import constexpr
from . import thread_ir as ir
from .builtin import PYTHON_FUNCTIONS, IndexVector, ThreadBuiltin
from .kinds import Constant, UnsupportedCode, common_dtype, convert_to, describe, is_half, kind_of, number_kind
from .scope import RoutineScope

ARITHMETIC: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: (
        "//",
        lambda x, y: x // y if isinstance(x, float) or isinstance(y, float) else truncated_quotient(x, y),
    ),
    ast.Mod: (
        "%",
        lambda x, y: x % y if isinstance(x, float) or isinstance(y, float) else x - y * truncated_quotient(x, y),
    ),
    ast.Pow: ("**", operator.pow),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
COMPARISONS: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
AXES = ("x", "y", "z")
REMEDIES: dict[type, str] = {
    ast.ListComp: "kernels have no comprehensions: write a loop over a local array (simt.local)",
    ast.GeneratorExp: "kernels have no comprehensions: write a loop",
    ast.Lambda: "functions in kernels are written outside of them, with @simt.device",
    ast.Dict: "kernels have no dictionaries",
    ast.List: "kernels have no lists: simt.local(simt.float32, 8) is an array of a thread's own",
    ast.Tuple: "a tuple stands only for an index or a shape here",
    ast.NamedExpr: "write the assignment on a line of its own",
    ast.JoinedStr: "kernels have no texts",
    ast.Slice: "an element has one index along each axis: slices are not part of the language, write a loop",
}


def truncated_quotient(x: int, y: int) -> int:
    """Divide integers, truncating towards zero as in C.

    >>> truncated_quotient(-7, 2), truncated_quotient(7, 2)
    (-3, 3)
    """
    return -(-x // y) if (x < 0) != (y < 0) else x // y


class ThreadExpressionReader:
    """Reads expressions; `calls.py` adds calls."""

    scope: RoutineScope

    def call(self, node: ast.Call) -> Any:
        raise NotImplementedError

    # --- values ----------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """Evaluate to an Expression, an Array, or a Python value known now."""
        try:
            return self.found(node)
        except KernelSourceError:
            raise
        except UnsupportedCode as refused:
            raise self.scope.wrong(node, refused.reason) from None

    def found(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=base, attr=attr):
                return self.attribute(self.value(base), attr)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                return self.operator(node)
            case ast.Subscript():
                found = self.element(node, "load")
                return ir.Conversion(float32, found) if is_half(found.dtype) else found
            case ast.Call():
                return self.call(node)
            case _:
                raise UnsupportedCode(
                    REMEDIES.get(type(node), f"{type(node).__name__} is not part of the language of kernels")
                )

    def operator(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.IfExp) -> Any:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(node, op, self.number(left), self.number(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(node, op, self.number(operand))
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp():
                return self.both(node)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self.condition(test)
                if not isinstance(condition, ir.Expression):  # a static choice: the other operand is not read
                    return self.number(body if condition else other)
                return self.choice(condition, self.number(body), self.number(other))

    def name(self, name: str) -> Any:
        scope = self.scope
        if name in scope.arrays:
            return scope.arrays[name]
        if name in scope.given and not isinstance(scope.given[name], DType):
            return scope.given[name]
        if name in scope.assigned:
            return ir.VariableReference(scope.fixed.get(name) or scope.known[name].dtype, name)
        if name in scope.partly:
            raise UnsupportedCode(scope.partly[name])
        if name in scope.known:
            raise UnsupportedCode(f"`{name}` has no value yet on every way that leads here: give it one before")
        found = scope.outside(name)
        if found is None:
            raise UnsupportedCode(f"`{name}` is not defined")
        value = found[0].value if isinstance(found[0], constexpr) else found[0]
        if isinstance(value, Handle):
            raise UnsupportedCode(f"`{name}` is a tensor outside of the kernel: make it a parameter")
        return value

    def attribute(self, base: Any, attr: str) -> Any:
        match base:
            case IndexVector():
                if attr not in AXES:
                    raise UnsupportedCode(f"{base.name} has x, y and z, and no {attr}")
                return ir.BuiltinVariable(int32, f"{base.name}.{attr}")
            case ir.Array():
                if attr == "dtype":
                    return base.dtype
                raise UnsupportedCode(
                    f"{describe(base)} is a pointer, which has only a dtype: pass what else is needed (n, width, ...) "
                    f"as an argument"
                )
            case ModuleType():
                if not hasattr(base, attr):
                    raise UnsupportedCode(f"there is no {base.__name__}.{attr}")
                return getattr(base, attr)
            case ir.Expression():
                raise UnsupportedCode(f"a number has no attribute {attr}")
            case _:
                raise UnsupportedCode(f"{base!r} is not part of the language of kernels")

    def number(self, node: ast.expr) -> ir.Expression | Constant:
        """Read an expression that must be a number or truth value."""
        value = self.value(node)
        if isinstance(value, ir.Expression | int | float):
            return value
        if isinstance(value, ir.Array):
            raise self.scope.wrong(
                node,
                f"{describe(value)} is meant as a number: write its index, {value.name}[...]; pointers are not "
                "added to",
            )
        if isinstance(value, IndexVector):
            raise self.scope.wrong(node, f"{value.name} has three parts: {value.name}.x, .y or .z")
        raise self.scope.wrong(node, f"{describe(value)} is no number")

    def condition(self, node: ast.expr) -> Any:
        """Read a condition: an expression of type bool, or a Python truth value."""
        return self.truth(self.number(node))

    def truth(self, x: ir.Expression | Constant) -> Any:
        if not isinstance(x, ir.Expression):
            return bool(x)
        place = self.scope.place(self.scope.source.tree)
        return x if x.dtype is bool_ else ir.OperatorExpression(bool_, "!=", (x, convert_to(0, x.dtype)), place)

    def integer(self, node: ast.expr, what: str) -> ir.Expression | int:
        """Read an integer."""
        value = self.number(node)
        dtype = kind_of(value).dtype
        if not dtype.is_integer and not self.scope.final:
            return convert_to(0, int32)  # a fraction is reported once all types are final
        if not dtype.is_integer:
            raise self.scope.wrong(
                node, f"{what} is a whole number, and this is {dtype.name}: // divides without a fraction"
            )
        return value if isinstance(value, ir.Expression) else int(value)

    # --- operators -------------------------------------------------------------------------------

    def operation(self, node: ast.AST, op: ast.operator, x: Any, y: Any) -> Any:
        found = ARITHMETIC.get(type(op))
        if found is None:
            raise UnsupportedCode("`@` is not part of the language of kernels: a product of matrices is loops")
        symbol, now = found
        if not isinstance(x, ir.Expression) and not isinstance(y, ir.Expression):
            try:
                return now(x, y)
            except (ArithmeticError, ValueError, TypeError) as error:
                raise UnsupportedCode(str(error)) from None
        dtype = self.operand_dtype(symbol, x, y)
        operands = (convert_to(x, dtype), convert_to(y, dtype))
        if symbol == "**":
            return ir.FunctionCall(dtype, "pow", operands)
        return ir.OperatorExpression(dtype, symbol, operands, self.scope.place(node))

    def operand_dtype(self, symbol: str, x: Any, y: Any) -> DType:
        """Return the type in which an operator computes, or refuse operands that it does not take."""
        dtype = common_dtype(x, y)
        if not dtype.is_float and dtype.bits < 32 and not (dtype is bool_ and symbol in ("&", "|", "^")):
            dtype = int32  # as in C, small integers are promoted to int
        if dtype.is_float:
            _check_float_operator(symbol, dtype)
            return dtype
        if symbol == "/":
            if self.scope.final:
                raise UnsupportedCode(
                    f"`/` of two whole numbers ({describe(x)}, {describe(y)}): // is the quotient as in C, and "
                    "simt.float32(x) / y the fraction"
                )
            return float32
        if symbol == "**":
            raise UnsupportedCode("`**` of whole numbers: write the products (x * x), or 1 << n")
        return dtype

    def unary(self, node: ast.AST, op: ast.unaryop, x: Any) -> Any:
        if isinstance(op, ast.Not):
            truth = self.truth(x)
            return (
                ir.OperatorExpression(bool_, "not", (truth,), self.scope.place(node))
                if isinstance(truth, ir.Expression)
                else not truth
            )
        if not isinstance(x, ir.Expression):
            return +x if isinstance(op, ast.UAdd) else -x if isinstance(op, ast.USub) else ~x
        if isinstance(op, ast.UAdd):
            return x
        if isinstance(op, ast.Invert) and x.dtype.is_float:
            raise UnsupportedCode(f"`~` is for whole numbers, and this is {x.dtype.name}")
        dtype = int32 if not x.dtype.is_float and x.dtype.bits < 32 else x.dtype
        return ir.OperatorExpression(
            dtype, "-" if isinstance(op, ast.USub) else "~", (convert_to(x, dtype),), self.scope.place(node)
        )

    def comparison(self, node: ast.Compare) -> Any:
        """Read a comparison chain: `x < y < z` is `x < y and y < z`."""
        values = [self.number(part) for part in (node.left, *node.comparators)]
        result: Any = True
        for op, x, y in zip(node.ops, values, values[1:], strict=False):
            if type(op) not in COMPARISONS:
                raise UnsupportedCode("`is` and `in` are not part of the language of kernels: compare with ==")
            symbol, now = COMPARISONS[type(op)]
            one: Any
            if not isinstance(x, ir.Expression) and not isinstance(y, ir.Expression):
                one = now(x, y)
            else:
                dtype = common_dtype(x, y)
                one = ir.OperatorExpression(
                    bool_, symbol, (convert_to(x, dtype), convert_to(y, dtype)), self.scope.place(node)
                )
            result = self.joined_truth("and", result, one)
        return result

    def both(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.condition(node.values[0])
        for part in node.values[1:]:
            if not isinstance(result, ir.Expression) and result is (op == "or"):
                return result  # known now: what follows is not even read
            result = self.joined_truth(op, result, self.condition(part))
        return result

    def joined_truth(self, op: str, left: Any, right: Any) -> Any:
        if not isinstance(left, ir.Expression):
            return right if left is (op == "and") else left
        return ir.ShortCircuit(bool_, op, left, convert_to(right, bool_))

    def choice(self, condition: ir.Expression, yes: Any, no: Any) -> ir.Expression:
        dtype = common_dtype(yes, no)
        return ir.Conditional(dtype, condition, convert_to(yes, dtype), convert_to(no, dtype))

    # --- elements --------------------------------------------------------------------------------

    def element(self, node: ast.Subscript, how: str) -> ir.ArrayElement:
        """Read `A[i]`, `tile[y, x]` or `tile[y][x]`; `how` is the kind of access."""
        parts: list[ast.expr] = []
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            parts = [*(base.slice.elts if isinstance(base.slice, ast.Tuple) else [base.slice]), *parts]
            base = base.value
        array: Any = self.value(base)
        if not isinstance(array, ir.Array):
            raise UnsupportedCode(f"{describe(array)} has no elements: only arrays have")
        index = tuple([self.index(part) for part in parts])
        axes = max(1, len(array.shape))
        if len(index) != axes:
            if not array.shape:
                raise UnsupportedCode(
                    f"`{array.name}` is a pointer, which has one index, and {len(index)} are given: "
                    f"{array.name}[row * width + column]"
                )
            raise UnsupportedCode(
                f"`{array.name}` has {axes} axes ({list(array.shape)}), and {len(index)} indices are given"
            )
        for axis, (i, extent) in enumerate(zip(index, array.shape, strict=False)):
            if isinstance(i, ir.NumberLiteral) and not 0 <= i.value < extent:
                raise UnsupportedCode(
                    f"index {i.value} is outside of axis {axis} of `{array.name}`, which has {extent} elements"
                )
        self.scope.access(array, how)
        return ir.ArrayElement(array.dtype, array, index, self.scope.place(node))

    def index(self, node: ast.expr) -> ir.Expression:
        if isinstance(node, ast.Slice):
            raise self.scope.wrong(node, REMEDIES[ast.Slice])
        value = self.integer(node, "an index")
        if isinstance(value, ir.Expression):
            return value
        return ir.NumberLiteral(int64 if number_kind(value).dtype is int64 else int32, value)


def function_name(callee: Any) -> str | None:
    """Return the name in `FUNCTIONS` of a builtin of ours, of Python, or of `math`."""
    if isinstance(callee, ThreadBuiltin):
        return callee.name if callee.kind == "function" else None
    try:
        return PYTHON_FUNCTIONS.get(callee)
    except TypeError:
        return None


def _check_float_operator(symbol: str, dtype: DType) -> None:
    """Refuse operators that floating-point numbers do not have."""
    if symbol in ("%", "//"):
        remedy = "simt.fmod(x, y)" if symbol == "%" else "simt.floor(x / y)"
        raise UnsupportedCode(f"`{symbol}` is for whole numbers, and this is {dtype.name}: write {remedy}")
    if symbol in ("&", "|", "^", "<<", ">>"):
        raise UnsupportedCode(f"`{symbol}` is for whole numbers and truth values, and this is {dtype.name}")
