"""Parse kernels in the notation of `tile_printer`, and as people write Triton.

`parse(str(kernel)) == kernel` for every valid kernel. Errors name the line.
"""

from __future__ import annotations

import ast
import textwrap

from ..errors import KernelError
from . import tile as ir
from .dtype import dtype_named
from .tile_checker import Mistake, TileType, check, loop_dtype
from .tile_expressions import BINARY, ExpressionParser, KernelText
from .tile_types import Refused


def parse(text: str) -> ir.Kernel:
    """Parse and check the kernel that a text defines.

    >>> kernel = parse('''
    ... # doubles
    ... @tg.kernel
    ... def double(x: "*f32", n: "i32"):
    ...     i = tl.program_id(0) * 128 + tl.arange(0, 128)
    ...     v = tl.load(x + i, mask=i < n)
    ...     tl.store(x + i, v * 2, mask=i < n)
    ... ''')
    >>> print(kernel.name, kernel.origin, parse(str(kernel)) == kernel)
    double doubles True
    """
    source = KernelText(textwrap.dedent(text))
    try:
        module = ast.parse(source.text)
    except SyntaxError as error:
        raise source.error_at(error.lineno or 1, (error.offset or 1) - 1, 1, error.msg) from None
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1:
        raise KernelError(f"a kernel's text defines one function, and this one {len(functions)}")
    return StatementParser(source).kernel(functions[0])


class StatementParser(ExpressionParser):
    """Parses statements and keeps the line of each part for the checker's errors."""

    def __init__(self, source: KernelText) -> None:
        super().__init__(source)
        self.statements: dict[int, tuple[ir.Statement, ast.stmt]] = {}

    def kernel(self, function: ast.FunctionDef) -> ir.Kernel:
        self.source.name = function.name
        a = function.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error(function, "the parameters of a kernel are plain names with a type")
        parameters = tuple([self.parameter(a) for a in function.args.args])
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        return self.checked(function, parameters, self.source.comment_above(first))

    def checked(self, function: ast.FunctionDef, parameters: tuple[ir.TileParameter, ...], origin: str) -> ir.Kernel:
        for p in parameters:
            self.types.variables[p.name] = TileType(p.dtype, (), p.pointer)
        kernel = ir.Kernel(function.name, parameters, self.block(function.body), origin)
        try:
            check(kernel)
        except Mistake as mistake:
            raise self.error(self.place(mistake), mistake.reason) from None
        except KernelError as error:
            raise self.error(function.args, str(error)) from None
        return kernel

    def place(self, mistake: Mistake) -> ast.AST:
        if mistake.tile is not None and id(mistake.tile) in self.places:
            return self.places[id(mistake.tile)][1]
        return self.statements[id(mistake.statement)][1]

    def parameter(self, argument: ast.arg) -> ir.TileParameter:
        match argument.annotation:
            case ast.Constant(value=str(written)):
                try:
                    return ir.TileParameter(
                        argument.arg, dtype_named(written.removeprefix("*")), written.startswith("*")
                    )
                except KeyError:
                    pass
        remedy = f'say what it is: {argument.arg}: "*f32" for a pointer, {argument.arg}: "i64" for a number'
        raise self.error(argument, f"the parameter `{argument.arg}` has no type; {remedy}")

    def block(self, nodes: list[ast.stmt]) -> tuple[ir.Statement, ...]:
        body: list[ir.Statement] = []
        for node in nodes:
            statement = self.statement(node)
            if statement is not None:
                self.statements[id(statement)] = (statement, node)
                body.append(statement)
        return tuple(body)

    def statement(self, node: ast.stmt) -> ir.Statement | None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if self.is_atomic(call):
                return self.atomic(call, name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self.assign(name, self.tile(value), node)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                return self.assign(name, self.tile(value), node)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in BINARY:
                left = self.placed(ir.Name(name), node.target)
                return self.assign(name, self.placed(self.binary(op, left, self.tile(value), node), node), node)
            case ast.For(target=ast.Name(id=index), orelse=[]):
                return self.loop(node, index)
            case ast.While(test=test, body=body, orelse=[]):
                return ir.While(self.tile(test), self.block(body))
            case ast.If(test=test, body=body, orelse=otherwise):
                return ir.If(self.tile(test), self.block(body), self.block(otherwise))
            case ast.Expr(value=ast.Call() as call) if self.function_name(call.func) == "store":
                return self.store(call)
            case ast.Expr(value=ast.Call() as call) if self.is_atomic(call):
                return self.atomic(call)
            case ast.Expr(value=ast.Call(args=[ast.Constant(value=str(text)), *values], keywords=[]) as call) if (
                self.function_name(call.func) == "device_print"
            ):
                return ir.Print(text, tuple([self.tile(v) for v in values]))
            case ast.Expr(value=ast.Call(args=[condition, ast.Constant(value=str(text))], keywords=[]) as call) if (
                self.function_name(call.func) == "device_assert"
            ):
                return ir.Assert(self.tile(condition), text)
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                return None
            case ast.Return():
                raise self.error(node, "a kernel does not return: put what follows under an if")
        raise self.error(
            node, "this is no statement of the tile language: it has name = value, tl.store, for, while, if"
        )

    def assign(self, name: str, value: ir.Tile, node: ast.stmt) -> ir.Assign:
        try:
            self.types.variables.setdefault(name, self.types.of(value))
        except Refused as refused:
            raise self.error(self.places.get(id(refused.tile), (None, node))[1], refused.reason) from None
        return ir.Assign(name, value)

    def store(self, call: ast.Call) -> ir.Store:
        def store(pointer: ast.expr, value: ast.expr, mask: ast.expr | None = None) -> ir.Store:
            return ir.Store(self.tile(pointer), self.tile(value), self.optional(mask))

        made = self.bound(call, store)
        assert isinstance(made, ir.Store)
        return made

    def is_atomic(self, call: ast.Call) -> bool:
        return self.function_name(call.func) in {f"atomic_{fn}" for fn in ir.ATOMICS}

    def atomic(self, call: ast.Call, name: str = "") -> ir.Atomic:
        fn = (self.function_name(call.func) or "").removeprefix("atomic_")

        def swapped(pointer: ast.expr, cmp: ast.expr, val: ast.expr, mask: ast.expr | None = None) -> ir.Atomic:
            return ir.Atomic(fn, self.tile(pointer), self.tile(val), self.optional(mask), self.tile(cmp), name)

        def changed(pointer: ast.expr, val: ast.expr, mask: ast.expr | None = None) -> ir.Atomic:
            return ir.Atomic(fn, self.tile(pointer), self.tile(val), self.optional(mask), None, name)

        made = self.bound(call, swapped if fn == "cas" else changed)
        target = self.type_of(made.pointer, call)
        if name:
            self.types.variables.setdefault(name, TileType(target.dtype, target.shape))
        return made

    def loop(self, node: ast.For, index: str) -> ir.For:
        match node.iter:
            case ast.Call(func=called, args=[_, *_] as args, keywords=[]) if len(args) <= 3:
                if self.function_name(called) in ("range", "static_range"):
                    return self.range(index, [self.tile(a) for a in args], node.body)
        raise self.error(node.iter, "a loop runs over range(start, stop, step)")

    def range(self, index: str, bounds: list[ir.Tile], body: list[ast.stmt]) -> ir.For:
        start, stop = (ir.Literal(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else ir.Literal(1)
        try:
            self.types.variables.setdefault(
                index, TileType(loop_dtype(self.types, ir.For(index, start, stop, step, ())))
            )
        except Refused:
            pass
        return ir.For(index, start, stop, step, self.block(body))
