"""One property test covers every rule, because rules are data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from tilegrad.ir.graph import Graph, Input, TensorType, Value, topological
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.broadcasting import fill
from tilegrad.ops.cast import cast
from tilegrad.transform.rules import RULES, Rule
from tilegrad.transform.simplify import simplify

SPECIAL = {
    float32: [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3e38, 1e-45, 7.25],
    int32: [0, 1, -1, 2**31 - 1, -(2**31), 12345],
    bool_: [False, True],
}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rule_keeps_the_value(rule: Rule) -> None:
    """Both sides have the same elements, whatever the wildcards stand for: bit for bit, but for which NaN."""
    wild = [v for v in topological([rule.pattern]) if isinstance(v, Input)]
    columns = list(zip(*itertools.product(*(SPECIAL[w.dtype] for w in wild)), strict=True))
    arrays = [np.array(c, w.dtype.numpy) for c, w in zip(columns, wild, strict=True)]
    given = tuple(Input(w.type.with_shape(arrays[0].shape), w.name) for w in wild)
    stands = dict(zip(wild, given, strict=True))

    left, right = (interpret(Graph(given, (on(side, stands),)), arrays)[0] for side in (rule.pattern, rule.result))

    right = np.broadcast_to(right, left.shape)
    same = left == right
    if left.dtype.kind == "f":
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    for n in np.flatnonzero(~same):
        at = ", ".join(f"{w.name} = {a[n]}" for w, a in zip(wild, arrays, strict=True))
        raise AssertionError(f"{rule} is wrong at {at}: {left[n]} is not {right[n]}")


def on(pattern: Value, stands: dict[Value, Value]) -> Value:
    """The pattern with tensors in place of its wildcards."""
    if pattern in stands:
        return stands[pattern]
    return pattern.with_inputs([on(x, stands) for x in pattern.inputs]) if pattern.inputs else pattern


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rule_is_applied(rule: Rule) -> None:
    wild = tuple(v for v in topological([rule.pattern]) if isinstance(v, Input))
    graph = simplify(Graph(wild, (rule.pattern,)))

    assert len(graph.values()) <= len(Graph(wild, (rule.pattern,)).values())
    assert str(graph) != str(Graph(wild, (rule.pattern,)))


def test_constants_are_computed() -> None:
    x = Input(TensorType(float32, (3,)), "x")
    doubled = simplify(Graph((x,), (mul(x, add(fill(1.5, (3,), float32), 0.5)),)))

    assert str(doubled).splitlines()[1].strip().startswith("%0: f32[3] = fill[2]")


def test_a_cast_there_and_back_is_left_out_only_if_nothing_is_lost() -> None:
    """Every type takes part: the type and the elements stay."""
    types = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
    numbers = np.array([0, 1, 2, 3, 100, 127])
    for first, second, third in itertools.product(types, repeat=3):
        x = Input(TensorType(first, numbers.shape), "x")
        graph = Graph((x,), (cast(cast(x, second), third),))
        (made,) = simplify(graph).outputs
        assert made.type == graph.outputs[0].type, (first, second, third)
        given = numbers.astype(first.numpy)
        (got,), (want,) = (interpret(g, [given]) for g in (Graph((x,), (made,)), graph))
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), str((first, second, third)))
