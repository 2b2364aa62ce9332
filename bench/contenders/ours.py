"""tilegrad: `tg.jit`, except where a workload says without."""

from collections.abc import Callable
from typing import Any

import numpy as np

import tilegrad as tg
from bench import networks
from bench.workloads import Inputs
from tilegrad.nn import functional as F

Call = Callable[[], Any]


def outputs(result: Any) -> list[np.ndarray]:
    return [x.detach().numpy() for x in (result if isinstance(result, tuple) else (result,))]


def _tensors(inputs: Inputs) -> dict[str, Any]:
    return {name: tg.tensor(x) for name, x in inputs.items()}


def _jitted(function: Callable[..., Any], *tensors: Any) -> Call:
    ready = tg.jit(function)
    return lambda: ready(*tensors)


def chain(inputs: Inputs, variant: str) -> Call:
    def function(x: Any, a: Any, b: Any, c: Any) -> Any:
        return tg.relu(x * a + b) * tg.sigmoid(x) + tg.tanh(c)

    return _jitted(function, *_tensors(inputs).values())


def softmax(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: tg.softmax(x, -1), _tensors(inputs)["x"])


def layer_norm(inputs: Inputs, variant: str) -> Call:
    x, weight, bias, _ = _tensors(inputs).values()
    return _jitted(lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, weight, bias)


def layer_norm_training(inputs: Inputs, variant: str) -> Call:
    def function(x: Any, weight: Any, bias: Any, upstream: Any) -> Any:
        y, back = tg.vjp(lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, weight, bias)
        return (y, *back(upstream))

    return _jitted(function, *_tensors(inputs).values())


def sum0(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: x.sum(0), _tensors(inputs)["x"])


def sum1(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: x.sum(1), _tensors(inputs)["x"])


def matmul(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x @ y, *_tensors(inputs).values())


def mlp(inputs: Inputs, variant: str) -> Call:
    x, labels, w1, b1, w2, b2 = _tensors(inputs).values()
    model = tg.nn.Sequential(
        tg.nn.Linear(w1.shape[1], w1.shape[0]), tg.nn.ReLU(), tg.nn.Linear(w2.shape[1], w2.shape[0])
    )
    parameters = list(model.parameters())
    with tg.no_grad():
        for parameter, value in zip(parameters, (w1, b1, w2, b2), strict=True):
            parameter.copy_(value)
    optimizer = tg.optim.SGD(parameters, lr=0.01)

    @tg.jit
    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: (step(x, labels), *parameters)


mlp512 = mlp_busy = mlp


def _network(build: Callable[[Any], Any], inputs: Inputs, variant: str) -> Call:
    """A whole step of SGD, of a network that both libraries write in the same words."""
    x, labels = _tensors(inputs).values()
    model = build(tg.nn)
    parameters = list(model.parameters())
    with tg.no_grad():
        for parameter, w in zip(parameters, networks.drawn([tuple(p.shape) for p in parameters]), strict=True):
            parameter.copy_(tg.tensor(w))
    optimizer = tg.optim.SGD(parameters, lr=0.01)

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    ready = tg.jit(step)
    return lambda: (ready(x, labels), *parameters)


def lenet(inputs: Inputs, variant: str) -> Call:
    return _network(networks.lenet, inputs, variant)


def alexnet(inputs: Inputs, variant: str) -> Call:
    return _network(networks.alexnet, inputs, variant)


def wide(inputs: Inputs, variant: str) -> Call:
    return _network(networks.wide, inputs, variant)


def attention(inputs: Inputs, variant: str) -> Call:
    def function(q: Any, k: Any, v: Any, upstream: Any) -> Any:
        y, back = tg.vjp(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
        return (y, *back(upstream))

    return _jitted(function, *_tensors(inputs).values())


def add(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x + y, *_tensors(inputs).values())


def tiny(inputs: Inputs, variant: str) -> Call:
    x, y = _tensors(inputs).values()
    x.requires_grad_()

    def call() -> Any:
        x.grad = None
        z = x
        for _ in range(50):
            z = (z * 0.5) + y
        z.sum().backward()
        x.grad.realize()
        return x.grad

    return call
