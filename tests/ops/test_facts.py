"""Passes ask ops for facts (`moves`, `contracts`, `store`, `cost`), not for their names."""

from __future__ import annotations

import ast

import pytest

from tests.source import ROOT
from tilegrad.ir.functions import FUNCTIONS
from tilegrad.ops.base import Elementwise

from .registry import all_examples

FILES = [
    path
    for folder in ("ir", "ops", "transform", "schedule", "backend", "lazy", "jitted", "runtime", "profile")
    for path in sorted((ROOT / "tilegrad" / folder).rglob("*.py"))
]


def _compares_an_op_name(node: ast.AST) -> bool:
    """Whether a node compares `x.op` with anything, or asks how it begins."""
    names = lambda x: isinstance(x, ast.Attribute) and x.attr == "op"  # noqa: E731
    match node:
        case ast.Compare(left, _, others):
            return any(map(names, (left, *others)))
        case ast.Call(ast.Attribute(value, "startswith" | "endswith")):
            return names(value)
        case ast.Match(subject):
            return names(subject)
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_ops_are_not_told_apart_by_name(path: object) -> None:
    found = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if _compares_an_op_name(node)]  # type: ignore[attr-defined]
    assert not found, f"{path}: compares names of ops in lines {found}; ask for a fact of the class, or its type"


def test_the_cost_of_an_op_is_that_of_its_function() -> None:
    for op in {type(v) for e in all_examples() for v in e.graph().values() if isinstance(v, Elementwise)}:
        if op.fn and FUNCTIONS[op.fn].expensive:
            assert op.cost == "expensive"
