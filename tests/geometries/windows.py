"""Convolutions in float64 as products of matrices: of weights and columns that have what each window meets."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

ROOM = 1 << 23
"""Numbers of columns that are made at a time."""


class Geometry(NamedTuple):
    """Parameters of a convolution that are not shapes of its operands."""

    stride: int
    padding: int
    dilation: int
    groups: int


def convolved(x: Array, w: Array, how: Geometry) -> Array:
    """The convolution of (batch, channels, ...) with (outputs, channels of a group, taps ...)."""
    margins = [(0, 0), (0, 0), *[(how.padding, how.padding)] * (x.ndim - 2)]
    padded = np.pad(x, margins)
    pairs = zip(padded.shape[2:], w.shape[2:], strict=True)
    counts = tuple((e - how.dilation * (t - 1) - 1) // how.stride + 1 for e, t in pairs)
    made = np.empty((len(x), how.groups, len(w) // how.groups, prod(counts)))
    for images, columns in _columns(padded, w.shape[2:], counts, how):
        made[images] = w.reshape(how.groups, -1, columns.shape[2]) @ columns
    return made.reshape(len(x), len(w), *counts)


def convolved_back(y: Array, w: Array, how: Geometry, shape: tuple[int, ...]) -> Array:
    """The gradient for an operand of such a shape, from that for the result: a transposed convolution."""
    taps, counts = w.shape[2:], y.shape[2:]
    padded = np.zeros((*shape[:2], *[e + 2 * how.padding + how.stride for e in shape[2:]]))
    turned = np.ascontiguousarray(w.reshape(how.groups, len(w) // how.groups, -1).swapaxes(1, 2))
    step = max(1, ROOM // (turned.shape[0] * turned.shape[1] * prod(counts)))
    for first in range(0, len(y), step):
        part = y[first : first + step].reshape(-1, how.groups, len(w) // how.groups, prod(counts))
        columns = (turned @ part).reshape(len(part), shape[1], prod(taps), *counts)
        for n, tap in enumerate(np.ndindex(taps)):
            padded[(slice(first, first + step), slice(None), *_met(tap, counts, how))] += columns[:, :, n]
    return padded[(..., *[slice(how.padding, how.padding + e) for e in shape[2:]])]


def weight_of(x: Array, y: Array, how: Geometry, shape: tuple[int, ...]) -> Array:
    """The gradient for the weights, from the operand and the gradient for the result."""
    padded = np.pad(x, [(0, 0), (0, 0), *[(how.padding, how.padding)] * (x.ndim - 2)])
    flat = y.reshape(len(y), how.groups, -1, prod(y.shape[2:]))
    made = np.zeros((how.groups, shape[0] // how.groups, prod(shape[1:])))
    for images, columns in _columns(padded, shape[2:], y.shape[2:], how):
        made += (flat[images] @ columns.swapaxes(-1, -2)).sum(0)
    return made.reshape(shape)


def along_channels(b: Array, rank: int) -> Array:
    """Numbers of channels, for arrays of a rank."""
    return b.reshape(-1, *[1] * (rank - 2))


def over_channels(y: Array) -> Array:
    """The sums of channels."""
    return y.sum((0, *range(2, y.ndim)))


def _columns(
    padded: Array, taps: tuple[int, ...], counts: tuple[int, ...], how: Geometry
) -> Iterator[tuple[slice, Array]]:
    """Yield the elements of each window, several images at a time: (images, groups, channels of a group * taps,
    windows).
    """
    batch, channels = padded.shape[:2]
    step = max(1, ROOM // (channels * prod(taps) * prod(counts)))
    for first in range(0, batch, step):
        images = slice(first, min(batch, first + step))
        columns = np.empty((images.stop - first, channels, prod(taps), *counts))
        for n, tap in enumerate(np.ndindex(taps)):
            columns[:, :, n] = padded[(images, slice(None), *_met(tap, counts, how))]
        yield images, columns.reshape(len(columns), how.groups, -1, prod(counts))


def _met(tap: tuple[int, ...], counts: tuple[int, ...], how: Geometry) -> list[slice]:
    """The element that a tap reads, for all windows."""
    return [
        slice(t * how.dilation, t * how.dilation + how.stride * (n - 1) + 1, how.stride)
        for t, n in zip(tap, counts, strict=True)
    ]
