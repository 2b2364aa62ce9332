"""Implement `torchvision.transforms` by `tilegrad.data.transforms`."""

from __future__ import annotations

from typing import Any

from ..data import transforms
from .doors import missing


def __getattr__(name: str) -> Any:
    try:
        return getattr(transforms, name)
    except AttributeError:
        raise missing("torchvision.transforms", name, transforms.__all__) from None
