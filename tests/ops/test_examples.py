"""The tests that every example of an op gets."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import Any

import numpy as np
import pytest

import tilegrad.ops
from tests.ops.registry import Example, all_examples
from tests.recorded import pytorch
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.transform.autodiff import gradients

EXAMPLES = all_examples()

DIFFERENTIABLE = [e for e in EXAMPLES if e.gradient is True and all(a.dtype.name != "float32" for a in e.arrays)]

each = pytest.mark.parametrize("e", EXAMPLES, ids=lambda e: e.name)
each_differentiable = pytest.mark.parametrize("e", DIFFERENTIABLE, ids=lambda e: e.name)


def subclasses(cls: type[Value]) -> set[type[Value]]:
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def test_every_op_has_an_example() -> None:
    for module in pkgutil.iter_modules(tilegrad.ops.__path__):
        importlib.import_module(f"tilegrad.ops.{module.name}")
    ops = {op for op in subclasses(Value) if op.__module__.startswith("tilegrad.ops") and hasattr(op, "__final__")}
    shown = {e.op for e in EXAMPLES}
    missing = sorted(f"{op.__module__}.{op.__name__}" for op in ops - shown)
    assert not missing, f"ops without an example in tests/ops/examples*.py: {', '.join(missing)}"


def test_every_op_is_final_or_abstract() -> None:
    loose = [op for op in subclasses(Value) if op.__module__.startswith("tilegrad.ops") and op.__subclasses__() == []]
    assert all(hasattr(op, "__final__") for op in loose), [op for op in loose if not hasattr(op, "__final__")]


@each
def test_op_is_there(e: Example) -> None:
    assert e.op is None or any(type(value) is e.op for value in e.graph().values())


@each
def test_type_is_that_of_the_elements(e: Example) -> None:
    graph = e.graph()
    for value, array in zip(graph.outputs, interpret(graph, e.arrays), strict=True):
        assert (array.shape, array.dtype) == (value.shape, value.dtype.numpy)


@each
def test_prints_short(e: Example) -> None:
    assert all(len(str(value)) < 150 for value in e.graph().values())


@pytest.mark.parametrize("e", [e for e in EXAMPLES if e.numpy is not None], ids=lambda e: e.name)
def test_means_what_numpy_means(e: Example) -> None:
    assert e.numpy is not None
    with np.errstate(all="ignore"):
        wanted = e.numpy(*e.arrays)
    compare(interpret(e.graph(), e.arrays), wanted if isinstance(wanted, tuple) else (wanted,), e.tolerance)


@pytest.mark.parametrize("e", [e for e in EXAMPLES if e.torch is not None], ids=lambda e: e.name)
def test_means_what_pytorch_means(e: Example) -> None:
    torch = pytorch()
    tensors = [tensor(torch, array) for array in e.arrays]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of one element
        wanted = as_tuple(run_torch(torch, e, tensors))
    compare(interpret(e.graph(), e.arrays), [array_of(torch, w) for w in wanted], e.tolerance)
    if not e.gradient or any(a.dtype.name == "float32" for a in e.arrays) or not any(w.requires_grad for w in wanted):
        return
    upstreams = [np.random.default_rng(1).uniform(0.5, 1.5, w.shape) for w in wanted if w.requires_grad]
    leaves = [x for x in tensors if x.requires_grad]
    differentiable = [w for w in wanted if w.requires_grad]
    grads = torch.autograd.grad(differentiable, leaves, [torch.tensor(u) for u in upstreams], allow_unused=True)
    graph = backward(e.graph())
    assert len(upstreams) == len(graph.inputs) - len(e.arrays)
    compare(interpret(graph, [*e.arrays, *upstreams]), [zero_or(g, x) for g, x in zip(grads, leaves)], 1e-6)


@each_differentiable
def test_gradient_is_that_of_finite_differences(e: Example) -> None:
    check_gradient(e.graph(), e.arrays)


@each_differentiable
def test_second_order_is_that_of_finite_differences(e: Example) -> None:
    graph = backward(e.graph())
    upstreams = [np.random.default_rng(2).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(e.arrays) :]]
    if upstreams:
        check_gradient(graph, (*e.arrays, *upstreams))


def backward(graph: Graph) -> Graph:
    """The gradients of a graph's outputs, as a graph that takes the upstream gradients too."""
    outputs = [v for v in graph.outputs if v.tracked]
    upstreams = [given_type(v.type, f"u{n}") for n, v in enumerate(outputs)]
    inputs = [x for x in graph.inputs if x.tracked]
    from tilegrad.ops.base import zeros_like

    made = gradients(outputs, upstreams, inputs)
    for g, x in zip(made, inputs, strict=True):
        assert g is None or g.type == x.type, f"the gradient of {x.type} is {g.type}"
    return Graph((*graph.inputs, *upstreams), tuple(zeros_like(x) if g is None else g for g, x in zip(made, inputs)))


def check_gradient(graph: Graph, arrays: Any) -> None:
    """Compares the directional derivative of a weighted sum of the outputs with finite differences."""
    reverse = backward(graph)
    if not reverse.outputs or len(reverse.inputs) == len(graph.inputs):
        return
    random = np.random.default_rng(3)
    weights = [random.uniform(0.5, 1.5, v.shape) for v in reverse.inputs[len(graph.inputs) :]]
    moving = [n for n, x in enumerate(graph.inputs) if x.tracked]
    directions = {n: random.uniform(-1, 1, graph.inputs[n].shape) for n in moving}
    tracked = [v.tracked for v in graph.outputs]

    def total(step: float) -> float:
        moved = [a + step * directions[n] if n in directions else a for n, a in enumerate(arrays)]
        made = [y for y, t in zip(interpret(graph, moved), tracked, strict=True) if t]
        return float(sum(np.sum(w * y) for w, y in zip(weights, made, strict=True)))

    h = 1e-5
    numeric = (8 * (total(h) - total(-h)) - (total(2 * h) - total(-2 * h))) / (12 * h)
    found = interpret(reverse, [*arrays, *weights])
    analytic = float(sum(np.sum(g * directions[n]) for g, n in zip(found, moving, strict=True)))
    scale = max(1.0, sum(float(np.sum(np.abs(g * directions[n]))) for g, n in zip(found, moving, strict=True)))
    assert abs(numeric - analytic) <= 1e-6 * scale, f"finite differences {numeric}, gradient {analytic}"


def given_type(type: TensorType, name: str) -> Input:
    made = Input(type, name)
    made.__dict__["tracked"] = True
    return made


def compare(found: Any, wanted: Any, tolerance: float) -> None:
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == np.shape(y)
        exact = x.dtype.kind in "biu"
        np.testing.assert_allclose(
            x.astype(np.float64),
            np.asarray(y).astype(np.float64),
            rtol=0 if exact else tolerance,
            atol=0 if exact else tolerance,
        )


def as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def tensor(torch: Any, array: np.ndarray) -> Any:
    made = torch.tensor(array)
    return made.requires_grad_() if array.dtype == np.float64 else made


def array_of(torch: Any, x: Any) -> np.ndarray:
    return x.detach().to(torch.float32).numpy() if x.dtype is torch.bfloat16 else x.detach().numpy()


def zero_or(g: Any, x: Any) -> np.ndarray:
    return np.zeros(tuple(x.shape)) if g is None else g.numpy()


def run_torch(torch: Any, e: Example, tensors: list[Any]) -> Any:
    if isinstance(e.torch, str):
        return getattr(torch, e.torch)(*tensors)
    assert e.torch is not None
    return e.torch(torch, *tensors)
