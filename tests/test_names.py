"""Names are words: what the package calls its own things."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import FILES, module_name, parsed

FORBIDDEN = {"ctx", "src", "dst", "ret", "utils", "util", "helpers", "misc", "tmp", "foo"}
SUSPICIOUS = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(sorted(FORBIDDEN))})(?![A-Za-z0-9])|pm_|Manager")
"""A text without any match has no forbidden name, and need not be parsed."""

GIVEN = {
    "tilegrad.autograd.function": {"ctx"},
    "tilegrad.functions.arranging": {"src"},
    "tilegrad.functions.inplace": {"src"},
    "tilegrad.functions.selecting": {"src"},
    "tilegrad.nn.transformer": {"src"},
}
"""Names of arguments that are PyTorch's, and that people type."""


def own_names(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives: to arguments, variables, fields, functions, classes, and to itself."""
    yield path.stem, 1
    for node in ast.walk(parsed(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(id, ast.Store()):
                yield id, node.lineno
            case ast.Attribute(_, attr, ast.Store()):
                yield attr, node.lineno


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_names(path: Path) -> None:
    if not SUSPICIOUS.search(f"{path.stem}\n{path.read_text()}"):
        return
    forbidden = FORBIDDEN - GIVEN.get(module_name(path), set())
    wrong = [
        f"line {line}: {name}"
        for name, line in own_names(path)
        if name.strip("_") in forbidden or name.startswith("pm_") or "Manager" in name
    ]
    assert not wrong, f"{module_name(path)}: {'; '.join(wrong)}"
