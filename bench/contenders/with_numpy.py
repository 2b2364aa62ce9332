"""numpy, as one writes it by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workloads import Inputs

Call = Callable[[], Any]


def outputs(result: Any) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [result]


def chain(inputs: Inputs, variant: str) -> Call:
    x, a, b, c = inputs.values()
    return lambda: np.maximum(x * a + b, 0) / (1 + np.exp(-x)) + np.tanh(c)


def softmax(inputs: Inputs, variant: str) -> Call:
    x = inputs["x"]

    def call() -> Any:
        y = np.exp(x - x.max(-1, keepdims=True))
        y /= y.sum(-1, keepdims=True)
        return y

    return call


def layer_norm(inputs: Inputs, variant: str) -> Call:
    x, weight, bias, _ = inputs.values()

    def call() -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias

    return call


def sum0(inputs: Inputs, variant: str) -> Call:
    return lambda: inputs["x"].sum(0)


def sum1(inputs: Inputs, variant: str) -> Call:
    return lambda: inputs["x"].sum(1)


def mlp(inputs: Inputs, variant: str) -> Call:
    x, labels, *first = inputs.values()
    w1, b1, w2, b2 = (p.copy() for p in first)
    rows = np.arange(len(labels))

    def call() -> Any:
        hidden = np.maximum(x @ w1.T + b1, 0)
        logits = hidden @ w2.T + b2
        logits -= logits.max(1, keepdims=True)
        exponentials = np.exp(logits)
        sums = exponentials.sum(1, keepdims=True)
        loss = (np.log(sums[:, 0]) - logits[rows, labels]).mean()
        slope = exponentials / sums
        slope[rows, labels] -= 1
        slope /= np.float32(len(labels))
        inner = (slope @ w2) * (hidden > 0)
        rate = np.float32(0.01)
        for parameter, gradient in (
            (w1, inner.T @ x),
            (b1, inner.sum(0)),
            (w2, slope.T @ hidden),
            (b2, slope.sum(0)),
        ):
            parameter -= rate * gradient
        return (np.asarray(loss), w1, b1, w2, b2)

    return call


mlp512 = mlp


def matmul(inputs: Inputs, variant: str) -> Call:
    return lambda: np.matmul(inputs["x"], inputs["y"])


def add(inputs: Inputs, variant: str) -> Call:
    x, y = inputs.values()
    return lambda: x + y
