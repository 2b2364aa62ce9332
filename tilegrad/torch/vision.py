"""Implement `torchvision`: data sets on local files and transforms of images."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .doors import missing

__version__ = "0.15.0+tilegrad"
"""Version of torchvision whose names are implemented."""
MODULES = {"datasets": ".datasets", "transforms": ".transforms", "models": "..nn.models", "utils": ".pictures"}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(MODULES[name], __package__)
    raise missing("torchvision", name, MODULES)
