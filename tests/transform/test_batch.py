"""Batching against loops over the entries: every op, nested, and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples, given
from tests.ops.test_examples import DIFFERENTIABLE, backward, check_gradient, compare
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import mul
from tilegrad.ops.batched import Batched
from tilegrad.ops.broadcasting import fill_like, reduce_sum
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import flip, permute
from tilegrad.ops.trigonometric import sin
from tilegrad.transform.autodiff import gradients, tracked_input
from tilegrad.transform.batch import batch, substitute

ENTRIES = 3


def entries(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Several different entries of each array."""
    return [np.stack([np.roll(a.reshape(-1), k).reshape(a.shape) for k in range(ENTRIES)]) for a in arrays]


def batched_graph(graph: Graph, mapped: list[bool], arrays: list[np.ndarray]) -> Graph:
    inputs = [given(a) if m else x for x, a, m in zip(graph.inputs, arrays, mapped, strict=True)]
    pairs = {x: many for x, many, m in zip(graph.inputs, inputs, mapped, strict=True) if m}
    return Graph(tuple(inputs), tuple(batch(graph.outputs, pairs)))


def looped(graph: Graph, mapped: list[bool], arrays: list[np.ndarray]) -> list[Any]:
    made = [interpret(graph, [a[k] if m else a for a, m in zip(arrays, mapped, strict=True)]) for k in range(ENTRIES)]
    return [np.stack(values) for values in zip(*made, strict=True)]


def masks(count: int) -> list[list[bool]]:
    """All inputs with the batch axis; and each alone."""
    alone = [[n == k for n in range(count)] for k in range(count)] if count > 1 else []
    return [[True] * count, *alone]


WITH_INPUTS = [e for e in all_examples() if e.arrays]


@pytest.mark.parametrize("e", WITH_INPUTS, ids=lambda e: e.name)
def test_batched_is_a_loop(e: Example) -> None:
    graph = e.graph()
    for mapped in masks(len(e.arrays)):
        arrays = [many if m else a for a, many, m in zip(e.arrays, entries(e.arrays), mapped, strict=True)]
        found = interpret(batched_graph(graph, mapped, arrays), arrays)
        compare(found, looped(graph, mapped, arrays), 1e-12)


@pytest.mark.parametrize("e", DIFFERENTIABLE, ids=lambda e: e.name)
def test_gradient_of_batched_is_batched_gradient(e: Example) -> None:
    graph = backward(e.graph())
    if len(graph.inputs) == len(e.arrays):
        return
    upstreams = [np.random.default_rng(1).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(e.arrays) :]]
    arrays = entries((*e.arrays, *upstreams))
    mapped = [True] * len(arrays)
    wanted = looped(graph, mapped, arrays)
    vmap_of_grad = batched_graph(graph, mapped, arrays)
    compare(interpret(vmap_of_grad, arrays), wanted, 1e-9)
    count = len(e.arrays)
    grad_of_vmap = backward(batched_graph(e.graph(), mapped[:count], arrays[:count]))
    compare(interpret(grad_of_vmap, arrays), wanted, 1e-9)


@pytest.mark.parametrize("e", DIFFERENTIABLE, ids=lambda e: e.name)
def test_what_all_entries_read_gets_the_sum(e: Example) -> None:
    if len(e.arrays) < 2:
        return
    mapped = [False] + [True] * (len(e.arrays) - 1)
    arrays = [many if m else a for a, many, m in zip(e.arrays, entries(e.arrays), mapped, strict=True)]
    check_gradient(batched_graph(e.graph(), mapped, arrays), arrays)


def placeholder(*shape: int) -> Input:
    return tracked_input(TensorType(float64, shape))


def vmap(function: Callable[[Value], Value], x: Value) -> Value:
    one = tracked_input(x.type.with_shape(x.shape[1:]))
    return batch([function(one)], {one: x})[0]


def grad(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def derivative(x: Value) -> Value:
        y = function(x)
        (g,) = gradients([y], [fill_like(y, 1.0)], [x])
        assert g is not None
        return g

    return derivative


def test_nested() -> None:
    x = placeholder(2, 3, 4)
    y = vmap(lambda rows: vmap(lambda row: flip(row, 0), rows), x)
    array = np.random.default_rng(0).random((2, 3, 4))
    (found,) = interpret(Graph((x,), (y,)), [array])
    np.testing.assert_array_equal(found, array[:, :, ::-1])


def test_jacobian_and_hessian_by_batching() -> None:
    x = placeholder(3)

    def f(v: Value) -> Value:
        return reduce_sum(mul(sin(v), exp(flip(v, 0))))

    basis = given(np.eye(3), "basis")
    direction = placeholder(3)
    (second,) = gradients([grad(f)(x)], [direction], [x])
    assert second is not None
    (hessian,) = batch([second], {direction: basis})
    at = np.array([0.1, 0.7, -0.4])
    (found,) = interpret(Graph((x, basis), (hessian,)), [at, np.eye(3)])
    r = at[::-1]
    wanted = np.diag(-np.sin(at) * np.exp(r)) + np.diag((np.sin(at) * np.exp(r))[::-1])
    wanted += np.fliplr(np.diag(np.cos(at) * np.exp(r))) + np.fliplr(np.diag(np.cos(at) * np.exp(r))).T
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_any_order_of_vmap_and_grad() -> None:
    x = placeholder(2, 3)

    def f(v: Value) -> Value:
        return reduce_sum(mul(sin(v), flip(v, 0)))

    def summed(rows: Value) -> Value:
        return reduce_sum(vmap(f, rows))

    several = [vmap(grad(f), x), grad(summed)(x), grad(lambda rows: reduce_sum(vmap(f, rows)))(x)]
    made = interpret(Graph((x,), tuple(several)), [np.random.default_rng(0).random((2, 3))])
    for other in made[1:]:
        np.testing.assert_allclose(other, made[0], rtol=1e-14)


def test_elementwise_ops_stay_what_they_are() -> None:
    x = placeholder(5, 3)
    shared = placeholder(2, 3)
    y = vmap(lambda row: mul(row, shared), x)
    assert y.shape == (5, 2, 3)
    assert not any(isinstance(v, Batched) for v in Graph((x, shared), (y,)).values())


def test_equal_ops_are_repeated_by_one_template() -> None:
    x = placeholder(5, 3, 2)
    y, z = (vmap(lambda m: permute(m, (1, 0)), x) for _ in range(2))
    assert isinstance(y, Batched)
    assert isinstance(z, Batched)
    assert y.attributes == z.attributes


def test_what_does_not_depend_is_repeated() -> None:
    x, w = placeholder(4, 2), placeholder(3)
    (y,) = batch([exp(w)], {placeholder(2): x})
    assert y.shape == (4, 3)


def test_substitute_keeps_what_does_not_change() -> None:
    x, y, new = placeholder(3), placeholder(3), placeholder(3)
    kept = exp(y)
    changed, same = substitute([mul(sin(x), kept), kept], {x: new})
    assert same is kept
    assert changed.inputs[1] is kept
    assert x not in Graph((new, y), (changed,)).values()


def test_gradients_that_were_not_recorded_stay_so() -> None:
    x, new = placeholder(3), placeholder(3)
    y = exp(x)
    y.__dict__["tracked"] = False
    (again,) = substitute([mul(y, x)], {x: new})
    first, second = again.inputs
    assert not first.tracked
    assert second is new
