"""Layers of networks, each with its gradients in float64 by numpy: what the compiler's results are held against.

Nothing here comes from the package: convolutions are products of matrices, tap by tap, and gradients are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.geometries import windows
from tests.geometries.windows import Array


class Layer(Protocol):
    """One layer at one size: the shapes of what it reads, what it is here, and what it is in float64."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def exact(self) -> bool:
        """Whether it only multiplies, adds and chooses: numbers of a few bits have results without rounding."""

    def ours(self, tg: Any) -> Callable[..., Any]:
        """The function of the leaves, made before it is traced."""

    def forward(self, *leaves: Array) -> tuple[Array, Any]:
        """The result, and what `backward` wants to know of it."""

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        """The gradient of each leaf."""

    @property
    def work(self) -> float:
        """About how many products are added up."""

    @property
    def terms(self) -> int:
        """The length of its longest sums."""


class Convolution(NamedTuple):
    """A convolution with a bias; `how`: alone, with ReLU before it or after it, or added to what goes around it."""

    batch: int
    channels: int
    extents: tuple[int, ...]
    outputs: int
    taps: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    how: str = "alone"

    exact = True

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        x, w = (self.batch, self.channels, *self.extents), (self.outputs, self.channels // self.groups, *self.taps)
        around = ((self.batch, self.outputs, *self.counts),) if self.how == "around" else ()
        return (x, w, (self.outputs,), *around)

    @property
    def counts(self) -> tuple[int, ...]:
        reach = [self.dilation * (t - 1) + 1 for t in self.taps]
        return tuple((e + 2 * self.padding - r) // self.stride + 1 for e, r in zip(self.extents, reach, strict=True))

    def ours(self, tg: Any) -> Callable[..., Any]:
        F = tg.nn.functional

        def made(x: Any, w: Any, b: Any, *around: Any) -> Any:
            x = F.relu(x) if self.how == "before" else x
            y = getattr(F, f"conv{len(self.taps)}d")(x, w, b, self.stride, self.padding, self.dilation, self.groups)
            y = y + around[0] if around else y
            return F.relu(y) if self.how in ("after", "around") else y

        return made

    def forward(self, x: Array, w: Array, b: Array, *around: Array) -> tuple[Array, Any]:
        inner = np.maximum(x, 0) if self.how == "before" else x
        y = windows.convolved(inner, w, self.geometry) + windows.along_channels(b, inner.ndim)
        y = y + around[0] if around else y
        return (np.maximum(y, 0) if self.how in ("after", "around") else y), (x, inner, w, y)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        x, inner, w, y = kept
        upstream = upstream * (y > 0) if self.how in ("after", "around") else upstream
        to_x = windows.convolved_back(upstream, w, self.geometry, x.shape)
        to_x = to_x * (x > 0) if self.how == "before" else to_x
        to_w = windows.weight_of(inner, upstream, self.geometry, w.shape)
        around = (upstream,) if self.how == "around" else ()
        return (to_x, to_w, windows.over_channels(upstream), *around)

    @property
    def geometry(self) -> windows.Geometry:
        return windows.Geometry(self.stride, self.padding, self.dilation, self.groups)

    @property
    def work(self) -> float:
        return float(self.batch * prod(self.counts) * prod(self.shapes[1]))

    @property
    def terms(self) -> int:
        return max(prod(self.shapes[1][1:]), self.batch * prod(self.counts))


class Transposed(NamedTuple):
    """A transposed convolution with a bias, and ReLU after it."""

    batch: int
    channels: int
    extents: tuple[int, ...]
    outputs: int
    taps: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    more: int = 0
    groups: int = 1

    exact = True

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        w = (self.channels, self.outputs // self.groups, *self.taps)
        return (self.batch, self.channels, *self.extents), w, (self.outputs,)

    @property
    def counts(self) -> tuple[int, ...]:
        pairs = zip(self.extents, self.taps, strict=True)
        return tuple((e - 1) * self.stride - 2 * self.padding + t + self.more for e, t in pairs)

    def ours(self, tg: Any) -> Callable[..., Any]:
        F = tg.nn.functional

        def made(x: Any, w: Any, b: Any) -> Any:
            transposed = getattr(F, f"conv_transpose{len(self.taps)}d")
            return F.relu(transposed(x, w, b, self.stride, self.padding, self.more, self.groups))

        return made

    def forward(self, x: Array, w: Array, b: Array) -> tuple[Array, Any]:
        y = windows.convolved_back(x, w, self.geometry, (self.batch, self.outputs, *self.counts))
        y = y + windows.along_channels(b, y.ndim)
        return np.maximum(y, 0), (x, w, y)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        x, w, y = kept
        upstream = upstream * (y > 0)
        to_w = windows.weight_of(upstream, x, self.geometry, w.shape)
        to_x = windows.convolved(upstream, w, self.geometry)[tuple(slice(n) for n in x.shape)]
        return to_x, to_w, windows.over_channels(upstream)

    @property
    def geometry(self) -> windows.Geometry:
        return windows.Geometry(self.stride, self.padding, 1, self.groups)

    @property
    def work(self) -> float:
        return float(self.batch * prod(self.extents) * prod(self.shapes[1]))

    @property
    def terms(self) -> int:
        return max(self.channels * prod(self.taps), self.batch * prod(self.extents))


class Dense(NamedTuple):
    """A linear layer over rows of one or two axes, with a bias; `how` as for convolutions."""

    rows: tuple[int, ...]
    inputs: int
    outputs: int
    how: str = "alone"

    exact = True

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        around = ((*self.rows, self.outputs),) if self.how == "around" else ()
        return ((*self.rows, self.inputs), (self.outputs, self.inputs), (self.outputs,), *around)

    def ours(self, tg: Any) -> Callable[..., Any]:
        F = tg.nn.functional

        def made(x: Any, w: Any, b: Any, *around: Any) -> Any:
            y = F.linear(F.relu(x) if self.how == "before" else x, w, b)
            y = y + around[0] if around else y
            return F.relu(y) if self.how == "after" else y

        return made

    def forward(self, x: Array, w: Array, b: Array, *around: Array) -> tuple[Array, Any]:
        inner = np.maximum(x, 0) if self.how == "before" else x
        y = inner @ w.T + b
        y = y + around[0] if around else y
        return (np.maximum(y, 0) if self.how == "after" else y), (x, inner, w, y)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        x, inner, w, y = kept
        upstream = upstream * (y > 0) if self.how == "after" else upstream
        to_x = upstream @ w
        to_x = to_x * (x > 0) if self.how == "before" else to_x
        flat = upstream.reshape(-1, self.outputs)
        around = (upstream,) if self.how == "around" else ()
        return (to_x, flat.T @ inner.reshape(-1, self.inputs), flat.sum(0), *around)

    @property
    def work(self) -> float:
        return float(prod(self.rows) * self.inputs * self.outputs)

    @property
    def terms(self) -> int:
        return max(self.inputs, self.outputs, prod(self.rows))


class Attention(NamedTuple):
    """Attention of heads: queries to keys, all of them or those before."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    causal: bool = False

    exact = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        q, k = (self.batch, self.heads, self.queries, self.width), (self.batch, self.heads, self.keys, self.width)
        return q, k, k

    def ours(self, tg: Any) -> Callable[..., Any]:
        F = tg.nn.functional

        def made(q: Any, k: Any, v: Any) -> Any:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

        return made

    def forward(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        scores = q @ k.swapaxes(-1, -2) / self.width**0.5
        if self.causal:
            scores = np.where(np.tri(self.queries, self.keys, dtype=bool), scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        return weights @ v, (q, k, v, weights)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        q, k, v, weights = kept
        to_weights = upstream @ v.swapaxes(-1, -2)
        to_scores = weights * (to_weights - (to_weights * weights).sum(-1, keepdims=True)) / self.width**0.5
        return to_scores @ k, to_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ upstream

    @property
    def work(self) -> float:
        return float(self.batch * self.heads * self.queries * self.keys * self.width)

    @property
    def terms(self) -> int:
        return self.keys


class Normalised(NamedTuple):
    """LayerNorm over the last axis of a sum with positions, then the mean of all rows: the end of a ViT; or the norm
    of a batch's channels with ReLU after it.
    """

    kind: str
    shape: tuple[int, ...]

    exact = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        width = (self.shape[-1 if self.kind == "layer" else 1],)
        return (self.shape, self.shape[1:], width, width) if self.kind == "layer" else (self.shape, width, width)

    def ours(self, tg: Any) -> Callable[..., Any]:
        F = tg.nn.functional

        def made(*leaves: Any) -> Any:
            if self.kind == "layer":
                x, p, w, b = leaves
                return F.layer_norm(x + p, (self.shape[-1],), w, b).mean(1)
            x, w, b = leaves
            return F.relu(F.batch_norm(x, None, None, w, b, True))

        return made

    @property
    def axes(self) -> tuple[int, ...]:
        rank = len(self.shape)
        return (rank - 1,) if self.kind == "layer" else (0, *range(2, rank))

    def _spread(self, w: Array) -> Array:
        return w if self.kind == "layer" else windows.along_channels(w, len(self.shape))

    def forward(self, *leaves: Array) -> tuple[Array, Any]:
        *summed, w, b = leaves
        x = sum(summed)
        deviation = x - x.mean(self.axes, keepdims=True)
        inverse = (np.mean(deviation**2, self.axes, keepdims=True) + 1e-5) ** -0.5
        scaled = deviation * inverse
        y = scaled * self._spread(w) + self._spread(b)
        made = y.mean(1) if self.kind == "layer" else np.maximum(y, 0)
        return made, (scaled, inverse, w, y)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        scaled, inverse, w, y = kept
        if self.kind == "layer":
            upstream = np.broadcast_to(upstream[:, None] / self.shape[1], y.shape)
        else:
            upstream = upstream * (y > 0)
        others = tuple(a for a in range(y.ndim) if a not in self.axes) if self.kind != "layer" else (y.ndim - 1,)
        over = tuple(a for a in range(y.ndim) if a not in others)
        to_w, to_b = (upstream * scaled).sum(over), upstream.sum(over)
        g = upstream * self._spread(w)
        mean = lambda a: a.mean(self.axes, keepdims=True)  # noqa: E731
        to_x = inverse * (g - mean(g) - scaled * mean(g * scaled))
        positions = (to_x.sum(0),) if self.kind == "layer" else ()
        return (to_x, *positions, to_w, to_b)

    @property
    def work(self) -> float:
        return 8.0 * prod(self.shape)

    @property
    def terms(self) -> int:
        return prod(self.shape) // self.shape[-1 if self.kind == "layer" else 1]
