"""Implement `torch.accelerator`: the GPU, of any kind."""

from __future__ import annotations

from typing import Any

from .. import cuda
from ..lazy.timing import synchronize as _synchronize
from ..runtime.device import Device, device
from .doors import missing


def is_available() -> bool:
    """Test whether there is a GPU."""
    return cuda.is_available()


def device_count() -> int:
    """Count the GPUs."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """Return the GPU that "cuda" means; None if there is none."""
    return device("cuda") if cuda.is_available() else None


def synchronize(device: Any = None) -> None:
    """Wait until all recorded work is done, including results that were dropped."""
    _synchronize()


def __getattr__(name: str) -> Any:
    raise missing("torch.accelerator", name, globals())
