"""JAX: `jax.jit`, with arguments donated where a step updates them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.workloads import Inputs

Call = Callable[[], Any]


def outputs(result: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(result)]


def _jitted(function: Callable[..., Any], *arrays: Any) -> Call:
    ready = jax.jit(function)
    return lambda: jax.block_until_ready(ready(*arrays))


def _arrays(inputs: Inputs) -> dict[str, Any]:
    return {name: jnp.asarray(x) for name, x in inputs.items()}


def chain(inputs: Inputs, variant: str) -> Call:
    def function(x: Any, a: Any, b: Any, c: Any) -> Any:
        return jax.nn.relu(x * a + b) * jax.nn.sigmoid(x) + jnp.tanh(c)

    return _jitted(function, *_arrays(inputs).values())


def softmax(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: jax.nn.softmax(x, axis=-1), _arrays(inputs)["x"])


def _normalized(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def layer_norm(inputs: Inputs, variant: str) -> Call:
    x, weight, bias, _ = _arrays(inputs).values()
    return _jitted(_normalized, x, weight, bias)


def layer_norm_training(inputs: Inputs, variant: str) -> Call:
    def function(x: Any, weight: Any, bias: Any, upstream: Any) -> Any:
        y, back = jax.vjp(_normalized, x, weight, bias)
        return (y, *back(upstream))

    return _jitted(function, *_arrays(inputs).values())


def sum0(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: x.sum(0), _arrays(inputs)["x"])


def sum1(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x: x.sum(1), _arrays(inputs)["x"])


def matmul(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x @ y, *_arrays(inputs).values())


def mlp(inputs: Inputs, variant: str) -> Call:
    x, labels, *first = _arrays(inputs).values()

    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2 = parameters
        logits = jax.nn.relu(x @ w1.T + b1) @ w2.T + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def step(parameters: Any, x: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x, labels)
        return value, [p - 0.01 * g for p, g in zip(parameters, gradients, strict=True)]

    ready = jax.jit(step, donate_argnums=0)
    parameters = [jnp.array(p, copy=True) for p in first]

    def call() -> Any:
        nonlocal parameters
        value, parameters = ready(parameters, x, labels)
        return jax.block_until_ready((value, *parameters))

    return call


mlp512 = mlp_busy = mlp


def add(inputs: Inputs, variant: str) -> Call:
    return _jitted(lambda x, y: x + y, *_arrays(inputs).values())
