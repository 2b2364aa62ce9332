"""Implement `torch.utils`: benchmark, data, cpp_extension, tensorboard."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .doors import missing

MODULES = {
    "benchmark": "..utils.benchmark", "data": ".loading", "cpp_extension": ".cpp_extension",
    "tensorboard": ".tensorboard",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(MODULES[name], __package__)
    raise missing("torch.utils", name, MODULES)
