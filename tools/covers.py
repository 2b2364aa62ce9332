"""Find for every module the test file that covers most of it, and write the table `tests/covers.txt`.

    .venv-3.12/bin/python -m pytest -p tools.covers --covers build/covers ...   records (Python 3.12 or newer)
    python tools/covers.py build/covers                                         writes the table

A module with a test file of its own name needs no row. The record has, for each test file, the functions of the package
that its tests call.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests" / "covers.txt"
HEAD = """# Module, test file: the tests that call most of a module which has no test file of its own name.
# Written by tools/covers.py; tests/test_covers.py compares it with the files that there are.
"""


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--covers", default="", help="a folder for the record of called functions")


class Recorder:
    """Note the functions that the tests of the current file call."""

    TOOL = 4

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = ""
        self.called: dict[str, set[str]] = defaultdict(set)
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.use_tool_id(self.TOOL, "covers")
        monitoring.register_callback(self.TOOL, monitoring.events.PY_START, self.started)
        monitoring.set_events(self.TOOL, monitoring.events.PY_START)

    def started(self, code: CodeType, _: int) -> Any:
        if self.file and "/tilegrad/" in code.co_filename:
            self.called[self.file].add(f"{code.co_filename}:{code.co_firstlineno}")
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def pytest_runtest_setup(self, item: Any) -> None:
        file = item.location[0]
        if file != self.file:
            self.file = file
            sys.monitoring.restart_events()  # type: ignore[attr-defined]

    def pytest_sessionfinish(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_events(self.TOOL, 0)
        monitoring.free_tool_id(self.TOOL)
        self.folder.mkdir(parents=True, exist_ok=True)
        found = {file: sorted(called) for file, called in self.called.items()}
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(found))


def pytest_configure(config: Any) -> None:
    if config.getoption("--covers"):
        config.pluginmanager.register(Recorder(Path(config.getoption("--covers"))))


def functions(path: Path) -> set[int]:
    """The first lines of the functions of a module, decorators included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(min([node.lineno, *(d.lineno for d in node.decorator_list)]))
    return found


def record(folder: Path) -> dict[str, dict[Path, set[int]]]:
    """The lines of the called functions, by test file and module."""
    called: dict[str, dict[Path, set[int]]] = defaultdict(lambda: defaultdict(set))
    for part in folder.glob("*.json"):
        for file, places in json.loads(part.read_text()).items():
            for place in places:
                name, _, line = place.rpartition(":")
                module = ROOT / "tilegrad" / name.rpartition("/tilegrad/")[2]
                called[file][module].add(int(line))
    return called


def best(module: Path, called: dict[str, dict[Path, set[int]]], breadth: dict[str, int]) -> str:
    """The test file that calls most functions of a module; among equals the one that calls fewest other modules."""
    own = functions(module)
    near = set(module.relative_to(ROOT / "tilegrad").parts[:-1])

    def score(file: str) -> tuple[float, int]:
        share = len(called[file][module] & own) / max(1, len(own))
        return round(share + 0.1 * len(near & set(Path(file).parts)), 2), -breadth[file]

    candidates = [file for file in called if file.startswith("tests/") and called[file].get(module)]
    return max(candidates, key=score, default="")


def main(folder: Path) -> None:
    called = record(folder)
    breadth = {file: len(modules) for file, modules in called.items()}
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    rows, missing = [], []
    for module in sorted((ROOT / "tilegrad").rglob("*.py")):
        if module.stem in ("__init__", "__main__") or f"test_{module.stem}.py" in names:
            continue
        name = module.relative_to(ROOT).as_posix()
        file = best(module, called, breadth)
        rows.append(f"{name} {file}") if file else missing.append(name)
    TABLE.write_text(HEAD + "\n".join(rows) + "\n")
    print(f"{len(rows)} rows; no test calls a function of: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
