"""Read the expressions of a kernel: fold constants, and build tile expressions from the rest."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from math import prod
from types import ModuleType, SimpleNamespace
from typing import Any

from ...errors import KernelSourceError
from ...ir.dtype import DType
from ...ir.tile import Assign, ExpandDims, Full, If, Literal, Load, Statement
from ...ir.tile_access import walk
from ...ir.tile_expressions import BINARY, COMPARISONS
from ...ir.tile_types import Refused
from .arithmetic import binary, common_dtype, compare, convert, invert, negate, select, to_bool
from .builtin import METHODS, BoundBuiltin, Builtin
from .debugging import device_print
from .mathematics import math, maximum, minimum
from .memory import load_tensor_descriptor, store_tensor_descriptor
from .reductions import _Xor as Xor
from .scope import FunctionScope, TileFunction
from .shapes import permute
from .values import (
    BlockPointer,
    Descriptor,
    PointerType,
    SymbolicTile,
    Unbound,
    constexpr,
    describe,
    is_number,
    number_dtype,
    value_leaves,
)
from .writer import TileWriter, static_int

PYTHON_FUNCTIONS = {
    "len",
    "abs",
    "min",
    "max",
    "range",
    "float",
    "int",
    "bool",
    "print",
    "tuple",
    "str",
    "isinstance",
    "sum",
}
"""Python functions that kernels may call, most of them on constants only."""
PYTHON_TYPES = (float, int, bool, tuple, range, str)
DESCRIPTOR_METHODS = {"load": load_tensor_descriptor, "store": store_tensor_descriptor}
DTYPE_QUESTIONS: dict[str, Callable[[DType], Any]] = {
    "is_floating": lambda d: d.is_float,
    "is_int": lambda d: d.is_integer,
    "is_fp16": lambda d: d.name == "float16",
    "is_bf16": lambda d: d.name == "bfloat16",
    "is_fp32": lambda d: d.name == "float32",
    "is_fp64": lambda d: d.name == "float64",
    "is_bool": lambda d: d.kind == "bool",
    "is_ptr": lambda d: False,
    "is_int_signed": lambda d: d.kind == "int",
    "is_int_unsigned": lambda d: d.kind == "uint",
    "primitive_bitwidth": lambda d: 1 if d.kind == "bool" else d.bits,
    "itemsize": lambda d: d.bytes,
    "name": lambda d: d.name,
    "scalar": lambda d: d,
    "element_ty": lambda d: d,
}


class PropertyCall:
    """A method without parameters, evaluated in advance: `x.dtype.is_floating()`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


class TileExpressionReader(TileWriter):
    """Reads expressions; `frame` is the function being read."""

    frame: FunctionScope

    def error_at(self, node: ast.AST, reason: str) -> KernelSourceError:
        return self.frame.source.place(node).error(reason, self.calls)

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression to a constant or a tile."""
        before, self.at = self.at, self.frame.source.place(node)
        try:
            return self.expression(node)
        except KernelSourceError:
            raise
        except Refused as refused:
            raise self.error_at(node, refused.reason) from None
        finally:
            self.at = before

    def expression(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return self.constant(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return self.elements(parts)
            case ast.UnaryOp() | ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
                return self.operator(node)
            case ast.Subscript(value=whole, slice=index):
                return self.subscript(self.value(whole), index)
            case ast.Attribute(value=whole, attr=name):
                return self.attribute(self.value(whole), name)
            case ast.Call():
                return self.call(node)
            case ast.JoinedStr(values=values):
                return "".join(self.format_part(v) for v in values)
        raise Refused(REMEDIES.get(type(node), f"{type(node).__name__} is not part of the tile language"))

    def operator(self, node: ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp) -> Any:
        match node:
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=values):
                return self.logical(op, values)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self.comparison([left, *comparators], ops)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.conditional(test, body, otherwise)

    def constant(self, value: object) -> Any:
        if value is None or value is Ellipsis or isinstance(value, bool | int | float | str):
            return value
        raise Refused(f"{type(value).__name__} constants are not part of the tile language")

    def elements(self, parts: list[ast.expr]) -> tuple[Any, ...]:
        made: list[Any] = []
        for part in parts:
            if isinstance(part, ast.Starred):
                whole = self.value(part.value)
                if not isinstance(whole, tuple):
                    raise Refused(f"* takes a tuple, and not {describe(whole)}")
                made.extend(whole)
            else:
                made.append(self.held(self.value(part), "part"))
        return tuple(made)

    def format_part(self, node: ast.expr) -> str:
        if isinstance(node, ast.FormattedValue):
            value = self.value(node.value)
            if isinstance(value, SymbolicTile):
                raise Refused("a text is made when the kernel is compiled: print tiles with tl.device_print")
            return str(value)
        return str(self.value(node))

    # --- names -----------------------------------------------------------------------------------

    def name(self, name: str) -> Any:
        names = self.frame.names
        if name in names:
            value = names[name]
            if isinstance(value, Unbound):
                raise Refused(f"`{name}` {value.reason}")
            return value
        if name in self.frame.locals:
            raise Refused(f"`{name}` has no value yet: it is assigned further down")
        found = self.frame.outside(name)
        if found is not None:
            return self.captured(name, found[0])
        if name in PYTHON_FUNCTIONS:
            return getattr(builtins, name)
        close = get_close_matches(name, [*names, *self.frame.fn.__globals__], 1)
        raise Refused(f"there is no `{name}`" + (f"; did you mean `{close[0]}`?" if close else ""))

    def captured(self, name: str, value: Any) -> Any:
        """Record a value from outside the kernel; if it changes, the kernel is read again."""
        if isinstance(value, constexpr):
            value = value.value
        if hasattr(type(value), "tile_kernel"):  # a jitted function: scripts mark kernels with `jit` too
            return value.tile_kernel
        if is_number(value) or isinstance(value, str | tuple):
            self.frame.note_captured(name, value)
            return value
        if value is None or isinstance(value, Builtin | TileFunction | DType | ModuleType | type | SimpleNamespace):
            return value
        if callable(value):
            return value  # a call of it says what is wrong
        raise Refused(
            f"`{name}` is {type(value).__name__}, which a kernel cannot use: tensors and what changes are given to it "
            "as arguments, constants are numbers"
        )

    def attribute(self, whole: Any, name: str) -> Any:
        if isinstance(whole, ModuleType | SimpleNamespace):
            return self.module_attribute(whole, name)
        if isinstance(whole, SymbolicTile) or is_number(whole):
            return self.tile_attribute(whole, name)
        match whole, name:
            case PointerType(), "element_ty" | "scalar":
                return whole.element_ty
            case PointerType(), "is_ptr" | "is_block":
                return PropertyCall(name == "is_ptr")
            case DType(), _ if name in DTYPE_QUESTIONS:
                answer = DTYPE_QUESTIONS[name](whole)
                return PropertyCall(answer) if name.startswith("is_") else answer
            case Descriptor(), _ if name in DESCRIPTOR_METHODS:
                return BoundBuiltin(DESCRIPTOR_METHODS[name], whole)
            case (Descriptor(), "shape" | "strides" | "block_shape") | (constexpr() | type(), _) if hasattr(
                whole, name
            ):
                return getattr(whole, name)
            case BlockPointer(), "advance":
                return BoundBuiltin(METHODS["advance"], whole)
        raise Refused(f"{describe(whole)} has nothing called {name}")

    def module_attribute(self, module: Any, name: str) -> Any:
        found = getattr(module, name, None)
        if found is None:
            where = (
                getattr(module, "__name__", "tl.math")
                .replace("tilegrad.tiles.read.core", "tl")
                .replace("tilegrad.language", "tl")
            )
            close = get_close_matches(name, [n for n in dir(module) if not n.startswith("_")], 1)
            near = [f"tl.math.{name}"] if hasattr(math, name) else [f"{where}.{n}" for n in close]
            raise Refused(f"there is no {where}.{name}" + (f"; did you mean {near[0]}?" if near else ""))
        return self.captured(name, found)

    def tile_attribute(self, x: Any, name: str) -> Any:
        is_tile = isinstance(x, SymbolicTile)
        shape = x.shape if is_tile else ()
        match name:
            case "dtype" | "type":
                return x.dtype if is_tile else number_dtype(x)
            case "shape":
                return shape
            case "numel":
                return prod(shape)
            case "value" if not is_tile:
                return x
            case "bit_length" | "is_integer" if not is_tile:
                return getattr(x, name)
            case "T":
                return permute.run(self, (x, tuple(reversed(range(len(x.shape))))), {})
        if name not in METHODS:
            close = get_close_matches(name, [*METHODS, "dtype", "shape"], 1)
            hint = f"; did you mean .{close[0]}?" if close else ""
            raise Refused(f"a tile has no {name}{hint}")
        return BoundBuiltin(METHODS[name], x)

    # --- operators -------------------------------------------------------------------------------

    def unary(self, op: ast.unaryop, x: Any) -> Any:
        if not isinstance(x, SymbolicTile) and not is_number(x) and not isinstance(op, ast.Not):
            raise Refused(f"{describe(x)} is neither a tile nor a number")
        match op:
            case ast.UAdd():
                return x
            case ast.USub():
                return negate(self, x)
            case ast.Invert():
                return invert(self, x)
        return invert(self, to_bool(self, x)) if isinstance(x, SymbolicTile) else not x

    def operation(self, op: ast.operator, x: Any, y: Any) -> Any:
        if isinstance(op, ast.MatMult):
            raise Refused("matrices are multiplied with tl.dot(x, y)")
        plain = not isinstance(x, SymbolicTile) and not isinstance(y, SymbolicTile)
        if plain and isinstance(x, str | tuple) and isinstance(op, ast.Add | ast.Mult):
            return x + y if isinstance(op, ast.Add) else x * y
        return binary(self, BINARY[type(op)], x, y)

    def logical(self, op: ast.boolop, nodes: list[ast.expr]) -> Any:
        """Evaluate `and` and `or`: constants short-circuit, tiles are combined bitwise."""
        stops = isinstance(op, ast.Or)
        whole: Any = None
        for node in nodes:
            x = self.value(node)
            if not value_leaves(x) or is_number(x):
                if bool(x) is stops:
                    return x if whole is None else stops
                if whole is None and node is nodes[-1]:
                    return x
                continue
            truths = to_bool(self, x)
            whole = truths if whole is None else binary(self, "bitor" if stops else "bitand", whole, truths)
        return (not stops) if whole is None else whole

    def comparison(self, nodes: list[ast.expr], ops: list[ast.cmpop]) -> Any:
        values = [self.held(self.value(n), "compared") if len(nodes) > 2 else self.value(n) for n in nodes]
        whole: Any = None
        for x, op, y in zip(values, ops, values[1:], strict=False):
            made = self.compared(op, x, y)
            whole = made if whole is None else binary(self, "bitand", whole, made)
        return whole

    def compared(self, op: ast.cmpop, x: Any, y: Any) -> Any:
        match op:
            case ast.Is() | ast.IsNot():
                if x is not None and y is not None and (isinstance(x, SymbolicTile) or isinstance(y, SymbolicTile)):
                    raise Refused("`is` compares with None; tiles are compared with ==")
                return (x is y) == isinstance(op, ast.Is)
            case ast.In() | ast.NotIn():
                if isinstance(x, SymbolicTile) or not isinstance(y, tuple | str):
                    raise Refused("`in` looks for a constant in a tuple of constants")
                return (x in y) == isinstance(op, ast.In)
        return compare(self, COMPARISONS[type(op)], x, y)

    def conditional(self, test: ast.expr, body: ast.expr, otherwise: ast.expr) -> Any:
        """Evaluate `x if c else y`; loads of the branch not taken are skipped."""
        condition = self.condition(test)
        if not isinstance(condition, SymbolicTile):
            return self.value(body if condition else otherwise)
        with self.block() as then:
            x = self.value(body)
        with self.block() as other:
            y = self.value(otherwise)
        if not all(isinstance(z, SymbolicTile) or is_number(z) for z in (x, y)):
            raise Refused(
                f"a choice that is made when the kernel runs is between tiles, not {describe(x)} and {describe(y)}"
            )
        if not then and not other and not _loads(x) and not _loads(y):
            return select(self, condition, x, y)
        return self.branch_value(condition, (then, x), (other, y))

    def branch_value(
        self, condition: SymbolicTile, first: tuple[list[Statement], Any], second: tuple[list[Statement], Any]
    ) -> SymbolicTile:
        dtype = common_dtype((first[1], second[1]))
        x, y = convert(self, self.tile(first[1]), dtype), convert(self, self.tile(second[1]), dtype)
        if x.shape != y.shape:
            raise Refused(f"the two ways give {describe(x)} and {describe(y)}: they must have one shape")
        result = self.named(self.make(Full(x.shape, Literal(False if dtype.kind == "bool" else 0), dtype)), "chosen")
        for statements, value in ((first[0], x), (second[0], y)):
            self.open.append(statements)
            self.emit(Assign(str(result.tile), value.tile))
            self.open.pop()
        self.emit(If(condition.tile, tuple(first[0]), tuple(second[0])))
        return result

    def condition(self, node: ast.expr) -> Any:
        """Evaluate a condition: a constant or a scalar tile."""
        x = self.value(node)
        if not isinstance(x, SymbolicTile):
            return bool(x) if not isinstance(x, PropertyCall) else bool(x.answer)
        if x.shape:
            raise self.error_at(
                node,
                f"a condition is one truth value, and this is {describe(x)}: choose by element with tl.where, or "
                "reduce it with tl.any or tl.all (tl.max(x.to(tl.int32), 0) > 0)",
            )
        if x.type.pointer:
            raise self.error_at(node, "a pointer is no condition; `p is not None` asks whether it was given")
        return to_bool(self, x)

    def new_axes(self, places: Sequence[ast.expr]) -> list[int]:
        """Return the places of `None` in an index of `:` and `None`."""
        axes: list[int] = []
        for n, place in enumerate(places):
            match place:
                case ast.Slice(lower=None, upper=None, step=None):
                    pass
                case ast.Constant(value=None):
                    axes.append(n)
                case _:
                    raise self.error_at(
                        place, "a tile is indexed by `:` and `None` only, which makes new axes: elements are chosen "
                        "with tl.where and tl.sum, or tl.gather"
                    )  # fmt: skip
        return axes

    def subscript(self, whole: Any, index: ast.expr) -> Any:
        if isinstance(whole, tuple | str) and not isinstance(whole, BlockPointer | Descriptor | PointerType):
            return self.index_tuple(whole, index)
        if not isinstance(whole, SymbolicTile):
            raise Refused(f"{describe(whole)} has no parts")
        places = index.elts if isinstance(index, ast.Tuple) else [index]
        axes = self.new_axes(places)
        kept = len(places) - len(axes)
        if kept != len(whole.shape) and (kept or whole.shape):
            raise Refused(f"{describe(whole)} has {len(whole.shape)} axes, and the index has {kept}")
        return self.make(ExpandDims(whole.tile, tuple(axes))) if axes else whole

    def index_tuple(self, whole: Any, index: ast.expr) -> Any:
        if isinstance(index, ast.Slice):
            bounds = [
                None if b is None else static_int(self.value(b), "an index")
                for b in (index.lower, index.upper, index.step)
            ]
            return whole[slice(*bounds)]
        n = static_int(self.value(index), "the index of a tuple")
        if not -len(whole) <= n < len(whole):
            raise Refused(f"there is no entry {n} in a tuple of {len(whole)}")
        return whole[n]

    # --- calls -----------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        fn = self.value(node.func)
        args = self.positional_arguments(node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.error_at(keyword.value, "** is not part of the tile language: name the arguments")
            kwargs[keyword.arg] = self.value(keyword.value)
        if isinstance(fn, Builtin | BoundBuiltin):
            return fn.run(self, args, kwargs)
        if isinstance(fn, TileFunction):
            return self.inline_call(fn, args, kwargs, self.frame.source.place(node))
        if isinstance(fn, PropertyCall):
            return fn.answer
        if isinstance(fn, DType):
            return convert(self, args[0], fn)
        return self.call_python(fn, args, kwargs)

    def call_python(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call something of Python, or refuse it."""
        if fn is constexpr:
            return args[0] if args else None
        if fn is builtins.print:
            return device_print.run(self, args, kwargs)
        if inspect.isbuiltin(fn) or fn in PYTHON_TYPES:
            return self.call_on_constants(fn, args, kwargs)
        if inspect.isfunction(fn):
            raise Refused(
                f"{fn.__name__} is a function of Python: mark it with @tilegrad.kernel, and kernels can call it"
            )
        raise Refused(f"{describe(fn)} cannot be called in a kernel")

    def positional_arguments(self, nodes: list[ast.expr]) -> tuple[Any, ...]:
        made: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                made.extend(self.elements([node]))
            else:
                made.append(self.value(node))
        return tuple(made)

    def call_on_constants(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Python function on constants, or the tile function that corresponds to it."""
        if not any(isinstance(x, SymbolicTile) for x in args):
            try:
                return fn(*args, **kwargs)
            except (TypeError, ValueError) as error:
                raise Refused(f"{fn.__name__}: {error}") from None
        if fn in (builtins.min, builtins.max) and len(args) > 1:
            whole = args[0]
            for x in args[1:]:
                whole = (minimum if fn is builtins.min else maximum).run(self, (whole, x), {})
            return whole
        if fn is builtins.abs:
            return METHODS["abs"].run(self, args, {})
        if fn is builtins.len and args[0].shape:
            return args[0].shape[0]
        remedy = {"float": "x.to(tl.float32)", "int": "x.to(tl.int32)", "bool": "x != 0", "sum": "tl.sum(x, axis)"}
        raise Refused(f"{fn.__name__} is for constants: of a tile write {remedy.get(fn.__name__, 'a function of tl')}")

    def inline(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """Call a kernel function on tiles, from inside a builtin."""
        if isinstance(fn, Xor):
            return fn.inlined(self, args)
        if isinstance(fn, Builtin):
            return fn.run(self, args, {})
        if not isinstance(fn, TileFunction):
            raise Refused(
                f"the function that combines must be marked with @tilegrad.kernel, and this is {describe(fn)}"
            )
        assert self.at is not None
        return self.inline_call(fn, args, {}, self.at)

    def inline_call(self, fn: TileFunction, args: tuple[Any, ...], kwargs: dict[str, Any], place: Any) -> Any:
        raise NotImplementedError


def _loads(x: Any) -> bool:
    return isinstance(x, SymbolicTile) and any(isinstance(part, Load) for part in walk(x.tile))


REMEDIES: dict[type, str] = {
    ast.Lambda: "functions in kernels are written outside of them, with def and @tilegrad.kernel",
    ast.ListComp: "kernels have no comprehensions: write a loop over tl.static_range",
    ast.GeneratorExp: "kernels have no comprehensions: write a loop over tl.static_range",
    ast.DictComp: "kernels have no dictionaries",
    ast.SetComp: "kernels have no sets",
    ast.Dict: "kernels have no dictionaries: use several names, or a tuple",
    ast.Set: "kernels have no sets: use a tuple",
    ast.NamedExpr: "write the assignment on a line of its own",
    ast.Await: "kernels do not wait",
    ast.Yield: "kernels do not yield",
    ast.Starred: "* is for tuples in calls and tuples only",
}
"""Replacements to suggest for Python expressions that the tile language does not have."""
