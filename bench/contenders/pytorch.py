"""PyTorch: eager, or `torch.compile`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bench import networks
from bench.workloads import Inputs

torch.set_num_threads(2)
Call = Callable[[], Any]


def outputs(result: Any) -> list[np.ndarray]:
    return [x.detach().float().numpy() for x in (result if isinstance(result, tuple) else (result,))]


def exact(name: str, inputs: Inputs) -> list[np.ndarray]:
    """The results of a workload in float64."""
    inputs = {name: x.astype(np.float64) if x.dtype == np.float32 else x for name, x in inputs.items()}
    if name.startswith("convolution"):
        result = convolution(inputs, "eager", torch.float64)()
    else:
        result = globals()[name](inputs, "eager")()
    return [x.detach().numpy() for x in (result if isinstance(result, tuple) else (result,))]


def _tensors(inputs: Inputs) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(x) for name, x in inputs.items()}


def _without_gradients(function: Callable[..., Any], variant: str, *tensors: torch.Tensor) -> Call:
    ready = torch.compile(function, dynamic=False) if variant == "compile" else function

    def call() -> Any:
        with torch.inference_mode() if variant == "eager" else torch.no_grad():
            return ready(*tensors)

    return call


def chain(inputs: Inputs, variant: str) -> Call:
    def function(x: Any, a: Any, b: Any, c: Any) -> Any:
        return torch.relu(x * a + b) * torch.sigmoid(x) + torch.tanh(c)

    return _without_gradients(function, variant, *_tensors(inputs).values())


def softmax(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x: torch.softmax(x, -1), variant, _tensors(inputs)["x"])


def layer_norm(inputs: Inputs, variant: str) -> Call:
    x, weight, bias, _ = _tensors(inputs).values()
    return _without_gradients(lambda x, w, b: F.layer_norm(x, w.shape, w, b), variant, x, weight, bias)


def layer_norm_training(inputs: Inputs, variant: str) -> Call:
    x, weight, bias, upstream = _tensors(inputs).values()
    leaves = tuple(t.requires_grad_() for t in (x, weight, bias))

    def forward(x: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x, w.shape, w, b)

    ready = torch.compile(forward, dynamic=False) if variant == "compile" else forward

    def call() -> Any:
        y = ready(*leaves)
        return (y, *torch.autograd.grad(y, leaves, upstream))

    return call


def sum0(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x: x.sum(0), variant, _tensors(inputs)["x"])


def sum1(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x: x.sum(1), variant, _tensors(inputs)["x"])


def matmul(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x, y: x @ y, variant, *_tensors(inputs).values())


def mlp(inputs: Inputs, variant: str) -> Call:
    x, labels, w1, b1, w2, b2 = _tensors(inputs).values()
    model = torch.nn.Sequential(
        torch.nn.Linear(w1.shape[1], w1.shape[0]), torch.nn.ReLU(), torch.nn.Linear(w2.shape[1], w2.shape[0])
    )
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, value in zip(parameters, (w1, b1, w2, b2), strict=True):
            parameter.copy_(value)
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    ready = torch.compile(step, dynamic=False) if variant == "compile" else step
    return networks.Step(torch, parameters, optimizer, lambda: (ready(), *parameters))


mlp512 = mlp_busy = mlp


def _ready(variant: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return (lambda function: torch.compile(function, dynamic=False)) if variant == "compile" else (lambda f: f)


def _training(name: str, low: bool = False) -> Callable[[Inputs, str], Call]:
    return lambda inputs, variant: networks.Training(torch, name, inputs, _ready(variant), low)


def _inference(name: str, low: bool = False) -> Callable[[Inputs, str], Call]:
    return lambda inputs, variant: networks.inference(torch, name, inputs, _ready(variant), low)


lenet, wide, gpt, lstm = map(_training, ("lenet", "wide", "gpt", "lstm"))
alexnet, alexnet_bf16 = _training("alexnet"), _training("alexnet", low=True)
lenet_inference, alexnet_inference = _inference("lenet"), _inference("alexnet")
alexnet_inference_bf16 = _inference("alexnet", low=True)


def matmul_bf16(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x, y: x @ y, variant, *(t.bfloat16() for t in _tensors(inputs).values()))


def matmul_int8(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(torch._int_mm, variant, *_tensors(inputs).values())


def convolution(inputs: Inputs, variant: str, dtype: torch.dtype = torch.float32) -> Call:
    stride, padding = inputs.pop("geometry").tolist()
    *leaves, upstream = (t.to(dtype) for t in _tensors(inputs).values())
    wanted = [t.requires_grad_() for t in leaves]

    def forward(x: Any, w: Any, b: Any) -> Any:
        return F.conv2d(x, w, b, stride, padding)

    ready = _ready(variant)(forward)

    def call() -> Any:
        y = ready(*leaves)
        return (y, *torch.autograd.grad(y, wanted, upstream))

    return call


def attention(inputs: Inputs, variant: str) -> Call:
    *leaves, upstream = _tensors(inputs).values()
    for t in leaves:
        t.requires_grad_()

    def forward(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    ready = torch.compile(forward, dynamic=False) if variant == "compile" else forward

    def call() -> Any:
        y = ready(*leaves)
        return (y, *torch.autograd.grad(y, leaves, upstream))

    return call


def kernel_add(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x, y: x + y, variant, *_tensors(inputs).values())


def kernel_layer_norm(inputs: Inputs, variant: str) -> Call:
    x, weight, bias = _tensors(inputs).values()
    return _without_gradients(lambda x, w, b: F.layer_norm(x, w.shape, w, b), variant, x, weight, bias)


def kernel_attention(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(F.scaled_dot_product_attention, variant, *_tensors(inputs).values())


kernel_softmax, kernel_matmul, matmul_high = softmax, matmul, matmul
alexnet_high, convolution_high, convolution_bf16 = alexnet, convolution, partial(convolution, dtype=torch.bfloat16)


def add(inputs: Inputs, variant: str) -> Call:
    return _without_gradients(lambda x, y: x + y, variant, *_tensors(inputs).values())


def tiny(inputs: Inputs, variant: str) -> Call:
    x, y = _tensors(inputs).values()
    x.requires_grad_()

    def function(x: Any, y: Any) -> Any:
        z = x
        for _ in range(50):
            z = (z * 0.5) + y
        return z

    ready = torch.compile(function, dynamic=False) if variant == "compile" else function

    def call() -> Any:
        x.grad = None
        ready(x, y).sum().backward()
        return x.grad

    return call
