"""The networks of `bench.networks` in JAX, for a GPU: `jax.jit`, parameters donated, products in tf32 or bfloat16.

The layers are those of PyTorch's network, read off it, so that nothing is described twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others are in the same process

import jax
import jax.numpy as jnp

from bench import networks

HEADS = {"gpt": 4, "gpt2": 12}
LAYERS = {"gpt": 4, "gpt2": 12}
BETAS, RATE, DECAY = (0.9, 0.999), 1e-3, 1e-2


def _sequence(layers: Any, w: Iterator[Any], x: Any) -> Any:
    """Apply a PyTorch Sequential with weights of ours."""
    for layer in layers:
        match type(layer).__name__:
            case "Linear":
                x = x @ next(w).T + next(w)
            case "Conv2d":
                padding = [(p, p) for p in layer.padding]
                x = jax.lax.conv_general_dilated(x, next(w), layer.stride, padding) + next(w)[:, None, None]
            case "ReLU":
                x = jax.nn.relu(x)
            case "MaxPool2d":
                taps, stride = (1, 1, *[layer.kernel_size] * 2), (1, 1, *[layer.stride] * 2)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, taps, stride, "VALID")
            case "Flatten":
                x = x.reshape(len(x), -1)
    return x


def _normal(x: Any, w: Iterator[Any]) -> Any:
    weight, bias = next(w), next(w)
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return (centred * scale * weight + bias).astype(x.dtype)


def _gpt(name: str, parameters: list[Any], letters: Any) -> Any:
    w = iter(parameters)
    x = next(w)[letters] + next(w)
    batch, length, width = x.shape
    for _ in range(LAYERS[name]):
        (before, before_, between, between_, *rest) = (next(w) for _ in range(12))
        qkv, qkv_, out, out_, up, up_, down, down_ = rest
        parts = (_normal(x, iter((before, before_))) @ qkv.T + qkv_).reshape(batch, length, 3, HEADS[name], -1)
        q, k, v = (parts[:, :, n] for n in range(3))
        how = "cudnn" if x.dtype == jnp.bfloat16 and q.shape[-1] % 8 == 0 else None
        seen = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=how)
        x = x + seen.reshape(batch, length, width) @ out.T + out_
        inner = _normal(x, iter((between, between_))) @ up.T + up_
        x = x + jax.nn.gelu(inner, approximate=False) @ down.T + down_
    return (_normal(x, w) @ next(w).T).reshape(batch * length, -1)


def _scores(name: str, low: bool) -> Callable[[list[Any], Any], Any]:
    import torch

    layers = None if name in HEADS else networks.BUILD[name](torch.nn)

    def scores(parameters: list[Any], x: Any) -> Any:
        with jax.default_matmul_precision("tensorfloat32"):
            if low:
                parameters = [p.astype(jnp.bfloat16) for p in parameters]
                x = x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x
            if layers is None:
                return _gpt(name, parameters, x)
            return _sequence(layers, iter(parameters), x)

    return scores


def _weights(name: str) -> list[Any]:
    import torch

    with torch.device("meta"):
        shapes = [tuple(p.shape) for p in networks.BUILD[name](torch.nn).parameters()]
    return [jnp.asarray(w) for w in networks.drawn(shapes)]


def training(name: str, inputs: networks.Inputs, low: bool) -> networks.Call:
    """A whole training step; it returns before the device is done, and the next step waits for it."""
    x, labels = (jnp.asarray(a) for a in inputs.values())
    scores, adam = _scores(name, low), name in HEADS

    def loss(parameters: list[Any], x: Any, labels: Any) -> Any:
        found = jax.nn.log_softmax(scores(parameters, x).astype(jnp.float32))
        return -jnp.take_along_axis(found, labels[:, None], 1).mean()

    def step(state: tuple[Any, ...], x: Any, labels: Any) -> Any:
        parameters, first, second, count = state
        value, gradients = jax.value_and_grad(loss)(parameters, x, labels)
        if not adam:
            return value, ([p - RATE * g for p, g in zip(parameters, gradients, strict=True)], first, second, count)
        count = count + 1
        first = [BETAS[0] * m + (1 - BETAS[0]) * g for m, g in zip(first, gradients, strict=True)]
        second = [BETAS[1] * v + (1 - BETAS[1]) * g * g for v, g in zip(second, gradients, strict=True)]
        rate, root = RATE / (1 - BETAS[0] ** count), jnp.sqrt(1 - BETAS[1] ** count)
        parameters = [
            p * (1 - RATE * DECAY) - rate * m / (jnp.sqrt(v) / root + 1e-8)
            for p, m, v in zip(parameters, first, second, strict=True)
        ]
        return value, (parameters, first, second, count)

    ready = jax.jit(step, donate_argnums=0)
    parameters = _weights(name)
    nothing = [[jnp.zeros_like(p) for p in parameters] if adam else [] for _ in range(2)]
    state: Any = (parameters, *nothing, jnp.zeros((), jnp.float32))

    def call() -> Any:
        nonlocal state
        value, state = ready(state, x, labels)
        return value

    return call


def inference(name: str, inputs: networks.Inputs, low: bool) -> networks.Call:
    """The scores of a batch."""
    x, parameters, ready = jnp.asarray(inputs["x"]), _weights(name), jax.jit(_scores(name, low))
    if low:
        x, parameters = x.astype(jnp.bfloat16), [p.astype(jnp.bfloat16) for p in parameters]
    return lambda: ready(parameters, x)


def wait(made: Any) -> Any:
    """Wait until a result is computed."""
    return jax.block_until_ready(made)
