"""Write the `.pyi` files of modules whose names are made when they are imported, which type checkers cannot see.

python tools/stubs.py            writes them
python tools/stubs.py --check    fails if one differs from what would be written
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from inspect import Parameter, signature, unwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import tilegrad as tg
from tilegrad.functions.registry import names_with
from tilegrad.tensor import BINARY_OPERATORS, Method  # type: ignore[attr-defined]

ROOT = Path(__file__).parent.parent
HEAD = "# Written by tools/stubs.py from {source}; a test compares it.\n"
IN_PLACE_OPERATORS = tuple(f"__i{name}__" for name in BINARY_OPERATORS)
WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@cache
def _definitions(module: str) -> dict[str, str]:
    """Map every name that a module imports (for types, too) or defines to the import that gives it."""
    path = Path(str(import_module(module).__file__))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {
                x.asname or x.name: f"import {x.name}" + (f" as {x.asname}" if x.asname else "") for x in node.names
            }
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                found[name.asname or name.name] = f"from {source} import {name.name}"
        defined = [node.name] if isinstance(node, ast.ClassDef) else []
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in [*defined, *(x.id for x in targets if isinstance(x, ast.Name) and x.id[0].isupper())]:
            found.setdefault(name, f"from {module} import {name}")
    return found


class Stub:
    """The text of one stub, with the imports that its annotations need."""

    def __init__(self, source: str, hidden: frozenset[str] = frozenset()) -> None:
        self.source, self.hidden = source, hidden
        self.imports: set[str] = set()
        self.lines: list[str] = []

    def annotation(self, text: object, module: str) -> str:
        """Return an annotation as it reads in the stub; names that the stub hides are taken from `builtins`."""
        if text is Parameter.empty:
            return "Any"
        text = text if isinstance(text, str) else str(text)
        for name in set(WORD.findall(re.sub(r"\"[^\"]*\"", "", text))):
            if name in _definitions(module):
                self.imports.add(_definitions(module)[name])
            elif name in self.hidden and hasattr(builtins, name):
                self.imports.add("import builtins")
                text = re.sub(rf"(?<![\w.]){name}\b", f"builtins.{name}", text)
        return text

    def function(self, name: str, fn: Any, indent: str = "", **options: bool) -> None:
        """Add the declaration of a function, as a method if it is one, with `out=` or with its own type as result."""
        inner = unwrap(fn)
        declared = signature(fn)
        parameters = list(declared.parameters.values())
        module = inner.__module__
        if name.startswith("__"):
            parameters = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
        if indent:
            parameters[0] = Parameter("self", Parameter.POSITIONAL_ONLY)
        if options.get("out") and "out" not in declared.parameters:
            at = next((n for n, p in enumerate(parameters) if p.kind is Parameter.VAR_KEYWORD), len(parameters))
            parameters.insert(at, Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation="Any"))
        result = "Self" if indent and options.get("own") else self.annotation(declared.return_annotation, module)
        if declared.return_annotation in ("R", "Self"):
            result = "Self" if indent else "Tensor"
        self.lines.append(
            f"{indent}def {name}({self._parameters(parameters, module)}) -> {result}: ...{_ignored(name)}"
        )

    def object(self, name: str, found: Any) -> None:
        """Add a name that is imported, or the type of an object."""
        if isinstance(found, ModuleType):
            self.imports.add(f"from . import {name} as {name}")
        elif isinstance(found, type) and _is_made(found):
            self.made_class(name, found)
        elif isinstance(found, (type, FunctionType)):
            inner = unwrap(found)
            self.imports.add(f"from {inner.__module__} import {inner.__name__} as {name}")
        elif isinstance(found, (int, float)) or found is None:
            self.lines.append(f"{name}: {'None' if found is None else type(found).__name__}")
        else:
            self.imports.add(f"from {type(found).__module__} import {type(found).__name__} as {type(found).__name__}")
            self.lines.append(f"{name}: {type(found).__name__}")

    def made_class(self, name: str, found: type) -> None:
        """Add the declaration of a class that no class statement defines, with its constructor."""
        (base,) = found.__bases__
        self.imports.add(f"from {base.__module__} import {base.__name__}")
        made: Any = found.__init__
        function = unwrap(found.forward).__globals__.get("function", made)  # type: ignore[attr-defined]
        parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *list(signature(made).parameters.values())[1:]]
        self.lines.append(f"class {name}({base.__name__}):")
        self.lines.append(f"    def __init__({self._parameters(parameters, unwrap(function).__module__)}) -> None: ...")

    def _parameters(self, parameters: list[Parameter], module: str) -> str:
        shown, starred = [], False
        for p in parameters:
            starred |= p.kind is Parameter.VAR_POSITIONAL
            if p.kind is Parameter.KEYWORD_ONLY and not starred:
                shown.append("*")
                starred = True
            mark = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(p.kind, "")
            declared = "Tensor" if p.name == "self" else self.annotation(p.annotation, module)
            text = "self" if p.kind is Parameter.POSITIONAL_ONLY else f"{mark}{p.name}: {declared}"
            shown.append(text + (f" = {_default(p.default)}" if p.default is not Parameter.empty else ""))
        return ", ".join(shown)

    def text(self, *last: str) -> str:
        """Return the stub as a file."""
        own = self.source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imports = {line for line in self.imports if not line.startswith(f"from {own} ")}
        imports.add("from typing import Any, Self")
        imports = {line for line in imports if not any(f"{line} as " in other for other in imports)}
        return _formatted("\n".join([HEAD.format(source=self.source), *sorted(imports), *self.lines, *last, ""]))


def _is_made(found: type) -> bool:
    """Whether no class statement defines a class."""
    if not found.__module__.startswith("tilegrad.") or not hasattr(found, "forward"):
        return False
    tree = ast.parse(Path(str(import_module(found.__module__).__file__)).read_text())
    return not any(isinstance(node, ast.ClassDef) and node.name == found.__name__ for node in ast.walk(tree))


def _formatted(text: str) -> str:
    """Return a stub as ruff formats it, without the imports that are not needed."""
    for command in (["check", "--quiet", "--fix-only", "--select=I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename=stub.pyi", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def _default(value: object) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) and value == value else "..."


def _ignored(name: str) -> str:
    return "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""


def tensor() -> str:
    """Return the stub of `Tensor`."""
    space = {name: getattr(tg.Tensor, name) if isinstance(x, Method) else x for name, x in vars(tg.Tensor).items()}
    names = [name for name, found in space.items() if isinstance(found, (FunctionType, property))]
    stub = Stub("tilegrad/tensor.py", frozenset(names))
    for name in names:
        found = space[name]
        if isinstance(found, property):
            stub.lines += ["    @property", f"    def {name}(self) -> Tensor: ..."]
        else:
            in_place = (
                name.endswith("_") and (not name.startswith("__") or name.startswith("__i")) and name != "__init__"
            )
            stub.function(name, found, "    ", own=in_place and name != "__invert__")
    stub.imports.add("from tilegrad.properties import Properties")
    stub.lines.insert(0, "class Tensor(Properties):")
    return stub.text()


def functions(module: ModuleType, with_out: tuple[str, ...]) -> str:
    """Return the stub of a module of functions."""
    stub = Stub(_path(module))
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, FunctionType):
            stub.function(name, found, out=name in with_out)
        else:
            stub.object(name, found)
    return stub.text(*_all(module.__all__))


def package(module: ModuleType, starred: ModuleType | None = None) -> str:
    """Return the stub of a package that only imports: all names of one module, others from where they are defined."""
    stub = Stub(_path(module))
    names = [name for name in module.__all__ if starred is None or name not in starred.__all__]
    for name in names:
        stub.object(name, getattr(module, name))
    if starred is None:
        return stub.text(*_all(names))
    short = starred.__name__.rpartition(".")[2]
    stub.imports |= {f"from .{short} import *", f"from . import {short}"}
    return stub.text(*_all(names), f"__all__ += {short}.__all__")


def _path(module: ModuleType) -> str:
    return Path(str(module.__file__)).relative_to(ROOT).as_posix()


def _all(names: Iterable[str]) -> list[str]:
    return ["", "__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]"]


def stubs() -> dict[Path, str]:
    """Return all stubs by their paths."""
    return {
        ROOT / "tilegrad/__init__.pyi": package(tg, tg.functional),
        ROOT / "tilegrad/tensor.pyi": tensor(),
        ROOT / "tilegrad/functional.pyi": functions(tg.functional, names_with("out")),
        ROOT / "tilegrad/nn/__init__.pyi": package(tg.nn),
        ROOT / "tilegrad/nn/functional/__init__.pyi": functions(tg.nn.functional, ()),
        ROOT / "tilegrad/nn/utils/__init__.pyi": package(tg.nn.utils),
        ROOT / "tilegrad/autograd/__init__.pyi": package(tg.autograd),
        ROOT / "tilegrad/optim/__init__.pyi": package(tg.optim),
        ROOT / "tilegrad/optim/lr_scheduler.pyi": package(tg.optim.lr_scheduler),
        ROOT / "tilegrad/optim/swa_utils.pyi": package(tg.optim.swa_utils),
        ROOT / "tilegrad/data/__init__.pyi": package(tg.data),
        ROOT / "tilegrad/runtime/__init__.pyi": package(tg.runtime),
    }


def main() -> None:
    """Write the stubs, or compare them."""
    different = [path for path, text in stubs().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"run tools/stubs.py: {', '.join(path.name for path in different)} would change" if different else 0)
    for path in different:
        path.write_text(stubs()[path])


if __name__ == "__main__":
    main()
