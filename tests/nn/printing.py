"""Printed forms of layers in the installed release of PyTorch."""

import re
from typing import Any


def as_in(torch: Any, layer: Any) -> str:
    """Print a layer of ours as this PyTorch does, which does not yet mention the bias of norms."""
    if "bias=" in repr(torch.nn.LayerNorm(1)):
        return repr(layer)
    return re.sub(r"(\w*Norm\w*\(.*), bias=\w+", r"\1", repr(layer))
