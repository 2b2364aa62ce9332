"""tilegrad: under `tg.jit`, except where a workload says otherwise."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tilegrad as tg
from bench import networks
from bench.workloads import Inputs
from tilegrad.nn import functional as F

Call = Callable[[], Any]


def outputs(result: Any) -> list[np.ndarray]:
    return [x.detach().float().numpy() for x in (result if isinstance(result, tuple) else (result,))]


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

    return networks.Step(tg, parameters, optimizer, lambda: (step(x, labels), *parameters))


mlp512 = mlp_busy = mlp


def _training(name: str, low: bool = False) -> Callable[[Inputs, str], Call]:
    return lambda inputs, variant: networks.Training(tg, name, inputs, tg.jit, low)


def _inference(name: str, low: bool = False) -> Callable[[Inputs, str], Call]:
    return lambda inputs, variant: networks.inference(tg, name, inputs, tg.jit, low)


lenet, wide, gpt, lstm = map(_training, ("lenet", "wide", "gpt", "lstm"))
alexnet, alexnet_bf16 = _training("alexnet"), _training("alexnet", low=True)
lenet_inference, alexnet_inference = _inference("lenet"), _inference("alexnet")
alexnet_inference_bf16 = _inference("alexnet", low=True)


def matmul_int8(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x.int() @ y.int(), *_tensors(inputs).values())


def _high(work: Callable[[Inputs, str], Call]) -> Callable[[Inputs, str], Call]:
    def start(inputs: Inputs, variant: str) -> Call:
        tg.set_float32_matmul_precision("high")
        return work(inputs, variant)

    return start


alexnet_high, matmul_high = _high(alexnet), _high(matmul)


def matmul_bf16(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x @ y, *(t.to(tg.bfloat16) for t in _tensors(inputs).values()))


def convolution(inputs: Inputs, variant: str, dtype: tg.DType = tg.float32) -> Call:
    stride, padding = inputs.pop("geometry").tolist()

    def function(x: Any, w: Any, b: Any, upstream: Any) -> Any:
        y, back = tg.vjp(lambda x, w, b: F.conv2d(x, w, b, stride, padding), x, w, b)
        return (y, *back(upstream))

    return _jitted(function, *(t.to(dtype) for t in _tensors(inputs).values()))


convolution_high, convolution_bf16 = _high(convolution), partial(convolution, dtype=tg.bfloat16)


def attention(inputs: Inputs, variant: str) -> Call:
    def function(q: Any, k: Any, v: Any, upstream: Any) -> Any:
        y, back = tg.vjp(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
        return (y, *back(upstream))

    return _jitted(function, *_tensors(inputs).values())


def _gallery(name: str) -> Callable[[Inputs, str], Call]:
    """The last step of a gallery in examples/kernels, in the tile language."""

    def start(inputs: Inputs, variant: str) -> Call:
        *_, step = importlib.import_module(f"examples.kernels.{name}").climb.steps_on("cpu").values()
        given = list(_tensors(inputs).values())
        return lambda: step(*given)

    return start


kernel_add, kernel_softmax = _gallery("vector_add"), _gallery("softmax")
kernel_layer_norm, kernel_matmul, kernel_attention = map(_gallery, ("layer_norm", "matmul", "attention"))


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
