"""Ops on tensors of which an axis varies: either refused in words, or the same values as with the size known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples
from tests.ops.test_examples import backward, compare
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import TilegradError
from tilegrad.ir.dtype import from_numpy_dtype
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.size import Size

CASES = [(e, extent) for e in all_examples() for extent in sorted({n for a in e.arrays for n in a.shape if n > 1})]


def graph_with_varying(e: Example, extent: int) -> Graph:
    """The graph of an example, with a name for one extent wherever it occurs in the inputs."""
    inputs = []
    for n, array in enumerate(e.arrays):
        dtype = from_numpy_dtype(array.dtype)
        assert dtype is not None
        shape = tuple(Size.named("n") if axis == extent else axis for axis in array.shape)
        inputs.append(Input(TensorType(dtype, shape), f"x{n}"))
        inputs[-1].__dict__["tracked"] = dtype.is_float
    made = e.build(*inputs)
    return Graph(tuple(inputs), made if isinstance(made, tuple) else (made,))


@pytest.mark.parametrize("e, extent", CASES, ids=[f"{e.name}-{extent}" for e, extent in CASES])
def test_an_axis_may_vary(e: Example, extent: int) -> None:
    try:
        graph = graph_with_varying(e, extent)
    except TilegradError:
        return
    compare(interpret(graph, e.arrays, {"n": extent}), interpret(e.graph(), e.arrays), 1e-12)
    if e.gradient is True:
        varying, fixed = backward(graph), backward(e.graph())
        upstreams: list[Any] = [np.ones(x.shape) for x in fixed.inputs[len(e.arrays) :]]
        arrays = [*e.arrays, *upstreams]
        compare(interpret(varying, arrays, {"n": extent}), interpret(fixed, arrays), 1e-12)


def test_names_of_sizes_are_not_those_of_variables_in_kernels() -> None:
    """The kernels of sorting have variables called n, i and j."""
    from tilegrad.ops.opaque import Opaque
    from tilegrad.ops.sorting import SmallestKeys, SortedKeys, SortKey

    for name in ("n", "i", "key", "length", "row", "out", "run"):
        keys = SortKey(Input(TensorType(from_numpy_dtype(np.dtype(np.float32)), (3, Size.named(name))), "keys"))  # type: ignore[arg-type]
        for op in (SortedKeys(keys), SmallestKeys(keys, 2)):
            assert isinstance(op, Opaque)
            code = op.kernel()
            assert [str(size) for size in code.sizes] == [name]
            assert [p.name for p in code.kernel.parameters][-1] == f"size_{name}"
