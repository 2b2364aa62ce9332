"""The faults that `tools/mutate.py` seeds: small changes of the syntax tree of a module."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NEIGHBOURS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHERS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "rows": "columns", "columns": "rows"}
NAMES |= {"outer": "inner", "inner": "outer", "low": "high", "high": "low"}
FUNCTIONS = ast.FunctionDef | ast.ClassDef


class Fault(NamedTuple):
    """`place` numbers the changes of a module in the order of its syntax tree; the rest says the same in words.

    `statement` is the first line of the innermost statement, `nth` counts equal changes within it: with the function
    they tell a fault from the others of its module when lines have moved.
    """

    path: str
    place: int
    line: int
    function: str
    offset: int
    statement: str
    kind: str
    before: str
    after: str
    nth: int

    @property
    def key(self) -> str:
        words = (self.path, self.function, self.statement, self.before, self.after, str(self.nth))
        return " | ".join(words)

    @property
    def covered(self) -> str:
        """The name of the statement for `tools/covered.py`."""
        return f"{self.path}::{self.function}+{self.offset}"


class _Changes(ast.NodeTransformer):
    """Make the change with a number, or list them all."""

    def __init__(self, path: str, wanted: int = -1) -> None:
        self.path, self.wanted, self.number = path, wanted, 0
        self.found: list[Fault] = []
        self.functions: list[FUNCTIONS] = []
        self.statements: list[ast.stmt] = []
        self.times: Counter[tuple[ast.stmt, str, str]] = Counter()

    def offer(self, node: ast.expr, kind: str, changed: ast.expr) -> ast.expr:
        number, self.number = self.number, self.number + 1
        if self.wanted < 0 and self.statements and self.functions:
            self.found.append(self._fault(number, node, kind, changed))
        return ast.copy_location(changed, node) if number == self.wanted else node

    def _fault(self, number: int, node: ast.expr, kind: str, changed: ast.expr) -> Fault:
        before, after, statement = ast.unparse(node), ast.unparse(changed), self.statements[-1]
        nth = self.times[statement, before, after]
        self.times[statement, before, after] += 1
        place = ".".join(f.name for f in self.functions)
        offset = statement.lineno - self.functions[-1].lineno
        head = _first_line(self.path, statement.lineno)
        return Fault(self.path, number, node.lineno, place, offset, head, kind, before, after, nth)

    def visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.AnnAssign() | ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.JoinedStr():
                return node
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                return node  # a threshold decides what is chosen
            case ast.FunctionDef() | ast.ClassDef():
                self.functions.append(node)
                node.body = [x if _is_text(x) else self.visit(x) for x in node.body]  # type: ignore[misc]
                self.functions.pop()
                return node
            case ast.stmt():
                self.statements.append(node)
                changed = self._offered(node)
                self.statements.pop()
                return changed
        return self._offered(node)

    def _offered(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        for kind, changed in list(_changed(node)) if isinstance(node, ast.expr) else []:
            node = self.offer(node, kind, changed)  # type: ignore[arg-type]
        if isinstance(node, ast.If) and not isinstance(node.test, ast.BoolOp | ast.NamedExpr):
            for flag in (True, False):
                node.test = self.offer(node.test, "condition dropped", ast.Constant(flag))
        return node


@cache
def _lines(path: str) -> list[str]:
    return (ROOT / path).read_text().splitlines()


def _first_line(path: str, number: int) -> str:
    return _lines(path)[number - 1].strip()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _changed(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Generate the expressions that may stand for one by mistake."""
    match node:
        case ast.Compare(left, [op], comparators) if type(op) in NEIGHBOURS:
            yield "comparison", ast.Compare(left, [NEIGHBOURS[type(op)]()], comparators)
        case ast.BinOp(left, op, right) if type(op) in OTHERS:
            yield "operator", ast.BinOp(left, OTHERS[type(op)](), right)
        case ast.BoolOp(op, values):
            for n in range(len(values)):
                rest = values[:n] + values[n + 1 :]
                yield "condition dropped", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
            yield "and/or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.Constant(bool() as value):
            yield "flag", ast.Constant(not value)
        case ast.Constant(int() as value):
            yield "off by one", ast.Constant(value + 1)
        case ast.UnaryOp(ast.Not(), operand):
            yield "condition dropped", operand
        case ast.Call(function, [first, second, *others], keywords) if type(first) is type(second) is ast.Name:
            yield "arguments swapped", ast.Call(function, [second, first, *others], keywords)
        case ast.Tuple([first, second, *others], context) if type(first) is type(second) is ast.Name:
            if isinstance(context, ast.Load):
                yield "elements swapped", ast.Tuple([second, first, *others], context)
        case ast.Name(name, ast.Load()) if name in NAMES:
            yield "name", ast.Name(NAMES[name], ast.Load())
        case ast.Attribute(value, name, ast.Load()) if name in NAMES:
            yield "name", ast.Attribute(value, NAMES[name], ast.Load())
        case ast.Subscript(value, ast.Slice(low, high, None), ast.Load()) if low is not None or high is not None:
            yield "slice", ast.Subscript(value, ast.Slice(high, low, None), ast.Load())


def faults_of(path: str) -> list[Fault]:
    """Every fault that can be seeded in the functions of a module."""
    changes = _Changes(path)
    changes.visit(ast.parse((ROOT / path).read_text()))
    return changes.found


def seeded(fault: Fault) -> ast.Module:
    """The syntax tree of a module with a fault."""
    tree = ast.parse((ROOT / fault.path).read_text())
    _Changes(fault.path, fault.place).visit(tree)
    return ast.fix_missing_locations(copy.deepcopy(tree))
