"""Define dropout as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..tensor import Tensor
from . import functional
from .functional import dropouts
from .module import Module


class _Dropout(Module):
    """The base of modules that drop elements with probability `p` while training."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = dropouts.checked_probability(type(self).__name__, p)
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Set elements to 0 with probability `p` while training, and scale the others by 1 / (1 - p)."""

    function = staticmethod(functional.dropout)


class Dropout1d(_Dropout):
    """Drop whole channels of (N, C, L) or (C, L)."""

    function = staticmethod(functional.dropout1d)


class Dropout2d(_Dropout):
    """Drop whole channels of (N, C, H, W)."""

    function = staticmethod(functional.dropout2d)


class Dropout3d(_Dropout):
    """Drop whole channels of (N, C, D, H, W) or (C, D, H, W)."""

    function = staticmethod(functional.dropout3d)


class AlphaDropout(_Dropout):
    """Set elements to SELU's lowest value while training, which keeps mean 0 and variance 1."""

    function = staticmethod(functional.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Apply `AlphaDropout` to whole channels."""

    function = staticmethod(functional.feature_alpha_dropout)
