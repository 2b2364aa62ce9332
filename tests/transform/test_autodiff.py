"""Differentiation, jvp, joint gradients and checkpointing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.ops.registry import floats
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import GradientError
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, TensorType, Value
from tilegrad.ops.activation import sigmoid
from tilegrad.ops.arithmetic import Add, Mul, add, mul
from tilegrad.ops.broadcasting import fill_like, reduce_sum
from tilegrad.ops.cast import detach
from tilegrad.ops.exponential import exp
from tilegrad.ops.joint import JointOutput, Recompute, joint_outputs
from tilegrad.ops.trigonometric import sin
from tilegrad.transform.autodiff import gradients, jvp, leaf_gradients, tracked_input
from tilegrad.transform.checkpoint import checkpointed


def variable(*shape: int, name: str = "") -> Value:
    return tracked_input(TensorType(float64, shape), name)


def one_like(y: Value) -> Value:
    return fill_like(y, 1.0)


def values_of(outputs: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    return Graph(tuple(inputs), tuple(outputs)).values()


def test_lecture_example() -> None:
    """c = sum(x * y + z), with its gradients by hand."""
    x, y, z = (variable(3, 4, name=n) for n in "xyz")
    c = reduce_sum(add(mul(x, y), z))
    found = gradients([c], [one_like(c)], [x, y, z])
    arrays = [floats(3, 4, seed=n) for n in range(3)]
    made = interpret(Graph((x, y, z), tuple(g for g in found if g)), arrays)
    for g, wanted in zip(made, (arrays[1], arrays[0], np.ones((3, 4))), strict=True):
        np.testing.assert_allclose(g, wanted, rtol=1e-10)


def test_lecture_example_with_sharing() -> None:
    """L(x) = exp(exp x + exp(x)^2) + sin(exp x + exp(x)^2)."""
    x = variable()
    a = exp(x)
    b = add(a, mul(a, a))
    y = add(exp(b), sin(b))
    (g,) = gradients([y], [one_like(y)], [x])
    assert g is not None
    at = 0.3
    e = np.exp(at)
    (found,) = interpret(Graph((x,), (g,)), [np.array(at)])
    np.testing.assert_allclose(found, (np.exp(e + e * e) + np.cos(e + e * e)) * (e + 2 * e * e), rtol=1e-10)


def test_nothing_flows_to_what_is_not_read() -> None:
    x, y = variable(2), variable(2)
    z = mul(x, x)
    assert gradients([z], [one_like(z)], [y]) == [None]
    assert gradients([detach(z)], [one_like(z)], [x]) == [None]


def test_work_that_nobody_needs_is_not_done() -> None:
    x, y = variable(2), variable(2)
    z = mul(exp(exp(exp(y))), x)
    (g,) = gradients([z], [one_like(z)], [x])
    assert g is not None
    assert len(values_of([g], [x, y])) == 6  # x, y, three exp and one mul; the fill is the upstream gradient


def test_gradients_of_values_inside_and_of_one_that_is_an_output() -> None:
    x = variable(2)
    y = exp(x)
    z = mul(y, y)
    u = one_like(z)
    to_z, to_y = gradients([z], [u], [z, y])
    assert to_z is u
    assert to_y is not None
    (found,) = interpret(Graph((x,), (to_y,)), [np.array([0.0, 1.0])])
    np.testing.assert_allclose(found, 2 * np.exp([0.0, 1.0]))


def test_one_share_is_not_added_to_anything() -> None:
    x = variable(2)
    y = sin(mul(x, 2.0))
    (g,) = gradients([y], [one_like(y)], [x])
    assert g is not None
    assert not any(isinstance(v, Add) for v in values_of([g], [x]))


def test_an_output_given_twice_counts_twice() -> None:
    x = variable(2)
    y = sin(x)
    (g,) = gradients([y, y], [one_like(y), one_like(y)], [x])
    assert g is not None
    (found,) = interpret(Graph((x,), (g,)), [np.array([0.0, 1.0])])
    np.testing.assert_allclose(found, 2 * np.cos([0.0, 1.0]))


def test_leaves_are_found_and_history_ends_at_marked_ones() -> None:
    x = variable(2)
    parameter = add(x, 1.0)
    parameter.note().is_leaf = True
    y = mul(parameter, exp(x))
    found = leaf_gradients([y], [one_like(y)])
    assert set(found) == {x, parameter}


def test_hooks_see_the_sum_and_may_replace_it() -> None:
    x = variable(2)
    y = sin(x)
    seen: list[Value] = []
    y.note().hooks = [seen.append, lambda g: mul(g, 3.0)]
    z = add(mul(y, 2.0), y)
    (g,) = gradients([z], [one_like(z)], [x])
    assert g is not None
    assert len(seen) == 1
    made = interpret(Graph((x,), (seen[0], g)), [np.array([0.0, 1.0])])
    np.testing.assert_allclose(made[0], [3, 3])
    np.testing.assert_allclose(made[1], 9 * np.cos([0.0, 1.0]))


def test_backward_twice_is_refused_where_something_was_saved() -> None:
    x = variable(2)
    y = exp(x)
    z = mul(y, y)
    gradients([z], [one_like(z)], [x], retain=False)
    with pytest.raises(GradientError, match="retain_graph=True"):
        gradients([z], [one_like(z)], [x])
    w = add(mul(x, 2.0), x)
    for _ in range(2):
        assert gradients([w], [one_like(w)], [x], retain=False)[0] is not None


def test_gradients_keep_the_users_line() -> None:
    x = variable(2)
    y = sin(x)
    (g,) = gradients([y], [one_like(y)], [x])
    assert g is not None
    assert g.location == y.location


def test_jvp_is_the_forward_derivative() -> None:
    x, t = variable(3), variable(3)
    y, z = sin(mul(x, x)), reduce_sum(exp(x))
    made = jvp([y, z], [x], [t])
    at, direction = np.array([0.1, 0.5, 2.0]), np.array([1.0, -1.0, 0.5])
    found = interpret(Graph((x, t), tuple(v for v in made if v)), [at, direction])
    np.testing.assert_allclose(found[0], np.cos(at**2) * 2 * at * direction)
    np.testing.assert_allclose(found[1], np.sum(np.exp(at) * direction))


def test_jvp_of_what_does_not_depend() -> None:
    x, y = variable(3), variable(3)
    assert jvp([sin(y)], [x], [x]) == [None]


class Divided:
    """x // y and the remainder, with a gradient for both together."""

    calls = 0

    def rule(self, upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
        self.calls += 1
        self.upstreams = upstreams
        first, second = upstreams
        return [first if second is None else second if first is None else add(mul(first, 10.0), second)]


def test_siblings_get_their_gradients_together() -> None:
    x = variable(2)
    op = Divided()
    a, b = joint_outputs([mul(x, 2.0), mul(x, 3.0)], [x], op.rule)
    y = mul(add(a, 1.0), exp(mul(a, b)))  # b is read after a, and through a
    (g,) = gradients([y], [one_like(y)], [x])
    assert g is not None
    assert op.calls == 1
    assert None not in op.upstreams


def test_a_sibling_without_gradient_has_none() -> None:
    x = variable(2)
    op = Divided()
    a, b = joint_outputs([mul(x, 2.0), mul(x, 3.0)], [x], op.rule)
    (g,) = gradients([sin(b)], [one_like(b)], [x])
    assert g is not None
    assert op.upstreams[0] is None
    assert isinstance(a, JointOutput)


def network(x: Value, w: Value) -> Value:
    return reduce_sum(sigmoid(mul(exp(mul(sin(x), w)), w)))


def test_checkpoint_computes_again_and_gives_the_same() -> None:
    x, w = variable(3), variable(3)
    y = network(x, w)
    (kept,) = checkpointed([y], [x])
    arrays = [floats(3), floats(3, seed=1)]
    plain = gradients([y], [one_like(y)], [x, w])
    again = gradients([kept], [one_like(kept)], [x, w])
    graphs = [Graph((x, w), tuple(g for g in gs if g is not None)) for gs in (plain, again)]
    for a, b in zip(*(interpret(graph, arrays) for graph in graphs), strict=True):
        np.testing.assert_array_equal(a, b)
    forward = {v for v in values_of([y], [x, w]) if v not in (x, w)}
    assert not forward & set(graphs[1].values())
    assert any(isinstance(v, Recompute) for v in graphs[1].values())


def test_checkpoint_inside_checkpoint_to_second_order() -> None:
    x, w = variable(3), variable(3)
    (inner,) = checkpointed([exp(mul(x, w))], [x])
    (outer,) = checkpointed([reduce_sum(sin(inner))], [x])
    plain = reduce_sum(sin(exp(mul(x, w))))
    results = []
    for y in (outer, plain):
        (g,) = gradients([y], [one_like(y)], [x])
        assert g is not None
        seconds = gradients([g], [one_like(g)], [x, w])
        results.append(interpret(Graph((x, w), tuple(s for s in seconds if s)), [floats(3), floats(3, seed=1)]))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_long_chains_need_no_deep_stack() -> None:
    x = variable(2)
    y: Value = x
    for _ in range(5000):
        y = mul(y, 1.0)
    (g,) = gradients([y], [one_like(y)], [x])
    assert isinstance(g, Mul)
