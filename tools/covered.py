"""Record which tests execute which statements of the compiler's passes, and how long each test takes.

Modules of the two folders are imported with a probe before each statement: `__seen__[number] = 1`. After each test its
probes are kept with its time. A statement is named by its function and its distance from the function's first line, so
that a record stays valid when other functions change. The record is not tracked by git.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import json
import os
import time
from pathlib import Path

import pytest
from faults import ROOT

FOLDERS = ("tilegrad/transform", "tilegrad/schedule")
RECORD = ROOT / "build" / "mutation" / "covered.json"
FOR_GPU = RECORD.with_name("covered_gpu.json")
"""The record of tests with kernels scheduled as for a GPU."""
NAMES: list[str] = []
"""Names of the statements, by number."""
MOST = 1 << 16
EVERY = 200
"""Tests after which the record is written, so that an interrupted run can continue."""


class _Probes(ast.NodeTransformer):
    """Add a probe before each statement of a function."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.functions: list[ast.FunctionDef | ast.ClassDef] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._within(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._within(node)

    def _within(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self.functions and not isinstance(node, ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                    setattr(node, field, [x for s in statements for x in self._probed(s)])
        return node

    def _probed(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return [statement]
        function = self.functions[-1]
        place = ".".join(f.name for f in self.functions)
        NAMES.append(f"{self.path}::{place}+{statement.lineno - function.lineno}")
        probe = ast.parse(f"__seen__[{len(NAMES) - 1}] = 1").body[0]
        for part in ast.walk(probe):
            ast.copy_location(part, statement)
        return [probe, statement]


def install() -> None:
    """Import the modules of the passes with probes from now on."""
    builtins.__seen__ = bytearray(MOST)  # type: ignore[attr-defined]
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        path = os.path.relpath(os.path.abspath(self.path), ROOT)
        if not path.startswith(FOLDERS):
            return plain(self, fullname)
        tree = _Probes(path).visit(ast.parse(Path(self.path).read_text()))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]


class Record:
    """The seconds of each test, and the statements that it executes: bits of a number, by their place in `names`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, int] = {}
        self.tests: dict[str, tuple[float, int]] = {}
        if path.exists():
            read = json.loads(path.read_text())
            self.names = {name: k for k, name in enumerate(read["statements"])}
            self.tests = {test: (seconds, int(bits, 16)) for test, (seconds, bits) in read["tests"].items()}

    def add(self, test: str, seconds: float, executed: list[str]) -> None:
        bits = 0
        for name in executed:
            bits |= 1 << self.names.setdefault(name, len(self.names))
        self.tests[test] = round(seconds, 3), bits

    def save(self) -> None:
        tests = {test: (seconds, f"{bits:x}") for test, (seconds, bits) in self.tests.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.with_suffix(".new").write_text(json.dumps({"statements": list(self.names), "tests": tests}))
        self.path.with_suffix(".new").replace(self.path)

    def executing(self, statement: str) -> dict[str, float]:
        """The tests that execute a statement; where none is known, those that execute its module."""
        wanted = 1 << self.names[statement] if statement in self.names else 0
        if not wanted:  # of a class, or changed since
            module = statement.partition("::")[0] + "::"
            wanted = sum(1 << k for name, k in self.names.items() if name.startswith(module))
        return {test: seconds for test, (seconds, bits) in self.tests.items() if bits & wanted}


class Recorder:
    """Run each test that is not yet in the record, and note what it executes; a test that fails executes nothing."""

    def __init__(self, path: Path, out: int) -> None:
        self.record, self.out = Record(path), out
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed or report.skipped

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if item.nodeid not in self.record.tests]
        seen = builtins.__seen__  # type: ignore[attr-defined]
        for n, item in enumerate(items):
            seen[:] = bytes(MOST)
            self.failed, start = False, time.process_time()
            following = items[n + 1] if n + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            executed = [] if self.failed else [NAMES[k] for k, hit in enumerate(seen) if hit]
            self.record.add(item.nodeid, time.process_time() - start, executed)
            if n % EVERY == EVERY - 1 or n == len(items) - 1:
                self.record.save()
                total = sum(seconds for seconds, _ in self.record.tests.values())
                line = f"{n + 1} of {len(items)}, {total:.0f} s of a processor in all, last {item.nodeid}\n"
                os.write(self.out, line.encode())
        return True
