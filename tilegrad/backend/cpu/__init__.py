"""The CPU backend; LLVM is imported when the first program is loaded."""

from __future__ import annotations

from ...runtime.device import Device
from .device import CpuDevice


def devices() -> list[Device]:
    return [CpuDevice()]
