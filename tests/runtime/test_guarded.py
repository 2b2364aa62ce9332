"""Guarded calls: generated source that checks its inputs, names objects once, and falls back by returning `miss`."""

import ast

import pytest

from tests.source import FILES, PACKAGE
from tilegrad.runtime.guarded import GuardedCall, packed

MISS = object()


def test_a_rejected_call_returns_miss() -> None:
    call = GuardedCall("half", ["x"], MISS)
    call.guard("x.__class__ is int", "x % 2 == 0")
    call.guard()
    call.add("return x // 2")
    half = call.made()
    assert half(6) == 3
    assert half(5) is MISS
    assert half("6") is MISS


def test_an_error_within_a_lookup_is_a_miss_and_others_are_raised() -> None:
    call = GuardedCall("found", ["place", "name"], MISS)
    with call.missing("LookupError", "ValueError"):
        call.add(f"return {call.let('value', 'place[name]')}")
    found = call.made()
    assert found({"n": 1}, "n") == 1
    assert found({}, "n") is MISS
    with pytest.raises(TypeError):
        found(None, "n")


def test_an_object_has_one_name() -> None:
    call = GuardedCall("call")
    first, second = [1], [1]
    assert call.bind("x", first) == call.bind("x", first) == "x0"
    assert call.bind("x", second) == "x1"
    assert call.bind("y", first) == "y0"
    call.add("return x0, x1, y0")
    found = call.made()()
    assert [id(x) for x in found] == [id(first), id(second), id(first)]


@pytest.mark.parametrize("count", range(4))
def test_sequences_are_unpacked_and_packed(count: int) -> None:
    call = GuardedCall("copy", ["given"])
    names = call.unpack("x", count, "given")
    with call.block("if True"):
        call.add(f"return {packed(names)}")
    given = tuple(range(count))
    assert call.made()(given) == given


def test_source_is_generated_in_one_place() -> None:
    """Besides guarded calls only the constructors of nodes and functions with a given signature are generated."""
    known = {"runtime/guarded.py", "ir/node.py", "functions/signatures.py"}
    calls = {
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec"
    }
    assert calls == known
