"""User-defined operators: a signature, a reference, kernels, a gradient, and checks of all of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .operator import Operator, op
from .registry import operators

if TYPE_CHECKING:
    from . import checks
    from .examples import example
    from .kernels import which_kernel
    from .verifying import VerificationReport, opcheck

LATER = {"example": "examples", "opcheck": "verifying", "VerificationReport": "verifying", "which_kernel": "kernels"}
"""Names imported on first use, and their modules."""


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
    if name == "checks":
        return import_module(f"{__name__}.checks")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Operator", "VerificationReport", "checks", "example", "op", "opcheck", "operators", "which_kernel"]


def __dir__() -> list[str]:
    return __all__
