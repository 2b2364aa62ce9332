"""What layers print, as the release of PyTorch that is here prints it."""

import re
from typing import Any


def as_in(torch: Any, layer: Any) -> str:
    """How a layer of ours prints, without what this PyTorch does not say yet: that norms have a bias."""
    if "bias=" in repr(torch.nn.LayerNorm(1)):
        return repr(layer)
    return re.sub(r"(\w*Norm\w*\(.*), bias=\w+", r"\1", repr(layer))
