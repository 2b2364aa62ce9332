"""Name every load, reduction, scan, product and reshape of a kernel.

What remains inside expressions is evaluated element by element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import tile as ir
from ..ir.tile_access import count_assignments, walk
from ..ir.tile_rewrite import fresh_name, map_operands
from ..ir.tile_types import Types

NAMED = (ir.Load, ir.Reduce, ir.Scan, ir.Dot)


def name_expressions(kernel: ir.Kernel, types: Types) -> ir.Kernel:
    """Name the loads, reductions, scans and products in the expressions of a kernel.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", out: "*f32"):
    ...     tl.store(out, tl.sum(tl.load(x + tl.arange(0, 8)) * 2.0, axis=0))
    ... ''')
    >>> print(name_expressions(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32", out: "*f32"):
        x_ = tl.load(x + tl.arange(0, 8))
        sum = tl.sum(x_ * 2.0, axis=0)
        tl.store(out, sum)
    """
    namer = ExpressionNamer(types, count_assignments(kernel.body))
    return kernel.replaced(body=namer.block(kernel.body))  # type: ignore[no-any-return]


class ExpressionNamer:
    """Rewrites the statements of one kernel; adds the new names to its types."""

    def __init__(self, types: Types, counts: Mapping[str, int] = {}) -> None:
        self.types = types
        self.counts = counts
        """Number of assignments of each name: names with several get their values from new names."""
        self.taken = set(types.variables)
        self.before: list[ir.Statement] = []
        self.made: dict[int, tuple[ir.Tile, ir.Tile]] = {}

    def block(self, body: Sequence[ir.Statement]) -> tuple[ir.Statement, ...]:
        """Return statements preceded by those that name parts of them."""
        outer, made = self.before, []
        for statement in body:
            self.before, self.made = [], {}
            new = self._statement(statement)
            made += [*self.before, new]
        self.before = outer
        return tuple(made)

    def _assigned(self, name: str, value: ir.Tile) -> ir.Tile:
        several = self.counts.get(name, 1) > 1 and not isinstance(value, ir.Load | ir.Dot)
        whole = isinstance(value, NAMED) and not several
        return map_operands(value, self.simple) if whole else self.simple(value)

    def _statement(self, statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.Assign(name, value):
                return ir.Assign(name, self._assigned(name, value))
            case ir.Store(pointer, value, mask):
                return ir.Store(self.simple(pointer), self.simple(value), None if mask is None else self.simple(mask))
            case ir.Atomic(fn, pointer, value, mask, expected, name):
                parts = [None if x is None else self.simple(x) for x in (pointer, value, mask, expected)]
                return ir.Atomic(fn, parts[0], parts[1], parts[2], parts[3], name)  # type: ignore[arg-type]
            case ir.Print(text, values):
                return ir.Print(text, tuple([self.simple(x) for x in values]))
            case ir.Assert():
                return statement
            case ir.For(index, start, stop, step, body):
                first, end, forward = self.simple(start), self.simple(stop), self.simple(step)
                before = self.before
                made = ir.For(index, first, end, forward, self.block(body))
                self.before = before
                return made
            case ir.If(condition, body, otherwise):
                condition = self.simple(condition)
                before = self.before
                chosen = ir.If(condition, self.block(body), self.block(otherwise))
                self.before = before
                return chosen
            case ir.While(condition, body):  # `condition` names the parts of its condition, evaluated in each iteration
                return ir.While(condition, self.block(body))

    def condition(self, condition: ir.Tile) -> tuple[list[ir.Statement], ir.Tile]:
        """Return the statements that a condition needs, and the condition."""
        outer, self.before, self.made = self.before, [], {}
        simple = self.simple(condition)
        before, self.before = self.before, outer
        return before, simple

    def simple(self, x: ir.Tile) -> ir.Tile:
        """Return an expression whose element at a position depends only on elements of names there."""
        found = self.made.get(id(x))
        if found is not None:
            return found[1]
        new = map_operands(x, self.simple)
        if isinstance(x, NAMED):
            name = self._fresh(x)
            self.types.variables[name] = self.types.of(x)
            self.before.append(ir.Assign(name, new))
            new = ir.Name(name)
        self.made[id(x)] = (x, new)  # keeps x alive, so that its id is not reused
        return new

    def _fresh(self, x: ir.Tile) -> str:
        match x:
            case ir.Load(pointer):
                base = next((y.name for y in walk(pointer) if isinstance(y, ir.Name) and self._points(y)), "loaded")
                stem = f"{base}_"
            case ir.Reduce(fn) | ir.Scan(fn):
                stem = {"add": "sum", "mul": "product", "bitand": "all", "bitor": "any"}.get(fn, fn)
            case _:
                stem = "product"
        name = fresh_name(stem, self.taken)
        self.taken.add(name)
        return name

    def _points(self, x: ir.Name) -> bool:
        return self.types.variables[x.name].pointer
