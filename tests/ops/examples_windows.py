"""Examples of convolutions and of windows that slide or share an axis."""

from __future__ import annotations

import numpy as np

from tests.ops.registry import example, floats, ints
from tilegrad.ops import convolution, pooling
from tilegrad.ops.sliding import Adaptive, Sliding


def sliding(extent: int, taps: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> Sliding:
    count = (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    return Sliding(extent, count, taps, stride, padding, dilation)


CASES = [
    ((8, 3), (6, 3)),
    ((9, 3, 2, 1), (6, 2, 1, 1)),
    ((11, 5, 4, 2), (5, 3, 1, 1)),
    ((10, 2, 3, 0, 2), (5, 1)),
    ((9, 3, 4, 1, 2), (4, 2, 2)),
]
for first, second in CASES:
    axes = (sliding(*first), sliding(*second))
    stride, padding, dilation = ([getattr(a, name) for a in axes] for name in ("stride", "padding", "dilation"))
    x = floats(2, 2, 2, *[a.extent for a in axes])
    w = floats(2, 3, 2, *[a.taps for a in axes], seed=1)
    y = floats(2, 2, 3, *[a.count for a in axes], seed=2)

    def convolved(t, x, w, stride=stride, padding=padding, dilation=dilation):
        made = t.conv2d(x.flatten(1, 2), w.flatten(0, 1), None, stride, padding, dilation, 2)
        return made.unflatten(1, (2, 3))

    def back(t, y, w, axes=axes, convolved=convolved):
        x = t.zeros(2, 2, 2, *[a.extent for a in axes], dtype=y.dtype, requires_grad=True)
        return t.autograd.grad(convolved(t, x, w), x, y, create_graph=True)[0]

    def weight(t, x, y, axes=axes, convolved=convolved):
        w = t.zeros(2, 3, 2, *[a.taps for a in axes], dtype=y.dtype, requires_grad=True)
        return t.autograd.grad(convolved(t, x, w), w, y, create_graph=True)[0]

    example(convolution.Convolve, lambda x, w, a=axes: convolution.Convolve(x, w, a), x, w, torch=convolved)
    example(convolution.ConvolveBack, lambda y, w, a=axes: convolution.convolve_back(y, w, a), y, w, torch=back)
    example(convolution.ConvolveWeight, lambda x, y, a=axes: convolution.ConvolveWeight(x, y, a), x, y, torch=weight)

PAIRS = [
    (sliding(7, 3, 2, 1), sliding(6, 2)),
    (sliding(7, 2, 1, 1, 3), Sliding(6, 4, 3, 2, 1, 1)),
    (Adaptive(7, 3), Adaptive(5, 6)),
]
for axes in PAIRS:
    counts = [a.count for a in axes]
    x = np.random.default_rng(0).permutation(2 * 7 * axes[1].extent).reshape(2, 7, axes[1].extent) * 1.0
    patches = floats(2, *[a.width for a in axes], *counts)
    example(pooling.Im2col, lambda x, a=axes: pooling.Im2col(x, a), x)
    example(pooling.Col2im, lambda y, a=axes: pooling.Col2im(y, a), patches)
    example(pooling.MaxPool, lambda x, a=axes: pooling.max_pool(x, a), x)
    example(pooling.WindowArgmax, lambda x, a=axes: pooling.WindowArgmax(x, a), x, gradient=False)
    numbers = lambda x, a=axes: pooling.WindowArgmax(x, a)  # noqa: E731
    example(pooling.WindowGather, lambda x, z, a=axes, n=numbers: pooling.WindowGather(x, n(z), a), x, x[::-1].copy())
    given = floats(2, *counts)
    example(pooling.WindowScatter, lambda y, z, a=axes, n=numbers: pooling.WindowScatter(y, n(z), a), given, x)
    example(pooling.PoolIndex, lambda x, a=axes: pooling.pool_indices(x, a), x, gradient=False)
    example(None, lambda x, a=axes: pooling.average_pool(x, a, False), x, name="average_pool")
example(pooling.MaxPool, lambda x: pooling.max_pool(x, (sliding(6, 3, 2, 1),)), ints(2, 6))
example(
    pooling.WindowCounts,
    lambda x: pooling.WindowCounts(Adaptive(7, 4), False),
    floats(2),
    numpy=lambda x: np.array([2, 3, 3, 2]),
)
