"""Files of at most 500 lines, functions of at most 50; nothing lies at the root that a newcomer cannot place."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.source import ROOT, parsed, statements

MAX_LINES = 500
MAX_FUNCTION_LINES = 50

EXCEPTIONS: dict[str, str] = {"tests/fuzz/moves.py": "one short move for every op, in the order of the ops"}
"""`folder/file.py` or `folder/file.py::function`, and why it is better in one piece."""

SOURCES = sorted(p for folder in ("tilegrad", "bench", "tests", "examples") for p in (ROOT / folder).rglob("*.py"))


AT_THE_ROOT = {
    *(".ci", ".github", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"),
    *("SECURITY.md", "bench", "core.txt", "distributions", "docs", "examples", "pyproject.toml", "tests", "tilegrad"),
    "tools",
}


def test_the_root_holds_what_is_known() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a clone")
    found = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    assert found <= AT_THE_ROOT, "a cache folder or a note was committed"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_size(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES or name(path) in EXCEPTIONS, f"{name(path)} has {lines} lines"
    for node in statements(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            allowed = length <= MAX_FUNCTION_LINES or f"{name(path)}::{node.name}" in EXCEPTIONS
            assert allowed, f"{name(path)}:{node.lineno}: {node.name} has {length} lines"


def test_every_exception_is_needed() -> None:
    for entry in EXCEPTIONS:
        file, _, function = entry.partition("::")
        lines = len((ROOT / file).read_text().splitlines())
        found = [n for n in statements(parsed(ROOT / file)) if isinstance(n, ast.FunctionDef) and n.name == function]
        longest = max(((n.end_lineno or 0) - n.lineno + 1 for n in found), default=0)
        assert longest > MAX_FUNCTION_LINES if function else lines > MAX_LINES, f"{entry} is short enough now"
