"""Every example of every op, with gradients, on a GPU and in the reference interpreter."""

from typing import Any

import numpy as np
import pytest

from tests.gpu.placed import placed
from tests.ops.registry import Example, all_examples
from tests.ops.test_examples import DIFFERENTIABLE, backward
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.reference.graph import interpret
from tilegrad.compiler import compile
from tilegrad.errors import TilegradError
from tilegrad.ir.graph import Graph
from tilegrad.ops.batched import Batched
from tilegrad.ops.declared import Declared

EXAMPLES = [e for e in all_examples() if e.op not in (Batched, Declared)]  # what is in them stays on the CPU
TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Tolerances: sums are ordered differently, and functions differ in the last place."""


def named(cases: Any) -> Any:
    return pytest.mark.parametrize("e", cases, ids=lambda e: e.name)


def on_gpu(gpu: CudaDevice, graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Run a graph three times, so that the last run is a CUDA graph."""
    executable = compile(placed(graph, gpu.name)).executable
    for _ in range(3):
        made = executable.run([gpu.from_host(array) for array in arrays])
    return [gpu.to_host(b, v.dtype, v.shape) for b, v in zip(made, graph.outputs, strict=True)]  # type: ignore[arg-type]


def agree(gpu: CudaDevice, graph: Graph, arrays: list[np.ndarray], tolerance: float = 0.0) -> None:
    with np.errstate(all="ignore"):
        wanted = interpret(graph, arrays)
    for x, y in zip(on_gpu(gpu, graph, arrays), wanted, strict=True):
        allowed = max(tolerance, TOLERANCES.get(x.dtype.name, 0.0))
        size = max(1.0, np.abs(y[np.isfinite(y)].astype(np.float64)).max(initial=0.0)) if allowed else 1.0
        np.testing.assert_allclose(
            x.astype(np.float64), y.astype(np.float64), rtol=allowed, atol=allowed * min(size, 1e3)
        )


@named(EXAMPLES)
def test_values(gpu: CudaDevice, e: Example) -> None:
    agree(gpu, e.graph(), list(e.arrays), e.tolerance)


@named([e for e in DIFFERENTIABLE if e in EXAMPLES])
def test_gradients(gpu: CudaDevice, e: Example) -> None:
    graph = backward(e.graph())
    upstreams = [np.random.default_rng(5).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(e.arrays) :]]
    agree(gpu, graph, [*e.arrays, *upstreams], 1e-7)


@named([e for e in EXAMPLES if any(a.dtype == np.float64 for a in e.arrays)])
def test_values_in_float32(gpu: CudaDevice, e: Example) -> None:
    arrays = tuple([a.astype(np.float32) if a.dtype == np.float64 else a for a in e.arrays])
    try:
        graph = e._replace(arrays=arrays).graph()
        interpret(graph, arrays)
    except (TilegradError, ArithmeticError, ValueError, AssertionError):
        pytest.skip("the example is for float64")
    agree(gpu, graph, list(arrays), e.tolerance)  # that of float64, or wider where 16 bits are computed with
