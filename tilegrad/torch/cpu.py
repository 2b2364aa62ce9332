"""Implement `torch.cpu` for scripts that run on any device."""

from __future__ import annotations

from typing import Any

from ..lazy.timing import finish
from .doors import missing


def is_available() -> bool:
    """Return true."""
    return True


def device_count() -> int:
    """Return 1: one device, with all its cores."""
    return 1


def current_device() -> str:
    """Return the name of the device."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Compute all recorded work, including results that were dropped."""
    finish()


def __getattr__(name: str) -> Any:
    raise missing("torch.cpu", name, globals())
