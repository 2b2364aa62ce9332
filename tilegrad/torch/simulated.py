"""Simulate a GPU: a device `cuda:0` whose memory and arithmetic are the CPU's.

So scripts that want a GPU run without one: tensors "on" it say so, operations on them are computed by the CPU backend,
and kernels of CUDA extensions run on the CPU, thread by thread. It says what it is, once, on the error stream.
"""

from __future__ import annotations

import sys

from ..backend.cpu.device import CpuDevice
from ..errors import DeviceError
from ..random import forget
from ..runtime import device as known
from ..runtime.device import Device

NOTICE = "tilegrad: cuda:0 is simulated: its tensors are in the CPU's memory, and its kernels run on the CPU, slowly"


class SimulatedDevice(CpuDevice):
    """The CPU under a GPU's name."""

    simulated = True

    def __init__(self) -> None:
        super().__init__()
        self.name = "cuda:0"
        self.launches = 0
        """Number of kernels of extensions that were run."""

    @property
    def machine(self) -> str:
        return f"a GPU simulated on {super().machine}"


def simulated() -> Device | None:
    """Return the simulated GPU of this process, or None."""
    found = known._devices.get("cuda:0")
    return found if isinstance(found, SimulatedDevice) else None


def simulate() -> Device:
    """Give this process a simulated GPU. A machine with a GPU does not need it."""
    found = simulated()
    if found is not None:
        return found
    from ..backend import cuda

    if cuda.devices():
        raise DeviceError("this machine has a GPU: nothing needs to be simulated (TILEGRAD_CUDA=off hides it)")
    print(NOTICE, file=sys.stderr)
    return known.register(SimulatedDevice())


def end() -> None:
    """Remove the simulated GPU; tensors on it stay usable."""
    if simulated() is not None:
        del known._devices["cuda:0"]
        forget("cuda:0")
