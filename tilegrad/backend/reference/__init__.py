"""Interpreters of graphs and kernels: slow, and the reference for all other backends."""

from __future__ import annotations

from ...runtime.device import Device
from .device import ReferenceDevice

__all__ = ["ReferenceDevice", "devices"]


def devices() -> list[Device]:
    return [ReferenceDevice()]
