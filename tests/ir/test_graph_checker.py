"""A pass that breaks a graph is found out."""

import pytest

from tilegrad.errors import CompileError
from tilegrad.ir.dtype import float32, float64
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.graph_checker import check_graph
from tilegrad.ops.arithmetic import add, mul


def given(*shape: int, name: str = "x") -> Input:
    return Input(TensorType(float32, shape), name)


def test_right() -> None:
    x, y = given(3), given(2, 3)
    graph = Graph((x, y), (mul(add(x, y), x), x))
    assert check_graph(graph) is graph


def test_an_input_that_nobody_gives() -> None:
    x, y = given(3), given(3, name="y")
    with pytest.raises(CompileError, match="y: f32.3. is read, but is no input"):
        check_graph(Graph((x,), (add(x, y),)))


def test_what_is_in_memory_needs_nobody() -> None:
    x = given(3)
    x.hold(object())
    check_graph(Graph((), (mul(x, x),)))


def test_an_input_twice() -> None:
    x = given(3)
    with pytest.raises(CompileError, match="given twice"):
        check_graph(Graph((x, x), (x,)))


def test_a_wrong_type() -> None:
    x = given(3)
    z = add(x, x)
    z.__dict__["type"] = TensorType(float64, (3,))
    with pytest.raises(CompileError, match=r"says that it is f64\[3\], but its inputs make it f32\[3\]"):
        check_graph(Graph((x,), (z,)))


def test_inputs_that_do_not_fit() -> None:
    x, y = given(3), given(3, name="y")
    z = add(x, y)
    y.__dict__["type"] = TensorType(float32, (4,))
    with pytest.raises(CompileError, match="refuses its inputs"):
        check_graph(Graph((x, y), (z,)))


def test_a_cycle() -> None:
    x = given(3)
    y = add(x, x)
    z = mul(y, x)
    y.__dict__["inputs"] = (x, z)
    with pytest.raises(CompileError, match="is computed from itself"):
        check_graph(Graph((x,), (z,)))
