"""Differentiate user code: gradients, modes, user-written gradients, checks, and two teaching tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from . import numerical, symbolic
    from .checking import gradcheck, gradgradcheck
    from .engine import backward, grad
    from .function import Function, FunctionCtx, once_differentiable

LATER = {
    **dict.fromkeys(("backward", "grad"), "engine"),
    **dict.fromkeys(("Function", "FunctionCtx", "once_differentiable"), "function"),
    **dict.fromkeys(("gradcheck", "gradgradcheck"), "checking"),
}
"""Names that are imported on first use, with their modules."""


def __getattr__(name: str) -> Any:
    if name in LATER:
        found = globals()[name] = getattr(import_module(f"{__name__}.{LATER[name]}"), name)
        return found
    if name in ("numerical", "symbolic"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tilegrad.autograd' has no attribute {name!r}")


__all__ = [
    "Function",
    "FunctionCtx",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "numerical",
    "once_differentiable",
    "set_grad_enabled",
    "symbolic",
]


def __dir__() -> list[str]:
    return __all__
