"""Nodes are frozen: what changes is in `Provenance`, and one function writes to a node."""

import ast

import pytest

import tilegrad as tg
from tests.source import FILES, module_name, parsed
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType
from tilegrad.ir.node import FrozenNodeError
from tilegrad.ir.provenance import NOTHING

OWN_ATTRIBUTES = {
    "tilegrad.functions.exporting", "tilegrad.functions.declared", "tilegrad.nn.module", "tilegrad.nn.graph_module",
    "tilegrad.properties", "tilegrad.torch.host", "tilegrad.optim.hooks", "tilegrad.optim.optimizer",
    "tilegrad.optim.schedule", "tilegrad.nn.norm", "tilegrad.nn.parameter", "tilegrad.serialization.storages",
    "tilegrad.ir.provenance", "tilegrad.simt.gpu_launch", "tilegrad.saved.exported",
}  # fmt: skip
"""Modules that write attributes of tensors, modules and functions, which are not nodes."""
CANDIDATES = [path for path in FILES if module_name(path) != "tilegrad.ir.node" and "__dict__" in path.read_text()]


def is_dict(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "__dict__"


@pytest.mark.parametrize("path", CANDIDATES, ids=module_name)
def test_nobody_writes_to_the_dict_of_a_node(path: str) -> None:
    if module_name(path) in OWN_ATTRIBUTES:
        return
    for node in ast.walk(parsed(path)):
        item = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and is_dict(node.value)
        named = item and isinstance(node.slice, ast.Constant)  # type: ignore[attr-defined]
        called = isinstance(node, ast.Attribute) and node.attr in ("update", "setdefault") and is_dict(node.value)
        written = named or called
        assert not written, f"{module_name(path)}:{node.lineno}: use Value.note(), or amend or cache_fact of ir.node"  # type: ignore[attr-defined]


def test_values_share_an_empty_provenance_until_something_is_noted() -> None:
    x = Input(TensorType(float32, (2,)))
    assert x.provenance is NOTHING
    with pytest.raises(AttributeError, match="note"):
        x.provenance.is_leaf = True
    with pytest.raises(FrozenNodeError):
        x.type = TensorType(float32, ())
    x.note().is_leaf = True
    assert x.provenance.is_leaf
    assert not Input(x.type).provenance.is_leaf


def test_a_copy_has_a_provenance_of_its_own() -> None:
    x = Input(TensorType(float32, (2,)))
    x.note().is_number = True
    copy = x.copied()
    copy.note().is_weak = True
    assert copy.provenance.is_number
    assert not x.provenance.is_weak


def test_leaves_and_views_say_so() -> None:
    x = tg.zeros(2, 3, requires_grad=True)
    assert x.value.provenance.is_leaf
    assert x.value.provenance.holder() is x
    assert not (x * 2).value.provenance.is_leaf
    tg.zeros(2).value.note()
    assert tg.zeros(2, 3).t().value.provenance.shares_memory
