"""tilegrad: tensors, automatic differentiation, a graph compiler, and generated kernels, readable from top to bottom."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .evaluation import compute
from .functional import *  # noqa: F403
from .ir.dtype import DType as dtype
from .ir.dtype import (
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .ir.dtype import bool_ as bool
from .ir.dtype import float16 as half
from .ir.dtype import float32 as float
from .ir.dtype import float64 as double
from .ir.dtype import int16 as short
from .ir.dtype import int32 as int
from .ir.dtype import int64 as long
from .printing import set_printoptions
from .promotion import can_cast, get_default_dtype, promote_types, result_type, set_default_dtype
from .runtime.device import Device, device, devices
from .tensor import Tensor

if TYPE_CHECKING:
    from . import autograd, data, language, nn, optim
    from .control import cond, scan, while_loop
    from .jitted import jit
    from .transforms import checkpoint, grad, jvp, value_and_grad, vjp, vmap

__version__ = "0.1.0"

LATER = {
    "jit": "jitted",
    **dict.fromkeys(("cond", "scan", "while_loop"), "control"),
    **dict.fromkeys(("checkpoint", "grad", "hessian", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"), "transforms"),
}
"""What is imported when it is first used, and from where."""
ROOMS = ("autograd", "backend", "data", "language", "nn", "optim", "profile")
"""Packages that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in LATER:
        found = getattr(import_module(f"{__name__}.{LATER[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'tilegrad' has no attribute {name!r}")


def live_bytes() -> int:  # type: ignore[valid-type]
    """The memory that live tensors hold, on all devices that were used."""
    from .runtime.device import _devices

    return sum(d.statistics.live for d in _devices.values())  # type: ignore[name-defined]
