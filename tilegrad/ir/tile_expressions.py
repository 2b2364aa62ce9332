"""Parse the expressions of kernels; `tile_parser` parses statements."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from ..errors import KernelError
from . import tile as ir
from .dtype import DType, bool_, dtype_named, float32
from .functions import FUNCTIONS, REDUCERS
from .precision import PRECISIONS, TRITON, Precision
from .tile_printer import SPELLED
from .tile_types import Refused, TileType, Types

T = TypeVar("T")

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
LOGICAL = {ast.And: "bitand", ast.Or: "bitor"}
STATIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y,
    ast.Mod: lambda x, y: x % y,
    ast.Pow: lambda x, y: x**y,
}
REDUCTIONS = {r.printed: r.fn for r in REDUCERS.values()}
SCANS = {r.scan: r.fn for r in REDUCERS.values() if r.scan}
ELEMENTWISE = {SPELLED.get(f.name, f.name): f.name for f in FUNCTIONS.values() if f.result != "given" and f.in_kernels}
BUILTINS = {"min": "minimum", "max": "maximum", "abs": "abs"}


class KernelText:
    """A kernel's text with the means to point into it."""

    def __init__(self, text: str) -> None:
        self.text, self.lines, self.name = text, text.split("\n"), ""

    def error_at(self, line: int, column: int, length: int, reason: str) -> KernelError:
        shown = self.lines[line - 1] if line <= len(self.lines) else ""
        what = f"kernel {self.name}, line {line}" if self.name else f"line {line}"
        return KernelError(f"{what}: {reason}\n    {shown}\n    {' ' * column}{'^' * max(1, length)}")

    def comment_above(self, line: int) -> str:
        """Return the comment directly above a line."""
        first = line - 1
        while first > 0 and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(text.removeprefix("#").removeprefix(" ") for text in self.lines[first : line - 1])


class ExpressionParser:
    """Parses expressions, and keeps where each was written."""

    def __init__(self, source: KernelText) -> None:
        self.source = source
        self.types = Types({})
        self.places: dict[int, tuple[ir.Tile, ast.AST]] = {}

    def error(self, node: ast.AST, reason: str) -> KernelError:
        line, begin = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.source.lines[line - 1].encode()
        end = node.end_col_offset if getattr(node, "end_lineno", 0) == line else len(text)  # type: ignore[attr-defined]
        return self.source.error_at(line, len(text[:begin].decode()), len(text[begin:end].decode()), reason)

    def placed(self, tile: ir.Tile, node: ast.AST) -> ir.Tile:
        self.places[id(tile)] = (tile, node)
        return tile

    def type_of(self, tile: ir.Tile, node: ast.AST) -> TileType:
        try:
            return self.types.of(tile)
        except Refused as refused:
            raise self.error(node, refused.reason) from None

    def tile(self, node: ast.expr) -> ir.Tile:
        return self.placed(self.expression(node), node)

    def optional(self, node: ast.expr | None) -> ir.Tile | None:
        return None if node is None or (isinstance(node, ast.Constant) and node.value is None) else self.tile(node)

    def expression(self, node: ast.expr) -> ir.Tile:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return ir.Literal(value)
            case ast.Name(id=name):
                return ir.Name(name)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.tile(left), self.tile(right), node)
            case ast.BoolOp(op=op, values=values):
                return self.joined(LOGICAL[type(op)], [self.tile(v) for v in values])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self.comparison([left, *comparators], ops)
            case ast.Subscript(value=value, slice=index):
                return self.subscript(node, self.tile(value), index)
            case ast.Attribute(value=value, attr="T"):
                return self.transposed(value)
            case ast.Call():
                return self.call(node)
        raise self.error(node, "this is no expression of the tile language")

    def unary(self, op: ast.unaryop, operand: ast.expr) -> ir.Tile:
        x = self.tile(operand)
        if isinstance(op, ast.UAdd):
            return x
        if not isinstance(op, ast.USub):
            return ir.Apply("invert", (x,))
        signed = isinstance(operand, ast.Constant | ast.Name | ast.Call)  # a second minus is a function's
        if signed and isinstance(x, ir.Literal) and not isinstance(x.value, bool):
            return ir.Literal(-x.value)
        return ir.Apply("neg", (x,))

    def binary(self, op: ast.operator, x: ir.Tile, y: ir.Tile, node: ast.AST) -> ir.Tile:
        if type(op) not in BINARY:
            raise self.error(node, "this operator is not in the tile language: matrices are multiplied by tl.dot")
        return ir.Apply(BINARY[type(op)], (x, y))

    def joined(self, fn: str, tiles: list[ir.Tile]) -> ir.Tile:
        whole = tiles[0]
        for x in tiles[1:]:
            whole = ir.Apply(fn, (whole, x))
        return whole

    def comparison(self, operands: list[ast.expr], ops: list[ast.cmpop]) -> ir.Tile:
        tiles = [self.tile(x) for x in operands]
        for node, op in zip(operands, ops, strict=False):
            if type(op) not in COMPARISONS:
                raise self.error(node, "`is` and `in` are not in the tile language")
        pairs = zip(ops, tiles, tiles[1:], strict=False)
        return self.joined("bitand", [ir.Apply(COMPARISONS[type(op)], (x, y)) for op, x, y in pairs])

    def subscript(self, node: ast.Subscript, x: ir.Tile, index: ast.expr) -> ir.Tile:
        places = index.elts if isinstance(index, ast.Tuple) else [index]
        axes: list[int] = []
        for n, place in enumerate(places):
            match place:
                case ast.Slice(lower=None, upper=None, step=None):
                    pass
                case ast.Constant(value=None):
                    axes.append(n)
                case _:
                    raise self.error(place, "a tile is indexed with `:` and `None` only, which makes new axes")
        if len(places) - len(axes) > len(self.type_of(x, node).shape) > 0:
            raise self.error(node, f"the tile has {len(self.type_of(x, node).shape)} axes")
        return ir.ExpandDims(x, tuple(axes))

    def transposed(self, node: ast.expr) -> ir.Tile:
        x = self.tile(node)
        return ir.Trans(x, tuple(reversed(range(len(self.type_of(x, node).shape)))))

    def function_name(self, node: ast.expr) -> str | None:
        """Return the called function: `exp` for tl.exp, tl.math.exp and libdevice.exp; the name of a builtin."""
        match node:
            case ast.Name(id=name):
                return name if name in BUILTINS or name in ("range", "float") else None
            case ast.Attribute(value=ast.Name(id="tl" | "libdevice"), attr=name):
                return name
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="tl"), attr="math"), attr=name):
                return name
        return None

    def call(self, node: ast.Call) -> ir.Tile:
        name = self.function_name(node.func)
        if isinstance(node.func, ast.Name):
            return self.builtin(node, name)
        if name is None and isinstance(node.func, ast.Attribute):  # x.sum(0) is tl.sum(x, 0)
            name = node.func.attr
            node = ast.copy_location(ast.Call(node.func, [node.func.value, *node.args], node.keywords), node)
        if name in ELEMENTWISE and not node.keywords:
            return ir.Apply(ELEMENTWISE[name], tuple([self.tile(a) for a in node.args]))
        if name in REDUCTIONS:
            return self.bound(node, lambda x, axis=None, keep_dims=None: self.reduced(name, x, axis, keep_dims))
        if name in SCANS:
            fn = SCANS[name]
            return self.bound(node, lambda x, axis=None: ir.Scan(fn, (t := self.tile(x)), self.axis(axis, t, x)))
        method = getattr(self, f"tl_{name}", None)
        if method is None:
            names = [*ELEMENTWISE, *REDUCTIONS, *SCANS, *(n[3:] for n in dir(self) if n.startswith("tl_"))]
            close = get_close_matches(str(name), names, 1)
            hint = f"; did you mean tl.{close[0]}?" if close else ""
            raise self.error(node.func, f"there is no function {name} in the tile language{hint}")
        made: ir.Tile = self.bound(node, method)
        return made

    def builtin(self, node: ast.Call, name: str | None) -> ir.Tile:
        match name, node.args:
            case "float", [ast.Constant(value=str(written))]:
                try:
                    return ir.Literal(float(written))
                except ValueError:
                    raise self.error(node, f"{written!r} is no number") from None
            case "min" | "max" | "abs", args if not node.keywords:
                return ir.Apply(BUILTINS[name], tuple([self.tile(a) for a in args]))
        raise self.error(node.func, f"a kernel calls functions of tl; `{ast.unparse(node.func)}` is none")

    def bound(self, node: ast.Call, function: Callable[..., T]) -> T:
        """Bind the arguments of a call to the function's parameters."""
        keywords = {k.arg: k.value for k in node.keywords if k.arg is not None}
        try:
            arguments = inspect.signature(function).bind(*node.args, **keywords)
        except TypeError as error:
            raise self.error(node, f"{ast.unparse(node.func)}: {error}") from None
        return function(*arguments.args, **arguments.kwargs)

    # What must be known when a kernel is read.

    def static(self, node: ast.expr) -> int:
        """Evaluate a static integer: a literal, or an expression of constants."""
        match node:
            case ast.Constant(value=int(value)):
                return int(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.static(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in STATIC:
                return int(STATIC[type(op)](self.static(left), self.static(right)))
        raise self.error(node, "here a whole number must stand that is known when the kernel is compiled")

    def shape(self, node: ast.expr) -> tuple[int, ...]:
        if isinstance(node, ast.List | ast.Tuple):
            return tuple([self.static(extent) for extent in node.elts])
        return (self.static(node),)

    def dtype(self, node: ast.expr) -> DType:
        match node:
            case ast.Attribute(value=inner, attr="element_ty"):
                return self.dtype(inner)
            case ast.Attribute(value=ast.Name(id="tl" | "tg"), attr=name):
                try:
                    return bool_ if name in ("int1", "bool_") else dtype_named(name)
                except KeyError:
                    raise self.error(node, f"there is no element type {name}") from None
            case ast.Attribute(value=inner, attr="dtype"):
                return self.type_of(self.tile(inner), inner).dtype
        raise self.error(node, "here an element type must stand, such as tl.float32")

    def axis(self, node: ast.expr | None, x: ir.Tile, place: ast.expr) -> int:
        if node is None:
            return 0
        axis = self.static(node)
        return axis + len(self.type_of(x, place).shape) if axis < 0 else axis

    def flag(self, node: ast.expr | None) -> bool:
        return isinstance(node, ast.Constant) and node.value is True

    def reduced(self, name: str, node: ast.expr, axis: ast.expr | None, keep: ast.expr | None) -> ir.Tile:
        """Build a reduction, over all axes if none is given."""
        x = self.tile(node)
        place = self.axis(axis, x, node)
        if axis is None:
            shape = self.type_of(x, node).shape
            x = x if len(shape) == 1 else ir.Reshape(x, (math.prod(shape),))
        made = ir.Reduce(REDUCTIONS[name], x, place)
        return ir.ExpandDims(made, (place,)) if self.flag(keep) else made

    # The functions of `tl`, with Triton's arguments.

    def tl_program_id(self, axis: ast.expr) -> ir.Tile:
        return ir.ProgramId(self.static(axis))

    def tl_num_programs(self, axis: ast.expr) -> ir.Tile:
        return ir.NumPrograms(self.static(axis))

    def tl_arange(self, start: ast.expr, end: ast.expr) -> ir.Tile:
        return ir.Arange(self.static(start), self.static(end))

    def tl_load(self, pointer: ast.expr, mask: ast.expr | None = None, other: ast.expr | None = None) -> ir.Tile:
        return ir.Load(self.tile(pointer), self.optional(mask), self.optional(other))

    def tl_full(self, shape: ast.expr, value: ast.expr, dtype: ast.expr) -> ir.Tile:
        return ir.Full(self.shape(shape), self.tile(value), self.dtype(dtype))

    def tl_zeros(self, shape: ast.expr, dtype: ast.expr | None = None) -> ir.Tile:
        return self.nought(self.shape(shape), float32 if dtype is None else self.dtype(dtype))

    def tl_zeros_like(self, x: ast.expr) -> ir.Tile:
        found = self.type_of(self.tile(x), x)
        return self.nought(found.shape, found.dtype)

    def nought(self, shape: tuple[int, ...], dtype: DType) -> ir.Tile:
        return ir.Full(shape, ir.Literal(False if dtype is bool_ else 0.0 if dtype.is_float else 0), dtype)

    def tl_to(self, x: ast.expr, dtype: ast.expr, bitcast: ast.expr | None = None) -> ir.Tile:
        made = ir.Bitcast if self.flag(bitcast) else ir.Cast
        return made(self.tile(x), self.dtype(dtype))

    tl_cast = tl_to

    def tl_broadcast_to(self, x: ast.expr, shape: ast.expr) -> ir.Tile:
        return ir.BroadcastTo(self.tile(x), self.shape(shape))

    def tl_reshape(self, x: ast.expr, shape: ast.expr) -> ir.Tile:
        return ir.Reshape(self.tile(x), self.shape(shape))

    tl_view = tl_reshape

    def tl_expand_dims(self, x: ast.expr, axis: ast.expr) -> ir.Tile:
        tile = self.tile(x)
        place = self.static(axis)
        return ir.ExpandDims(tile, (place + len(self.type_of(tile, x).shape) + 1 if place < 0 else place,))

    def tl_trans(self, x: ast.expr) -> ir.Tile:
        return ir.Trans(self.tile(x), (1, 0))

    def tl_permute(self, x: ast.expr, dims: ast.expr) -> ir.Tile:
        return ir.Trans(self.tile(x), self.shape(dims))

    def tl_gather(self, x: ast.expr, index: ast.expr, axis: ast.expr) -> ir.Tile:
        tile = self.tile(x)
        return ir.GatherAlongAxis(tile, self.tile(index), self.axis(axis, tile, x))

    def tl_dot(
        self, x: ast.expr, y: ast.expr, acc: ast.expr | None = None, input_precision: ast.expr | None = None
    ) -> ir.Tile:
        return ir.Dot(self.tile(x), self.tile(y), self.optional(acc), self.precision(input_precision))

    def precision(self, node: ast.expr | None) -> Precision:
        """Read a precision: one of ours, or a Triton word for one that is at most as precise."""
        match node:
            case None | ast.Constant(value=None):
                return "highest"
            case ast.Constant(value="highest" | "high" | "medium" as word):
                return word
            case ast.Constant(value=str(word)) if word in TRITON:
                return TRITON[word]
        words = ", ".join(map(repr, [*PRECISIONS, *TRITON]))
        raise self.error(node, f"input_precision is one of {words}, and not {ast.unparse(node)}")

    def tl_cdiv(self, x: ast.expr, div: ast.expr) -> ir.Tile:
        divisor = self.tile(div)
        return ir.Apply(
            "floordiv", (ir.Apply("add", (self.tile(x), ir.Apply("sub", (divisor, ir.Literal(1))))), divisor)
        )

    def tl_clamp(self, x: ast.expr, min: ast.expr, max: ast.expr) -> ir.Tile:
        return ir.Apply("minimum", (ir.Apply("maximum", (self.tile(x), self.tile(min))), self.tile(max)))

    def tl_multiple_of(self, x: ast.expr, values: ast.expr) -> ir.Tile:
        """Ignore Triton's hint: divisibility is derived here."""
        return self.tile(x)

    tl_max_contiguous = tl_multiple_of
