"""`torch.accelerator`: the GPU, whatever it is."""

from __future__ import annotations

from typing import Any

from .. import cuda
from ..lazy.timing import synchronize as _synchronize
from ..runtime.device import Device, device
from .doors import missing


def is_available() -> bool:
    """Whether there is a GPU."""
    return cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The GPU that "cuda" stands for; None if there is none."""
    return device("cuda") if cuda.is_available() else None


def synchronize(device: Any = None) -> None:
    """Waits until all is done that was recorded, what was dropped included."""
    _synchronize()


def __getattr__(name: str) -> Any:
    raise missing("torch.accelerator", name, globals())
