"""The networks as JAX's users would write them: functions of a list of parameters, one `jax.jit` for the whole step.

A network is traced once without computing to learn the shapes of its parameters, in the order of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .session import Session, drawn

Network = Callable[["Parameters", Any], Any]


class Parameters:
    """Gives a network its parameters one after another; without any it notes their shapes."""

    def __init__(self, given: Sequence[Any] | None = None) -> None:
        self.given = None if given is None else iter(given)
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, *shape: int) -> Any:
        self.shapes.append(shape)
        return jnp.zeros(shape) if self.given is None else next(self.given)


def _made(network: Network, x: Any) -> list[Any]:
    """The parameters of a network for inputs like x."""
    noted = Parameters()
    jax.eval_shape(lambda x: network(noted, x), x)
    return [jnp.asarray(w) for w in drawn(noted.shapes)]


def linear(p: Parameters, x: Any, width: int) -> Any:
    w = p(width, x.shape[-1])
    return x @ w.T + p(width)


def conv(p: Parameters, x: Any, width: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True) -> Any:
    w = p(width, x.shape[1], kernel, kernel)
    y = jax.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)
    return y + p(width)[:, None, None] if bias else y


def batch_norm(p: Parameters, x: Any) -> Any:
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    weight, bias = p(x.shape[1]), p(x.shape[1])
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight[:, None, None] + bias[:, None, None]


def layer_norm(p: Parameters, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    weight, bias = p(x.shape[-1]), p(x.shape[-1])
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def pool(x: Any, kernel: int, stride: int, average: bool = False) -> Any:
    window = (1, 1, kernel, kernel), (1, 1, stride, stride), "VALID"
    if average:
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, *window) / kernel**2
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window)


def cross_entropy(scores: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()


def sgd(rate: float, momentum: float = 0.0) -> Any:
    def update(p: Any, g: Any, state: Any, step: Any) -> Any:
        moved = momentum * state[0] + g
        return p - rate * moved, (moved,)

    return update, 1


def adam(rate: float, decay: float = 0.0) -> Any:
    def update(p: Any, g: Any, state: Any, step: Any) -> Any:
        mean, square = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
        scale = jnp.sqrt(square / (1 - 0.999**step)) + 1e-8
        return p * (1 - rate * decay) - rate * mean / (1 - 0.9**step) / scale, (mean, square)

    return update, 2


def _train(session: Session, network: Network, loss: Callable[..., Any], optimizer: Any, *batch: Any) -> None:
    """Take two steps, and look at each loss."""
    update, kept = optimizer
    parameters = _made(network, batch[0])
    states = [tuple(jnp.zeros_like(p) for _ in range(kept)) for p in parameters]

    @jax.jit
    def step(parameters: Any, states: Any, number: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda p: loss(lambda x: network(Parameters(p), x), *batch))(parameters)
        new = [update(p, g, s, number) for p, g, s in zip(parameters, gradients, states, strict=True)]
        return value, [p for p, _ in new], [s for _, s in new]

    for number in (1.0, 2.0):
        value, parameters, states = step(parameters, states, number, *batch)
        session.look(value)


def _classify(session: Session, network: Network, optimizer: Any, x: Any, labels: Any) -> None:
    _train(session, network, lambda net, x, labels: cross_entropy(net(x), labels), optimizer, x, labels)


def _normal(session: Session, *shape: int) -> Any:
    return jnp.asarray(session.generator.standard_normal(shape, dtype=np.float32))


def _integers(session: Session, high: int, *shape: int) -> Any:
    return jnp.asarray(session.generator.integers(0, high, shape))


def small_resnet(_: Any, session: Session) -> None:
    def network(p: Parameters, x: Any) -> Any:
        x = jax.nn.relu(conv(p, x, 32, 3, 1, 1))
        for _ in range(1 if session.small else 3):
            y = jax.nn.relu(batch_norm(p, conv(p, x, 32, 3, 1, 1)))
            x = jax.nn.relu(x + batch_norm(p, conv(p, y, 32, 3, 1, 1)))
        return linear(p, x.mean((2, 3)), 10)

    count, side = (2, 8) if session.small else (32, 32)
    x, labels = _normal(session, count, 3, side, side), _integers(session, 10, count)
    _classify(session, network, adam(1e-3, 0.01), x, labels)


def alexnet(_: Any, session: Session) -> None:
    def network(p: Parameters, x: Any) -> Any:
        x = pool(jax.nn.relu(conv(p, x, 96, 11, 4)), 3, 2)
        x = pool(jax.nn.relu(conv(p, x, 256, 5, 1, 2)), 3, 2)
        x = jax.nn.relu(conv(p, x, 384, 3, 1, 1))
        x = jax.nn.relu(conv(p, x, 384, 3, 1, 1))
        x = pool(jax.nn.relu(conv(p, x, 256, 3, 1, 1)), 3, 2).reshape(x.shape[0], -1)
        return linear(p, jax.nn.relu(linear(p, jax.nn.relu(linear(p, x, 4096)), 4096)), 10)

    x, labels = _normal(session, 16, 1, 224, 224), _integers(session, 10, 16)
    _classify(session, network, sgd(1e-3), x, labels)


def gpt(_: Any, session: Session) -> None:
    count, length, layers = (2, 8, 1) if session.small else (16, 128, 4)
    width, heads = 128, 4

    def network(p: Parameters, tokens: Any) -> Any:
        x = p(256, width)[tokens] + p(length, width)
        for _ in range(layers):
            norm1, norm2 = (p(width), p(width)), (p(width), p(width))
            q, k, v = jnp.split(linear(p, layer_norm(Parameters(norm1), x), 3 * width), 3, -1)
            q, k, v = (y.reshape(count, length, heads, -1).transpose(0, 2, 1, 3) for y in (q, k, v))
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
            scores = jnp.where(jnp.tril(jnp.ones((length, length))) == 0, -jnp.inf, scores)
            seen = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(count, length, width)
            x = x + linear(p, seen, width)
            y = layer_norm(Parameters(norm2), x)
            x = x + linear(p, jax.nn.gelu(linear(p, y, 4 * width), approximate=False), width)
        x = layer_norm(p, x)
        return (x @ p(256, width).T).reshape(count * length, -1)

    tokens, labels = _integers(session, 256, count, length), _integers(session, 256, count * length)
    _classify(session, network, adam(1e-3, 0.01), tokens, labels)


def lstm(_: Any, session: Session) -> None:
    width = 256

    def layer(p: Parameters, x: Any) -> Any:
        w, u, b, c = p(4 * width, width), p(4 * width, width), p(4 * width), p(4 * width)
        inputs = x @ w.T + b + c

        def step(carried: Any, given: Any) -> Any:
            h, cell = carried
            i, f, g, o = jnp.split(given + h @ u.T, 4, -1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (h, cell), h

        zero = jnp.zeros((x.shape[1], width))
        return jax.lax.scan(step, (zero, zero), inputs)[1]

    def network(p: Parameters, tokens: Any) -> Any:
        table, w, b = p(256, width), p(256, width), p(256)
        x = layer(p, layer(p, table[tokens].swapaxes(0, 1))).swapaxes(0, 1)
        return (x @ w.T + b).reshape(-1, 256)

    tokens, labels = _integers(session, 256, 32, 64), _integers(session, 256, 32 * 64)
    _classify(session, network, adam(1e-3, 0.01), tokens, labels)


def vae(_: Any, session: Session) -> None:
    def network(p: Parameters, given: Any) -> Any:
        x, noise = given
        h = jax.nn.relu(linear(p, x, 400))
        mean, log_variance = linear(p, h, 20), linear(p, h, 20)
        z = mean + noise * jnp.exp(0.5 * log_variance)
        return linear(p, jax.nn.relu(linear(p, z, 400)), 784), mean, log_variance

    def loss(net: Any, given: Any) -> Any:
        again, mean, log_variance = net(given)
        x = given[0]
        error = jnp.maximum(again, 0) - again * x + jnp.log1p(jnp.exp(-jnp.abs(again)))
        return error.sum() - 0.5 * (1 + log_variance - mean**2 - jnp.exp(log_variance)).sum()

    x = jax.nn.sigmoid(_normal(session, 128, 784))
    _train(session, network, loss, adam(1e-3), (x, _normal(session, 128, 20)))


def unet(_: Any, session: Session) -> None:
    def double(p: Parameters, x: Any, width: int) -> Any:
        return jax.nn.relu(conv(p, jax.nn.relu(conv(p, x, width, 3, 1, 1)), width, 3, 1, 1))

    def up(w: Any, b: Any, x: Any) -> Any:
        n, _, h, k = x.shape
        y = jnp.einsum("nihw,ioab->nohawb", x, w)
        return y.reshape(n, w.shape[1], 2 * h, 2 * k) + b[:, None, None]

    def network(p: Parameters, x: Any) -> Any:
        a = double(p, x, 16)
        b = double(p, pool(a, 2, 2), 32)
        c = double(p, pool(b, 2, 2), 64)
        b = double(p, jnp.concatenate([up(p(64, 32, 2, 2), p(32), c), b], 1), 32)
        a = double(p, jnp.concatenate([up(p(32, 16, 2, 2), p(16), b), a], 1), 16)
        return conv(p, a, 1, 1)

    def loss(net: Any, x: Any, wanted: Any) -> Any:
        y = net(x)
        return (jnp.maximum(y, 0) - y * wanted + jnp.log1p(jnp.exp(-jnp.abs(y)))).mean()

    x = _normal(session, 8, 1, 64, 64)
    _train(session, network, loss, adam(1e-3), x, (x > 0).astype(jnp.float32))


def densenet121(_: Any, session: Session) -> None:
    def network(p: Parameters, x: Any) -> Any:
        x = conv(p, x, 64, 3, 1, 1, False)
        for n, count in enumerate((6, 12, 24, 16)):
            for _ in range(count):
                y = conv(p, jax.nn.relu(batch_norm(p, x)), 128, 1, bias=False)
                x = jnp.concatenate([x, conv(p, jax.nn.relu(batch_norm(p, y)), 32, 3, 1, 1, False)], 1)
            x = jax.nn.relu(batch_norm(p, x))
            if n < 3:
                x = pool(conv(p, x, x.shape[1] // 2, 1, bias=False), 2, 2, average=True)
        return linear(p, x.mean((2, 3)), 10)

    count = 2 if session.small else 16
    x, labels = _normal(session, count, 3, 32, 32), _integers(session, 10, count)
    _classify(session, network, sgd(1e-2, 0.9), x, labels)
