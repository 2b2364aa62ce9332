"""Small networks as people write them, for either library: layers by name, a loss, and the batches that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Step = Callable[..., Any]


class Network(NamedTuple):
    """A network to train: `layers` and `loss` take the library; `batch` has for each array the count of classes (0 for
    numbers) and its shape, with -1 for the size of the batch.
    """

    layers: Callable[[Any], dict[str, Any]]
    loss: Callable[..., Any]
    batch: tuple[tuple[int, tuple[int, ...]], ...]
    optimizer: Callable[[Any, Any], Any]
    least: int = 1
    """Rows of the smallest batch that makes sense."""

    def arrays(self, rng: np.random.Generator, size: int) -> list[np.ndarray]:
        shapes = [(classes, [size if n < 0 else n for n in shape]) for classes, shape in self.batch]
        return [rng.integers(0, c, shape) if c else rng.standard_normal(shape) for c, shape in shapes]


def momentum(t: Any, parameters: Any) -> Any:
    return t.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(t: Any, parameters: Any) -> Any:
    return t.optim.AdamW(parameters, lr=0.01, amsgrad=True)


def residual(t: Any, m: Any, x: Any, y: Any) -> Any:
    """Batch norm in place, a skip that is added in place, mean over places."""
    F = t.nn.functional
    x = m["stem"](x)
    out = F.relu(m["norm1"](m["conv1"](x)), inplace=True)
    out = m["norm2"](m["conv2"](out))
    out += m["down"](x)
    return F.cross_entropy(m["head"](F.relu(out).mean([2, 3])), y, label_smoothing=0.1)


def residual_layers(n: Any) -> dict[str, Any]:
    return {
        "stem": n.Conv2d(3, 4, 3, padding=1),
        "conv1": n.Conv2d(4, 6, 3, 2, 1, bias=False),
        "norm1": n.BatchNorm2d(6),
        "conv2": n.Conv2d(6, 6, 3, 1, 1, bias=False),
        "norm2": n.BatchNorm2d(6),
        "down": n.Conv2d(4, 6, 1, 2),
        "head": n.Linear(6, 5),
    }


def segmented(t: Any, m: Any, x: Any, y: Any) -> Any:
    """A U-Net: down and up again with skip connections, by two kinds of upsampling."""
    F = t.nn.functional
    a = F.silu(m["norm"](m["down"](x)))
    b = F.silu(m["mid"](F.max_pool2d(a, 2)))
    c = t.cat([m["up"](b), a, F.interpolate(b, scale_factor=2, mode="bilinear")], 1)
    return F.cross_entropy(m["out"](c), y)


def segmented_layers(n: Any) -> dict[str, Any]:
    return {
        "down": n.Conv2d(1, 4, 3, padding=1),
        "norm": n.GroupNorm(2, 4),
        "mid": n.Conv2d(4, 4, 3, padding=1),
        "up": n.ConvTranspose2d(4, 4, 2, 2),
        "out": n.Conv2d(12, 2, 1),
    }


def transformer(t: Any, m: Any, x: Any, y: Any) -> Any:
    """Attention with a mask of minus infinity, the table of letters at both ends, targets that do not count."""
    F = t.nn.functional
    h = m["letters"](x) + m["places"](t.arange(6))
    q, k, v = (z.unflatten(2, (2, 4)).transpose(1, 2) for z in m["qkv"](m["norm1"](h)).split(8, dim=2))
    scores = q @ k.transpose(-2, -1) * 0.5
    scores = scores.masked_fill(t.tril(t.ones(6, 6)) == 0, float("-inf"))
    h = h + m["out"]((F.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
    h = h + m["second"](F.gelu(m["first"](m["norm2"](h)), approximate="tanh"))
    return F.cross_entropy(F.linear(h, m["letters"].weight).flatten(0, 1), y.flatten(), ignore_index=3)


def transformer_layers(n: Any) -> dict[str, Any]:
    return {
        "letters": n.Embedding(11, 8),
        "places": n.Embedding(6, 8),
        "norm1": n.LayerNorm(8),
        "qkv": n.Linear(8, 24),
        "out": n.Linear(8, 8),
        "norm2": n.LayerNorm(8),
        "first": n.Linear(8, 16),
        "second": n.Linear(16, 8),
    }


def recurrent(t: Any, m: Any, x: Any, y: Any) -> Any:
    """All states, and the last one."""
    out, (h, _) = m["lstm"](m["letters"](x))
    return t.nn.functional.cross_entropy(m["head"](t.cat([out.mean(1), h[-1]], 1)), y)


def recurrent_layers(n: Any) -> dict[str, Any]:
    return {
        "letters": n.Embedding(9, 4),
        "lstm": n.LSTM(4, 3, batch_first=True, bidirectional=True),
        "head": n.Linear(9, 5),
    }


def graph(t: Any, m: Any, x: Any, begin: Any, end: Any, y: Any) -> Any:
    """Sums over neighbours, and attention over them: softmax within groups of any size."""
    F = t.nn.functional
    n = x.shape[0]
    begin, end = begin % n, end % n
    degree = x.new_zeros(n).index_add(0, end, x.new_ones(12)).clamp(min=1)
    h = m["first"](x)
    h = t.tanh(t.zeros_like(h).index_add_(0, end, h[begin]) / degree.unsqueeze(1))
    score = F.leaky_relu(m["score"](t.cat([h[begin], h[end]], 1)).squeeze(1), 0.2)
    highest = t.full_like(degree, -1e9).scatter_reduce(0, end, score.detach(), "amax")
    weight = (score - highest[end]).exp()
    weight = weight / x.new_zeros(n).scatter_add(0, end, weight)[end]
    h = h.new_zeros(n, 4).scatter_add(0, end[:, None].expand(-1, 4), weight[:, None] * h[begin])
    return F.cross_entropy(m["head"](h), y)


def graph_layers(n: Any) -> dict[str, Any]:
    return {"first": n.Linear(3, 4), "score": n.Linear(8, 1), "head": n.Linear(4, 3)}


def experts(t: Any, m: Any, x: Any, y: Any) -> Any:
    """The two best of four, and a loss that spreads the load."""
    chances = t.softmax(m["gate"](x), -1)
    weight, chosen = t.topk(chances, 2, dim=-1)
    weight = weight / weight.sum(-1, keepdim=True)
    every = m["experts"](x).unflatten(1, (4, 3))
    out = (weight[..., None] * every.gather(1, chosen[..., None].expand(-1, -1, 3))).sum(1)
    load = t.nn.functional.one_hot(chosen, 4).to(x.dtype).sum(1).mean(0)
    return ((out - y) ** 2).mean() + 0.1 * (load * chances.mean(0)).sum()


def contrasted(t: Any, m: Any, x: Any, y: Any) -> Any:
    """Each row against all others but itself."""
    F = t.nn.functional
    z = F.normalize(m["head"](F.elu(m["first"](t.cat([x, y])))), dim=1)
    n = len(z)
    scores = (z @ z.T / 0.5).masked_fill(t.eye(n, dtype=t.bool), float("-inf"))
    return F.cross_entropy(scores, (t.arange(n) + n // 2) % n)


def penalised(t: Any, m: Any, x: Any, y: Any) -> Any:
    """A gradient within the loss: second derivatives of all weights."""
    between = (0.3 * x + 0.7 * y).detach().requires_grad_()

    def critic(z: Any) -> Any:
        return m["head"](t.tanh(m["first"](z)))

    (slope,) = t.autograd.grad(critic(between).sum(), between, create_graph=True)
    return critic(y).mean() - critic(x).mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()


def adapted(t: Any, m: Any, x: Any, y: Any) -> Any:
    """The loss after two steps of descent within: derivatives through the updates."""
    w, b = m["first"].weight, m["first"].bias
    for _ in range(2):
        inner = ((t.tanh(x @ w.T + b) - y) ** 2).mean()
        of_w, of_b = t.autograd.grad(inner, (w, b), create_graph=True)
        w, b = w - 0.4 * of_w, b - 0.4 * of_b
    return ((m["head"](t.tanh(x.flip(0) @ w.T + b)) - y) ** 2).mean()


def bootstrapped(t: Any, m: Any, x: Any, after: Any, action: Any, reward: Any) -> Any:
    """Values of actions against those of a network that follows slowly, by updates of `.data` within the loss."""
    value = m["first"](x).gather(1, action[:, None]).squeeze(1)
    with t.no_grad():
        target = reward + 0.9 * m["slow"](after).max(1)[0]
        for p, slow in ((m["first"].weight, m["slow"].weight), (m["first"].bias, m["slow"].bias)):
            slow.data.mul_(0.9).add_(p.data * 0.1)
    return t.nn.functional.huber_loss(value, target)


def two_layers(n: Any) -> dict[str, Any]:
    return {"first": n.Linear(4, 4), "head": n.Linear(4, 4)}


ROWS = (0, (-1, 4))
NETWORKS = {
    "residual": Network(residual_layers, residual, ((0, (-1, 3, 6, 6)), (5, (-1,))), momentum, least=2),
    "segmented": Network(segmented_layers, segmented, ((0, (-1, 1, 4, 4)), (2, (-1, 4, 4))), adam),
    "transformer": Network(transformer_layers, transformer, ((11, (-1, 6)), (11, (-1, 6))), adam),
    "recurrent": Network(recurrent_layers, recurrent, ((9, (-1, 5)), (5, (-1,))), momentum),
    "graph": Network(graph_layers, graph, ((0, (-1, 3)), (60, (12,)), (60, (12,)), (3, (-1,))), momentum),
    "experts": Network(
        lambda n: {"gate": n.Linear(4, 4), "experts": n.Linear(4, 12)}, experts, (ROWS, (0, (-1, 3))), adam
    ),
    "contrasted": Network(two_layers, contrasted, (ROWS, ROWS), momentum),
    "penalised": Network(lambda n: {"first": n.Linear(4, 5), "head": n.Linear(5, 1)}, penalised, (ROWS, ROWS), adam),
    "adapted": Network(two_layers, adapted, (ROWS, ROWS), momentum),
    "bootstrapped": Network(
        lambda n: {"first": n.Linear(4, 3), "slow": n.Linear(4, 3)},
        bootstrapped,
        (ROWS, ROWS, (3, (-1,)), (0, (-1,))),
        momentum,
    ),
}
