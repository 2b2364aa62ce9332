"""The package as source: its files, and which of them import which. What the tests of its form share."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tilegrad"
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that stand directly in another."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, part, ())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and the statements in it, at any depth."""
    yield node
    for child in inside(node):
        yield from statements(child)


def module_name(path: Path) -> str:
    """`tilegrad/ir/node.py` is tilegrad.ir.node, `tilegrad/ir/__init__.py` tilegrad.ir."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def imported(path: Path) -> set[str]:
    """The package's modules that a file imports, at its top, inside functions or as parts that may be missing, but not
    for types alone.
    """
    found: set[str] = set()
    for node in _running(parsed(path)):
        match node:
            case ast.Import(names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module, names, level):
                base = _absolute(path, module or "", level)
                # `from .x import y`: y may be a module itself
                found |= {inner if (inner := f"{base}.{name.name}") in MODULES else base for name in names}
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Call(ast.Name("part"), [ast.Constant(str(module)), *_]):
                found.add(f"{PACKAGE.name}.{module}")
    return {name for name in found if name.split(".")[0] == PACKAGE.name}


def _absolute(path: Path, module: str, level: int) -> str:
    if not level:
        return module
    package = path.relative_to(ROOT).parent.parts
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement but those under `if TYPE_CHECKING:`."""
    yield node
    for child in inside(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _running(other)
        else:
            yield from _running(child)
