"""Define dropout as functions."""

from __future__ import annotations

from math import sqrt

from ...errors import ArgumentError, ShapeError
from ...functions.creation import ones
from ...ir.dtype import bool_
from ...random import bernoulli
from ...random import dropout as random_dropout
from ...tensor import Tensor

LOWEST = -1.7580993408473766
"""Limit of SELU for very negative inputs."""


def checked_probability(name: str, p: float) -> float:
    if not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ArgumentError(f"{name}: p={p!r} is no probability: give a number from 0 to 1")
    return p


def _nothing(input: Tensor) -> Tensor:
    """Multiply the input by 0: NaN where it is infinite, as in PyTorch."""
    return input & False if input.dtype is bool_ else input * 0


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set elements to 0 with probability `p`, and scale the others by 1 / (1 - p)."""
    checked_probability("dropout", p)
    if not training or p == 0:
        return input
    kept = _nothing(input) if p == 1 else random_dropout(input, p)
    return input.copy_(kept) if inplace else kept


def _channels(name: str, input: Tensor, batched: bool) -> Tensor:
    """Return ones, one for each channel of each instance."""
    leading = 2 if batched else 1
    if input.dim() < leading:
        raise ShapeError(f"{name}: an input of the shape {tuple(input.shape)} has no axis for the channels")
    shape = (*input.shape[:leading], *(1,) * (input.dim() - leading))
    return ones(*shape, dtype=input.dtype, device=input.device)


def _whole(name: str, input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    checked_probability(name, p)
    if not training or p == 0:
        return input
    kept = _nothing(input) if p == 1 else input * random_dropout(_channels(name, input, batched), p)
    return input.copy_(kept) if inplace else kept


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, L) or (C, L)."""
    if input.dim() not in (2, 3):
        raise ShapeError(f"dropout1d: needs (N, C, L) or (C, L), but the shape is {tuple(input.shape)}")
    return _whole("dropout1d", input, p, training, inplace, input.dim() == 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, H, W); three axes are (N, C, L), as in PyTorch."""
    return _whole("dropout2d", input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _whole("dropout3d", input, p, training, inplace, input.dim() != 4)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Set elements to SELU's lowest value, keeping mean 0 and variance 1 (Klambauer et al., 2017)."""
    return _alpha("alpha_dropout", input, input.new_ones(*input.shape), p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Apply `alpha_dropout` to whole channels."""
    if not training or p in (0, 1):
        return _alpha("feature_alpha_dropout", input, input, p, training, inplace)
    places = _channels("feature_alpha_dropout", input, True)
    return _alpha("feature_alpha_dropout", input, places, p, training, inplace)


def _alpha(name: str, input: Tensor, places: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    checked_probability(name, p)
    if not training or p == 0:
        return input
    if p == 1:
        return input.zero_() if inplace else _nothing(input)
    scale = 1 / sqrt((LOWEST * LOWEST * p + 1) * (1 - p))
    kept = bernoulli(places, 1 - p)
    result = input * (kept * scale) + ((1 - kept) * (LOWEST * scale) - LOWEST * scale * p)
    return input.copy_(result) if inplace else result
