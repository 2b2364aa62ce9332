"""Measure the size and the form of the source.

python tools/house.py                     the table
python tools/house.py --branches FOLDER   functions with more than 10 branches, the worst first
python tools/house.py --thresholds FOLDER numbers in conditions and constants without name, unit or reason
python tools/house.py --untested          modules without a test of their own
python tools/house.py --classes           class names with several meanings
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tilegrad"
DISTRIBUTIONS = ("torch", "simt")
"""Folders that are distributions of their own, inside the package or beside it."""
MAX_BRANCHES = 10
DECIDING = ("schedule", "transform", "ops", "backend")
"""Folders whose decisions come from the costs of a target."""
PLAIN = {0, 1, 2, 3, 4, 0.5}
"""Numbers that are no thresholds in a condition: counts of axes, operands and halves."""
BARE = re.compile(r"^_?(MOST|LEAST|FEW|LARGE|SMALL|ENOUGH|SHORT|LONG|TOGETHER|ROOM|EVEN|WIDE|DEEP)$")
"""Names that say neither a quantity nor a unit."""


class Found(NamedTuple):
    """A place in the source, with a description."""

    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.what}"


def files(*folders: str) -> list[Path]:
    """Python files of the package and of its other distributions."""
    roots = [PACKAGE / folder for folder in folders] if folders else [PACKAGE]
    roots += [ROOT / name for name in DISTRIBUTIONS if not folders and (ROOT / name).is_dir()]
    return sorted(path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py")))


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


def branches(node: ast.AST) -> int:
    """Count conditions, loops, handlers, cases, conditional expressions and boolean expressions of a function."""
    kinds = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.match_case, ast.IfExp, ast.BoolOp)
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return sum(isinstance(n, kinds) + branches(n) for n in ast.iter_child_nodes(node) if not isinstance(n, inner))


def branching(paths: list[Path]) -> list[tuple[int, Found]]:
    """Functions with more than the allowed number of branches, the worst first."""
    found = [
        (count, Found(path, fn.lineno, f"{fn.name} has {count} branches"))
        for path in paths
        for fn in functions(ast.parse(path.read_text()))
        if (count := branches(fn)) > MAX_BRANCHES
    ]
    return sorted(found, key=lambda entry: -entry[0])


def _number(node: ast.AST) -> float | None:
    """The value of a numeric literal or of arithmetic on such literals."""
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})  # type: ignore[arg-type]
    except Exception:
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _unshifted(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression but for counts of bits by which a variable is shifted."""
    yield node
    for child in ast.iter_child_nodes(node):
        shift = isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift) and child is node.right
        if not shift or _number(node.left) is not None:  # type: ignore[attr-defined]
            yield from _unshifted(child)


def thresholds(paths: list[Path]) -> list[Found]:
    """Numbers that decide something without saying what they are.

    A constant of a module needs a docstring, or a value that is derived from other names, and a name that says more
    than "most"; a number in a comparison, or as a bound in `min` and `max`, needs a name, and so does a factor in
    an estimate of `schedule` or `transform`.
    """
    found = []
    for path in paths:
        tree = ast.parse(path.read_text())
        if path.name == "costs.py":
            continue
        for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                name = ast.unparse(target)
                if _number(statement.value) is not None and (BARE.match(name) or not described):
                    found.append(Found(path, statement.lineno, ast.unparse(statement)))
        for node in ast.walk(tree):
            operands: list[ast.expr] = []
            if isinstance(node, ast.Compare) and any(
                isinstance(o, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for o in node.ops
            ):
                operands = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
                operands = node.args
            elif isinstance(node, ast.BinOp) and path.parts[-2] in ("schedule", "transform"):
                operands = [x for x in (node.left, node.right) if isinstance(_number(x), float)]
            values = [x.value for o in operands for x in _unshifted(o) if isinstance(x, ast.Constant)]
            if any(isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) not in PLAIN for x in values):
                assert isinstance(node, ast.expr)
                found.append(Found(path, node.lineno, ast.unparse(node)[:90]))
    return found


def covered() -> dict[str, str]:
    """The table of the tests: the test file that covers a module which has none of its own name."""
    table = ROOT / "tests" / "covers.txt"
    rows = table.read_text().splitlines() if table.exists() else []
    return dict(row.split(maxsplit=1) for row in rows if row and not row.startswith("#"))  # type: ignore[misc]


def untested() -> list[Path]:
    """Modules without a test of their own name that are not in the table either."""
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    known = covered()
    return [
        path
        for path in files()
        if path.stem not in ("__init__", "__main__")
        and f"test_{path.stem}.py" not in names
        and not any((ROOT / test).exists() for test in [known.get(path.relative_to(ROOT).as_posix(), "missing")])
    ]


def classes() -> dict[str, list[Path]]:
    """Map class names that several modules define to the modules."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.strip("_")].append(path.relative_to(ROOT))
    return {name: paths for name, paths in sorted(found.items(), key=lambda x: -len(x[1])) if len(paths) > 1}


def same_meaning() -> set[str]:
    """Class names that tests/test_names.py lets two modules define, with a reason."""
    for node in ast.parse((ROOT / "tests" / "test_names.py").read_text()).body:
        match node:
            case ast.Assign([ast.Name("SAME_MEANING")], ast.Dict(keys)):
                return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return set()


def several_meanings() -> dict[str, list[Path]]:
    """Class names that several modules define for different things."""
    allowed = same_meaning()
    return {name: paths for name, paths in classes().items() if name not in allowed}


def table() -> str:
    every = files()
    core = [p for p in every if p.relative_to(ROOT).parts[:2] not in {("tilegrad", d) for d in DISTRIBUTIONS}]
    core = [p for p in core if p.is_relative_to(PACKAGE)]
    modules = [p for p in every if p.stem not in ("__init__", "__main__")]
    tested = 100 * (1 - len(untested()) / len(modules))
    rows = [
        ("lines, all distributions", f"{lines(every):,}", "88,000"),
        ("lines, core distribution", f"{lines(core):,}", "80,000"),
        (f"functions with more than {MAX_BRANCHES} branches", str(len(branching(every))), "70"),
        ("thresholds without name, unit or reason", str(len(thresholds(files(*DECIDING)))), "0"),
        ("modules with a test of their own, or in the table", f"{tested:.0f} %", "100 %"),
        ("class names with several meanings", str(len(several_meanings())), "0"),
    ]
    return "\n".join(["| what | now | goal |", "| --- | --- | --- |", *(f"| {a} | {b} | {c} |" for a, b, c in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--branches", nargs="*", metavar="FOLDER")
    parser.add_argument("--thresholds", nargs="*", metavar="FOLDER")
    parser.add_argument("--untested", action="store_true")
    parser.add_argument("--classes", action="store_true")
    options = parser.parse_args()
    if options.branches is not None:
        print(*(found for _, found in branching(files(*options.branches))), sep="\n")
    elif options.thresholds is not None:
        print(*thresholds(files(*(options.thresholds or DECIDING))), sep="\n")
    elif options.untested:
        print(*(path.relative_to(ROOT) for path in untested()), sep="\n")
    elif options.classes:
        print(
            *(f"{len(paths)} {name}: {', '.join(map(str, paths))}" for name, paths in several_meanings().items()),
            sep="\n",
        )
    else:
        print(table())


if __name__ == "__main__":
    main()
