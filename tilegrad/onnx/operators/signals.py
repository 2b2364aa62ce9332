"""Fourier transforms, as products with tables of sines and cosines; the last axis holds real and imaginary parts."""

from __future__ import annotations

from math import log, pi

import numpy as np

from ... import functional as tg
from ...ir.dtype import float64, int64
from ...tensor import Tensor
from ..rules import Function
from ..tensors import element_type
from ..values import Number, as_tensor

AXIS_IS_INPUT = 20
"""The version of the operators from which on the transformed axis is the last but one by default."""


def _table(rows: int, columns: int, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the angles of a transform of `count` elements."""
    n, k = (tg.arange(size, device=like.device).to(int64) for size in (rows, columns))
    angle = ((n.reshape(-1, 1) * k) % count).to(float64) * (2 * pi / count)
    return tg.cos(angle).to(like.dtype), tg.sin(angle).to(like.dtype)


def _fitted(x: Tensor, axis: int, count: int) -> Tensor:
    """Cut an axis, or fill it up with zeros."""
    have = int(x.shape[axis])
    if have >= count:
        return tg.narrow(x, axis, 0, count)
    shape = [count - have if n == axis else size for n, size in enumerate(x.shape)]
    return tg.cat([x, tg.zeros(*shape, dtype=x.dtype, device=x.device)], axis)


def dft(
    x: Tensor,
    dft_length: Number | None = None,
    axis: Number | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
    version: int = 20,
) -> Tensor:
    """Transform an axis; one-sided results leave out what follows from symmetry."""
    if axis is None:
        axis = -2 if version >= AXIS_IS_INPUT else 1
    place = int(axis) % x.dim()
    have = int(x.shape[place])
    halved = bool(onesided and inverse)
    count = int(dft_length) if dft_length is not None else 2 * (have - 1) if halved else have
    given = _fitted(x, place, count // 2 + 1 if halved else count)
    real = given[..., 0].moveaxis(place, -1)
    imaginary = given[..., 1].moveaxis(place, -1) if x.shape[-1] == 2 else None
    if halved:
        return _real_inverse(real, imaginary, count).moveaxis(-1, place).unsqueeze(-1)
    cos, sin = _table(count, count // 2 + 1 if onesided else count, count, x)
    made = _complex_product(real, imaginary, cos, -sin if inverse else sin)
    y = tg.stack([part.moveaxis(-1, place) for part in made], -1)
    return y / count if inverse else y


def _complex_product(real: Tensor, imaginary: Tensor | None, cos: Tensor, sin: Tensor) -> list[Tensor]:
    """Multiply complex rows by the table of a transform."""
    made = [tg.matmul(real, cos), -tg.matmul(real, sin)]
    if imaginary is None:
        return made
    return [made[0] + tg.matmul(imaginary, sin), made[1] + tg.matmul(imaginary, cos)]


def _real_inverse(real: Tensor, imaginary: Tensor | None, count: int) -> Tensor:
    """Invert a one-sided transform of real elements."""
    half = int(real.shape[-1])
    cos, sin = _table(half, count, count, real)
    weights = np.full(half, 2.0)
    weights[0] = 1.0
    weights[count // 2 :] = 1.0 if count % 2 == 0 else 2.0
    scale = as_tensor(weights.astype(real.dtype.numpy), real.device) / count
    y = tg.matmul(real * scale, cos)
    return y if imaginary is None else y - tg.matmul(imaginary * scale, sin)


def stft(
    signal: Tensor,
    frame_step: Number,
    window: Tensor | None = None,
    frame_length: Number | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Transform overlapping frames of a signal, weighted by a window."""
    size = int(frame_length) if frame_length is not None else int(window.shape[0]) if window is not None else 0
    frames = signal.unfold(1, size, int(frame_step)).transpose(2, 3)
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    return dft(frames, axis=2, onesided=onesided)


def mel_weight_matrix(
    num_mel_bins: Number,
    dft_length: Number,
    sample_rate: Number,
    lower_edge_hertz: Number,
    upper_edge_hertz: Number,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """Return the triangles by which a spectrum is summed into bands that are equal for the ear."""
    bins, length = int(num_mel_bins), int(dft_length)
    low, high = (2595 * np.log1p(edge / 700) / log(10) for edge in (lower_edge_hertz, upper_edge_hertz))
    mels = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    corners = (((length + 1) * (700 * np.expm1(mels / 2595 * log(10)))) // sample_rate).astype(int)
    table = np.zeros((length // 2 + 1, bins))
    for n, (left, middle, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        rise = np.arange(left, middle + 1)
        table[rise, n] = (rise - left) / (middle - left) if middle > left else 1.0
        if right > middle:
            fall = np.arange(middle, right)
            table[fall, n] = (right - fall) / (right - middle)
    held = element_type(output_datatype).held
    return as_tensor(table.astype(np.float32)).to(held)


RULES: dict[str, Function] = {"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft}
