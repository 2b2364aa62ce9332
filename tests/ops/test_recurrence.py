"""Gradients of the gradients of recurrent layers: a few kernels, whatever the length."""

import numpy as np
import pytest

from tests.ops.examples_recurrence import KINDS, steps
from tests.ops.registry import floats
from tests.ops.test_examples import backward, check_gradient, given_type
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, TensorType
from tilegrad.ops.recurrence import CellKind, Recurrence, RecurrenceGradient
from tilegrad.ops.recurrence_sizes import GATES

LENGTH, UNITS, BATCH = 2, 2, 3


@pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize("kind", KINDS)
def test_second_gradients(kind: CellKind, reverse: bool) -> None:
    rows = GATES[kind] * UNITS
    shapes = [(LENGTH, rows, BATCH), (rows, UNITS), (UNITS, BATCH)]
    shapes += {"lstm": [(UNITS, BATCH)], "gru": [(UNITS,)]}.get(kind, [])
    given = [given_type(TensorType(float64, shape), f"x{n}") for n, shape in enumerate(shapes)]
    made = steps(kind, reverse)(*given)
    forward = Graph(tuple(given), made if isinstance(made, tuple) else (made,))
    graph = backward(forward)
    upstreams = [np.random.default_rng(2).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(shapes) :]]
    check_gradient(graph, [*(floats(*shape, seed=n) for n, shape in enumerate(shapes)), *upstreams])


def test_longer_sequences_take_no_more_kernels() -> None:
    counts = []
    for length in (3, 30):
        given = [given_type(TensorType(float64, shape), "x") for shape in [(length, 8, 4), (8, 2), (2, 4), (2, 4)]]
        graph = backward(backward(Graph(tuple(given), steps("lstm", False)(*given))))
        counts.append(len(graph.values()))
    assert counts[0] == counts[1]


def test_first_gradients_stay_in_one_kernel() -> None:
    given = [given_type(TensorType(float64, shape), "x") for shape in [(3, 8, 4), (8, 2), (2, 4), (2, 4)]]
    for outputs in (steps("lstm", False)(*given), steps("lstm", False)(*given)[1:]):
        graph = backward(Graph(tuple(given), outputs))
        assert [type(v) for v in graph.values() if v.opaque] == [Recurrence, RecurrenceGradient]
