"""Seeds faults in the compiler's passes, one at a time, and counts how many of them the tests notice.

`python tools/mutate.py --count 300 --seed 1` rewrites the syntax tree of one module of `tilegrad/transform/` or
`tilegrad/schedule/` (a comparison by its neighbour, a condition left out, a number off by one, arguments swapped, ...),
and runs the tests of that module, nearest first, until one fails. Nothing is written to the sources: a process that is
forked for each fault imports the changed module. What survives is printed as a line of the module before and after:
either it is equivalent (it changes what is chosen, not what is computed), or a test is missing.

`--only PART` takes the modules whose path has that part, `--leave NAMES` leaves some out; `--quick` runs fewer tests;
`--log FILE` adds a line of JSON for each fault.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import json
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tilegrad/transform", "tilegrad/schedule")
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
QUICK = ("passes", "simplify", "overlaid", "autodiff", "sooner", "positions", "looked_up", "products", "laid", "fusion")
QUICK += ("across", "again", "pieces", "fuzz", "counts")
THOROUGH = ("axes", "borders", "lowering", "grain", "shared_out", "winograd")
"""Files of tests that all passes go through, in the order of what they find for the time that they take."""
SKIPPED = ("test_documents.py",)
"""Files of tests that run other processes, which would import what has no fault."""
PATIENCE = 240
"""Seconds of a processor after which a fault counts as noticed: something goes on for ever."""


class Fault(NamedTuple):
    """`place` numbers the changes of a module in the order of its syntax tree."""

    path: str
    place: int
    line: int
    kind: str
    before: str
    after: str


class _Changes(ast.NodeTransformer):
    """Makes the change with a number, or counts them all."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.number = wanted, 0
        self.found: list[tuple[int, str, str, str]] = []

    def offer(self, node: ast.expr, kind: str, changed: ast.expr) -> ast.expr:
        number, self.number = self.number, self.number + 1
        if self.wanted < 0:
            self.found.append((node.lineno, kind, ast.unparse(node), ast.unparse(changed)))
        return ast.copy_location(changed, node) if number == self.wanted else node

    def visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.AnnAssign() | ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert():
                return node
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                return node  # a threshold decides what is chosen
            case ast.FunctionDef() | ast.ClassDef():
                node.body = [x if _is_text(x) else self.visit(x) for x in node.body]  # type: ignore[misc]
                return node
            case ast.JoinedStr():
                return node
        node = self.generic_visit(node)
        for kind, changed in list(_changed(node)) if isinstance(node, ast.expr) else []:
            node = self.offer(node, kind, changed)  # type: ignore[arg-type]
        if isinstance(node, ast.If) and not isinstance(node.test, ast.BoolOp | ast.NamedExpr):
            for flag in (True, False):
                node.test = self.offer(node.test, "condition dropped", ast.Constant(flag))
        return node


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
    """Every fault that can be seeded in a module."""
    changes = _Changes()
    changes.visit(ast.parse((ROOT / path).read_text()))
    return [Fault(path, n, *found) for n, found in enumerate(changes.found)]


def seeded(fault: Fault) -> ast.Module:
    """The syntax tree of a module with a fault."""
    tree = ast.parse((ROOT / fault.path).read_text())
    _Changes(fault.place).visit(tree)
    return ast.fix_missing_locations(copy.deepcopy(tree))


def tests_of(path: str, quick: bool) -> list[str]:
    """List the tests to run for a module: its examples, those named after it, then those of all passes."""
    stem = Path(path).stem
    every = {
        p.stem.removeprefix("test_"): str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    named = [p for name, p in every.items() if stem in name.split("_") or name == stem]
    through = [every[name] for name in (QUICK if quick else QUICK + THOROUGH) if name in every]
    return [path, *dict.fromkeys(p for p in [*named, *through] if Path(p).name not in SKIPPED)]


def survives(fault: Fault, quick: bool) -> bool:
    """Whether no test fails with a fault, in a process of its own."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        code = 2
        try:
            _import_with(fault)
            code = _run(tests_of(fault.path, quick))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _import_with(fault: Fault) -> None:
    """From now on the module of a fault is imported with it."""
    target, plain = str(ROOT / fault.path), importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if os.path.abspath(self.path) == target:
            return compile(seeded(fault), target, "exec")
        return plain(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]


def _run(tests: list[str]) -> int:
    import pytest

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    # plain assertions: pytest would read the module itself, to rewrite its assertions
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--assert=plain", "--tb=no", "-W", "ignore"]
    return int(pytest.main([*options, *tests]) != 0)


def chosen(count: int, seed: int, only: str, leave: str) -> list[Fault]:
    """Faults of all modules, drawn alike from all that there are."""
    paths = sorted(str(p.relative_to(ROOT)) for f in FOLDERS for p in (ROOT / f).glob("*.py"))
    paths = [p for p in paths if only in p and Path(p).stem not in leave.split(",")]
    every = [fault for p in paths for fault in faults_of(p)]
    return random.Random(seed).sample(every, min(count, len(every)))


def main() -> None:
    options = argparse.ArgumentParser(description="how many seeded faults the tests notice")
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--start", type=int, default=0, help="how many of them to leave out at the beginning")
    options.add_argument("--only", default="")
    options.add_argument("--leave", default="", help="modules to leave out, by name, separated by commas")
    options.add_argument("--quick", action="store_true", help="only the tests that find most for their time")
    options.add_argument("--log", default="")
    given = options.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["TILEGRAD_CACHE"] = "off"  # what a faulty compiler makes is not kept for others
    import hypothesis  # noqa: F401  # what all tests need is there before the processes part
    import llvmlite.binding  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401

    caught = total = 0
    for fault in chosen(given.count, given.seed, given.only, given.leave)[given.start :]:
        start = time.monotonic()
        alive = survives(fault, given.quick)
        total, caught = total + 1, caught + (not alive)
        seconds = time.monotonic() - start
        if given.log:
            with open(given.log, "a") as log:
                log.write(json.dumps({**fault._asdict(), "survives": alive, "seconds": round(seconds, 1)}) + "\n")
        mark = "SURVIVES" if alive else "caught"
        print(f"{caught}/{total} {mark} {seconds:.0f}s {fault.path}:{fault.line} {fault.kind}", flush=True)
        if alive:
            print(f"    {fault.before}\n ->  {fault.after}", flush=True)
    print(f"{caught} of {total} faults were noticed: {caught / max(1, total):.1%}")


if __name__ == "__main__":
    main()
