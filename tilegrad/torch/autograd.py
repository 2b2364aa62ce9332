"""Implement `torch.autograd`: Function, gradients, `Variable`, the profiler."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .. import autograd
from ..tensor import Tensor
from .doors import missing


def Variable(data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
    """Return the tensor: PyTorch's former wrapper."""
    return data.requires_grad_() if requires_grad else data


def __getattr__(name: str) -> Any:
    if name == "profiler":
        return import_module(".profiler", __package__)
    if name == "function":
        return autograd.function
    try:
        return getattr(autograd, name)
    except AttributeError:
        raise missing("torch.autograd", name, [*autograd.__all__, "Variable", "profiler"]) from None
