"""The CUDA backend for NVIDIA GPUs. Nothing is loaded before a GPU is asked for."""

from __future__ import annotations

from functools import cache

from ...config import settings
from ...errors import ArgumentError, DeviceError
from ...runtime.device import Device

CHOICES = ("", "off", "null", "synchronous", "checked")


def devices() -> list[Device]:
    """Return the GPUs of this machine; with TILEGRAD_CUDA=null, a simulated one that runs nothing."""
    return list(_found()[0])


def absence() -> str:
    """Return why there is no GPU, in one line; empty if there is one."""
    return _found()[1]


@cache
def _found() -> tuple[tuple[Device, ...], str]:
    from .device import CudaDevice

    choice = settings().cuda
    match choice:
        case "off":
            return (), "TILEGRAD_CUDA=off is set"
        case "null":
            from .null import NullDriver

            return (CudaDevice(NullDriver(), 0),), ""
        case _ if choice not in CHOICES:
            raise ArgumentError(f"TILEGRAD_CUDA={choice!r}: one of {', '.join(CHOICES[1:])} is wanted, or nothing")
    from .native import NativeDriver

    try:
        driver = NativeDriver()
        return tuple([CudaDevice(driver, n) for n in range(driver.device_count())]), ""
    except DeviceError as missing:
        return (), missing.args[0]
