"""Define dropout as modules."""

from __future__ import annotations

from typing import Any

from . import functional
from .functional.dropouts import checked_probability
from .wrapped import FunctionModule, layer


class _DropoutBase(FunctionModule):
    """The base of modules that drop elements with probability `p` while training."""

    shown = ("p", "inplace")

    def _set(self, **settings: Any) -> None:
        checked_probability(type(self).__name__, settings["p"])
        super()._set(**settings)


Dropout = layer("Dropout", functional.dropout, _DropoutBase)
Dropout1d = layer("Dropout1d", functional.dropout1d, _DropoutBase)
Dropout2d = layer("Dropout2d", functional.dropout2d, _DropoutBase)
Dropout3d = layer("Dropout3d", functional.dropout3d, _DropoutBase)
AlphaDropout = layer("AlphaDropout", functional.alpha_dropout, _DropoutBase)
FeatureAlphaDropout = layer("FeatureAlphaDropout", functional.feature_alpha_dropout, _DropoutBase)
