"""Examples of all ops with equal extents and with one operand for several: alone, and fused with what reads them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.ops.registry import Example, families
from tests.ops.test_examples import array_of, as_tuple, compare, run_torch, tensor
from tests.schedule.test_lowering import check
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.movement import permute
from tilegrad.ops.reduction import amax
from tilegrad.runtime.target_model import TargetModel
from tilegrad.transform.autodiff import leaf_gradients

FAMILIES = families()
PARTS = 12
"""Into how many tests they are dealt."""

part = pytest.mark.parametrize("number", range(PARTS))


def test_most_examples_have_relatives() -> None:
    assert sum(e.name.endswith("of equal extents") for e in FAMILIES) >= 400
    assert sum(e.name.endswith("of one operand") for e in FAMILIES) >= 43


def test_relatives_mean_what_pytorch_means() -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for e in FAMILIES:
        if e.torch is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wanted = as_tuple(run_torch(torch, e, [tensor(torch, a) for a in e.arrays]))
            except Exception:
                continue  # its sizes are written into the example
        compared += 1
        try:
            compare(interpret(e.graph(), e.arrays), [array_of(torch, w) for w in wanted], e.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{e.name}: {error}") from None
    assert compared >= 400


@part
def test_relatives_are_compiled(number: int) -> None:
    for n, e in enumerate(FAMILIES[number::PARTS]):
        target = TargetModel() if n % 2 else gpu_model(132)
        told(e, e.graph(), target)
        graph = e.graph()
        outputs = [v for v in graph.outputs if v.tracked]
        if e.gradient and outputs:
            found = leaf_gradients(outputs, outputs)
            made = tuple([found[x] for x in graph.inputs if x in found])
            told(e, Graph(graph.inputs, (*made, *outputs)), target)


@part
def test_relatives_are_compiled_with_those_that_read_them(number: int) -> None:
    for n, e in enumerate(FAMILIES[number::PARTS]):
        graph = e.graph()
        made = [reader for y in graph.outputs for reader in readers(y, graph)]
        if made:
            told(e, Graph(graph.inputs, (*graph.outputs, *made)), gpu_model(132) if n % 2 else TargetModel())


def readers(y: Value, graph: Graph) -> list[Value]:
    """Values that read a value along its axes, and along other axes of the same extents."""
    if not y.dtype.is_float or not y.type.rank or y.dtype.bits < 32 or 0 in y.shape:
        return []
    transposed = permute(y, tuple(reversed(range(y.type.rank))))
    found: list[Value] = [mul(y, 3.0), reduce_sum(y, (0,)), amax(y, (y.type.rank - 1,))]
    if len(set(y.shape)) == 1 and y.type.rank > 1:
        found += [add(y, transposed), mul(transposed, reduce_sum(y, (y.type.rank - 1,)))]
    same = [
        x for x in graph.inputs if x.dtype is y.dtype and x.shape[-1:] == y.shape[-1:] and x.type.rank <= y.type.rank
    ]
    return found + [mul(x, amax(y, tuple(range(y.type.rank - 1)))) for x in same[:1]]


def told(e: Example, graph: Graph, target: TargetModel) -> None:
    """Whether kernels compute what a graph means; which example it is, if not."""
    try:
        with np.errstate(all="ignore"):
            check(graph, list(e.arrays), target, max(e.tolerance, 1e-5))
    except Exception as error:
        raise AssertionError(f"{e.name}: {type(error).__name__}: {error}\n{graph}") from error
