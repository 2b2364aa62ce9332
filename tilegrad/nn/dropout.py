"""Define dropout as modules."""

from __future__ import annotations

from typing import Any

from ..functions.declared import publish_classes
from . import functional
from .functional.dropouts import checked_probability
from .wrapped import FunctionModule


class _DropoutBase(FunctionModule):
    """The base of modules that drop elements with probability `p` while training."""

    shown = ("p", "inplace")

    def _set(self, **settings: Any) -> None:
        checked_probability(type(self).__name__, settings["p"])
        super()._set(**settings)


class Dropout(_DropoutBase, function=functional.dropout):
    """Set elements to 0 with probability `p` while training, and scale the others by 1 / (1 - p)."""


class Dropout1d(_DropoutBase, function=functional.dropout1d):
    """Drop whole channels of (N, C, L) or (C, L)."""


class Dropout2d(_DropoutBase, function=functional.dropout2d):
    """Drop whole channels of (N, C, H, W)."""


class Dropout3d(_DropoutBase, function=functional.dropout3d):
    """Drop whole channels of (N, C, D, H, W) or (C, D, H, W)."""


class AlphaDropout(_DropoutBase, function=functional.alpha_dropout):
    """Set elements to SELU's lowest value while training, which keeps mean 0 and variance 1."""


class FeatureAlphaDropout(_DropoutBase, function=functional.feature_alpha_dropout):
    """Apply `AlphaDropout` to whole channels."""


publish_classes(globals())
