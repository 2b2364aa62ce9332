"""Print kernels in Triton's notation. `tile_parser` reads them back."""

from __future__ import annotations

import math

from . import tile as ir
from .dtype import bool_, int32
from .functions import FUNCTIONS, REDUCERS
from .tile_types import Refused, TileType, Types, dtype_text

COMPARISON, UNARY, ATOM = 0, 7, 8
PRECEDENCE = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
"""Precedence of Python's operators; comparisons bind least, and are not chained."""

SPELLED = {"mulhi": "umulhi"}
"""Functions whose name in Triton differs from ours."""


def show_tile(tile: ir.Tile, types: Types | None = None) -> str:
    """Print an expression. If the ranks of names are known, `x[:, None]` shows all axes.

    >>> i = ir.Name("i")
    >>> print(ir.Load(ir.Name("x") + (i + 1) * 2, i < ir.Name("n"), ir.Literal(0.0)))
    tl.load(x + (i + 1) * 2, mask=i < n, other=0.0)
    """
    return _Printer(types or Types({})).expression(tile)


def show_statement(statement: ir.Statement) -> str:
    """Print one statement with its nested blocks."""
    return "\n".join(_Printer(Types({})).statement(statement))


def show_kernel(kernel: ir.Kernel) -> str:
    """Print a kernel as source.

    >>> from .dtype import float32
    >>> body = (ir.Assign("i", ir.ProgramId(0)), ir.Store(ir.Name("x") + ir.Name("i"), ir.Literal(1.0)))
    >>> print(ir.Kernel("ones", (ir.TileParameter("x", float32),), body, "demo.py:3"))
    # demo.py:3
    @tg.kernel
    def ones(x: "*f32"):
        i = tl.program_id(0)
        tl.store(x + i, 1.0)
    """
    printer = _Printer(Types({p.name: TileType(p.dtype, (), p.pointer) for p in kernel.parameters}))
    comment = [f"# {line}" if line else "#" for line in kernel.origin.split("\n")] if kernel.origin else []
    head = f"def {kernel.name}({', '.join(map(_parameter, kernel.parameters))}):"
    return "\n".join([*comment, "@tg.kernel", head, *printer.block(kernel.body)])


def _parameter(p: ir.TileParameter) -> str:
    return f'{p.name}: "{"*" if p.pointer else ""}{p.dtype}"'


def _number(x: ir.Literal) -> str:
    if isinstance(x.value, float) and not math.isfinite(x.value):
        return f'float("{x.value}")'
    return repr(x.value)


def zero(full: ir.Full) -> bool:
    """Whether the tile prints as `tl.zeros`."""
    nought = False if full.dtype is bool_ else 0.0 if full.dtype.is_float else 0
    return bool(full.shape) and full.value == ir.Literal(nought)


class _Printer:
    """Collects the ranks of names while it prints, as far as they are known."""

    def __init__(self, types: Types) -> None:
        self.types = types

    def block(self, body: tuple[ir.Statement, ...]) -> list[str]:
        lines = [line for statement in body for line in self.statement(statement)]
        return ["    " + line for line in lines or ["pass"]]

    def statement(self, statement: ir.Statement) -> list[str]:
        match statement:
            case ir.Assign(name, value):
                line = self.assignment(name, value)
                try:
                    self.types.variables.setdefault(name, self.types.of(value))
                except Refused:
                    pass  # a wrong kernel is printed too
                return [line]
            case ir.Store(pointer, value, mask):
                masked = f", mask={self.expression(mask)}" if mask is not None else ""
                return [f"tl.store({self.expression(pointer)}, {self.expression(value)}{masked})"]
            case ir.Atomic():
                return [self.atomic(statement)]
            case ir.Print(text, values):
                return [f"tl.device_print({', '.join([repr(text), *map(self.expression, values)])})"]
            case ir.Assert(condition, text):
                return [f"tl.device_assert({self.expression(condition)}, {text!r})"]
            case ir.For(index, _, _, _, body):
                self.types.variables.setdefault(index, TileType(int32))
                return [f"for {index} in range({self.bounds(statement)}):", *self.block(body)]
            case ir.While(condition, body):
                return [f"while {self.expression(condition)}:", *self.block(body)]
            case ir.If():
                return self.conditional(statement)

    def conditional(self, statement: ir.If) -> list[str]:
        lines = [f"if {self.expression(statement.condition)}:", *self.block(statement.body)]
        match statement.otherwise:
            case ():
                return lines
            case (ir.If() as following,):
                first, *rest = self.conditional(following)
                return [*lines, "el" + first, *rest]
        return [*lines, "else:", *self.block(statement.otherwise)]

    def atomic(self, x: ir.Atomic) -> str:
        if x.name:
            try:
                target = self.types.of(x.pointer)
                self.types.variables.setdefault(x.name, TileType(target.dtype, target.shape))
            except Refused:
                pass  # a wrong kernel is printed too
        operands = [self.expression(y) for y in (x.pointer, x.expected, x.value) if y is not None]
        if x.mask is not None:
            operands.append(f"mask={self.expression(x.mask)}")
        return f"{f'{x.name} = ' if x.name else ''}tl.atomic_{x.fn}({', '.join(operands)})"

    def assignment(self, name: str, value: ir.Tile) -> str:
        match value:
            case ir.Apply(fn, (ir.Name(again), y)) if again == name and FUNCTIONS[fn].symbol in PRECEDENCE:
                return f"{name} {FUNCTIONS[fn].symbol}= {self.expression(y)}"
        return f"{name} = {self.expression(value)}"

    def bounds(self, loop: ir.For) -> str:
        shown = [self.expression(x) for x in (loop.start, loop.stop, loop.step)]
        if loop.step == ir.Literal(1):
            shown.pop()
            if loop.start == ir.Literal(0):
                shown.pop(0)
        return ", ".join(shown)

    def expression(self, tile: ir.Tile, binds: int = COMPARISON) -> str:
        """Print an expression, in parentheses if its context binds more tightly."""
        text, precedence = self.precise(tile)
        return f"({text})" if precedence < binds else text

    def precise(self, tile: ir.Tile) -> tuple[str, int]:
        match tile:
            case ir.Literal(value):
                negative = not isinstance(value, bool) and math.copysign(1, value) < 0 and math.isfinite(value)
                return _number(tile), UNARY if negative else ATOM
            case ir.Apply(fn, args):
                return self.application(fn, args)
            case ir.Name(name):
                return name, ATOM
            case ir.ExpandDims(x, axes):
                return f"{self.postfix(x)}[{self.places(x, axes)}]", ATOM
            case ir.Cast(x, dtype):
                return f"{self.postfix(x)}.to({dtype_text(dtype)})", ATOM
            case ir.Bitcast(x, dtype):
                return f"{self.postfix(x)}.to({dtype_text(dtype)}, bitcast=True)", ATOM
        return f"tl.{self.call(tile)}", ATOM

    def postfix(self, x: ir.Tile) -> str:
        """Print an expression that is followed by a dot or a bracket."""
        shown = self.expression(x, ATOM)
        return f"({shown})" if type(x) is ir.Literal and shown[0] != "(" else shown

    def places(self, x: ir.Tile, axes: tuple[int, ...]) -> str:
        try:
            rank = len(self.types.of(x).shape) + len(axes)
        except Refused:
            rank = max(axes, default=0) + 1
        return ", ".join("None" if n in axes else ":" for n in range(rank)) or ":"

    def application(self, fn: str, args: tuple[ir.Tile, ...]) -> tuple[str, int]:
        symbol = FUNCTIONS[fn].symbol if fn in FUNCTIONS else ""
        if symbol and len(args) == 1 and type(args[0]) is not ir.Literal:
            return symbol + self.expression(args[0], UNARY), UNARY
        if symbol and len(args) == 2:
            binds = PRECEDENCE.get(symbol, COMPARISON)
            left = binds + (symbol not in PRECEDENCE)
            x, y = self.expression(args[0], left), self.expression(args[1], binds + 1)
            return f"{x} {symbol} {y}", binds
        return f"tl.{SPELLED.get(fn, fn)}({self.listed(*args)})", ATOM

    def listed(self, *tiles: ir.Tile) -> str:
        return ", ".join([self.expression(x) for x in tiles])

    def call(self, tile: ir.Tile) -> str:
        """Print a call of a `tl` function."""
        match tile:
            case ir.ProgramId(axis):
                return f"program_id({axis})"
            case ir.NumPrograms(axis):
                return f"num_programs({axis})"
            case ir.Arange(start, stop):
                return f"arange({start}, {stop})"
            case ir.Full(shape, _, dtype) if zero(tile):
                return f"zeros({list(shape)}, {dtype_text(dtype)})"
            case ir.Full(shape, value, dtype):
                return f"full({list(shape)}, {self.expression(value)}, {dtype_text(dtype)})"
            case ir.Load(pointer, mask, other):
                named = {"mask": mask, "other": other}
                options = [f", {name}={self.expression(x)}" for name, x in named.items() if x is not None]
                return f"load({self.expression(pointer)}{''.join(options)})"
            case ir.Dot(x, y, accumulator, precision):
                operands = (x, y) if accumulator is None else (x, y, accumulator)
                option = "" if precision == "highest" else f', input_precision="{precision}"'
                return f"dot({self.listed(*operands)}{option})"
        return self.axis_call(tile)

    def axis_call(self, tile: ir.Tile) -> str:
        """Print a call that moves, gathers or reduces along axes."""
        match tile:
            case ir.BroadcastTo(x, shape):
                return f"broadcast_to({self.expression(x)}, {list(shape)})"
            case ir.Reshape(x, shape):
                return f"reshape({self.expression(x)}, {list(shape)})"
            case ir.Trans(x, (1, 0)):
                return f"trans({self.expression(x)})"
            case ir.Trans(x, permutation):
                return f"permute({self.expression(x)}, {list(permutation)})"
            case ir.Reduce(fn, x, axis):
                return f"{REDUCERS[fn].printed if fn in REDUCERS else fn}({self.expression(x)}, axis={axis})"
            case ir.Scan(fn, x, axis):
                return f"{REDUCERS[fn].scan or fn if fn in REDUCERS else fn}({self.expression(x)}, axis={axis})"
            case ir.GatherAlongAxis(x, index, axis):
                return f"gather({self.expression(x)}, {self.expression(index)}, axis={axis})"
        raise TypeError(f"{type(tile).__name__} is no expression of the tile language")
