"""`torch.cpu`: what scripts ask of it that run on any device."""

from __future__ import annotations

from typing import Any

from ..lazy.timing import finish
from .doors import missing


def is_available() -> bool:
    """There is one."""
    return True


def device_count() -> int:
    """It is one device, with all its cores."""
    return 1


def current_device() -> str:
    """Its name."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Computes all that was recorded, what was dropped included."""
    finish()


def __getattr__(name: str) -> Any:
    raise missing("torch.cpu", name, globals())
