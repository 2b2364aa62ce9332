"""The CPU backend. LLVM is loaded when the first program is."""

from __future__ import annotations

from ...runtime.device import Device
from .device import CpuDevice


def devices() -> list[Device]:
    return [CpuDevice()]
