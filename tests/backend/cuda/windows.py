"""Convolutions and their gradients in float64, tap by tap: the reference for those on GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Windows(NamedTuple):
    """A convolution over images; `transposed`: from results to inputs, like its gradient."""

    x: tuple[int, int, int, int]
    outputs: int
    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    dtype: str = "bfloat16"
    precision: str = "highest"

    @property
    def weights(self) -> tuple[int, int, int, int]:
        channels = self.x[1] // self.groups
        return (
            (self.x[1], self.outputs, *[self.taps] * 2)  # type: ignore[return-value]
            if self.transposed
            else (self.outputs, channels, *[self.taps] * 2)
        )  # type: ignore[return-value]

    @property
    def name(self) -> str:
        changes = [f"{n[0]}{v}" for n, v in self._asdict().items() if n in ("stride", "padding", "dilation") and v != 1]
        more = ["transposed"] * self.transposed + [f"g{self.groups}"] * (self.groups > 1)
        size = "x".join(map(str, self.x))
        return " ".join([self.dtype, self.precision, size, f"to {self.outputs} k{self.taps}", *changes, *more])


def convolved(x: np.ndarray, w: np.ndarray, how: Windows) -> np.ndarray:
    """Return the result of a convolution."""
    n, _, *extents = x.shape
    count = [(e + 2 * how.padding - how.dilation * (how.taps - 1) - 1) // how.stride + 1 for e in extents]
    made = np.zeros((n, w.shape[0], *count))
    for window, weights, sums in _taps(x, w, made, how):
        sums += np.einsum("nchw,oc->nohw", window, weights, optimize=True)
    return made


def gradients(x: np.ndarray, w: np.ndarray, upstream: np.ndarray, how: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of the images and the weights."""
    p = how.padding
    wide = np.zeros((*x.shape[:2], x.shape[2] + 2 * p, x.shape[3] + 2 * p))
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    to_w = np.zeros_like(w)
    for target, weights, given in _taps(wide, w, upstream, how, padded=True):
        target += np.einsum("nohw,oc->nchw", given, weights, optimize=True)
    for (window, _, given), (_, sums, _) in zip(
        _taps(padded, w, upstream, how, padded=True), _taps(padded, to_w, upstream, how, padded=True), strict=True
    ):
        sums += np.einsum("nohw,nchw->oc", given, window, optimize=True)
    return wide[:, :, p : p + x.shape[2], p : p + x.shape[3]], to_w


def _taps(x: np.ndarray, w: np.ndarray, y: np.ndarray, how: Windows, padded: bool = False):  # type: ignore[no-untyped-def]
    """Yield, for each group and tap, the images it reads, its weights, and the results it adds to."""
    p = 0 if padded else how.padding
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p))) if p else x
    inner, outer = w.shape[1], w.shape[0] // how.groups
    for g in range(how.groups):
        for i in range(how.taps):
            for j in range(how.taps):
                rows, columns = (
                    slice(t * how.dilation, t * how.dilation + (n - 1) * how.stride + 1, how.stride)
                    for t, n in ((i, y.shape[2]), (j, y.shape[3]))
                )
                own = slice(g * outer, (g + 1) * outer)
                yield x[:, g * inner : (g + 1) * inner, rows, columns], w[own, :, i, j], y[:, own]


def wanted(x: np.ndarray, w: np.ndarray, upstream: np.ndarray | None, how: Windows) -> list[np.ndarray]:
    """Return the result, or with `upstream` the result and the gradients of images and weights."""
    if not how.transposed:
        made = convolved(x, w, how)
        return [made] if upstream is None else [made, *gradients(x, w, upstream, how)]
    size = [(e - 1) * how.stride - 2 * how.padding + how.dilation * (how.taps - 1) + 1 for e in x.shape[2:]]
    zeros = np.zeros((x.shape[0], how.outputs, *size))
    made = gradients(zeros, w, x, how)[0]
    return [made] if upstream is None else [made, convolved(upstream, w, how), gradients(upstream, w, x, how)[1]]
