"""Print the PTX, SASS and resource usage of a kernel; needs no GPU."""

from __future__ import annotations

from ...errors import DeviceError
from ...ir.tile import Kernel
from .build import build_kernel
from .null import NullDriver
from .properties import properties
from .reports import clean_sass, summary


def kernel_ptx(kernel: Kernel, architecture: str = "sm_90a") -> str:
    """Return the PTX of a kernel."""
    return build_kernel(kernel, architecture).ptx


def kernel_sass(kernel: Kernel, architecture: str = "sm_90a") -> str:
    """Return the SASS of a kernel; raise DeviceError without a disassembler."""
    found = clean_sass(build_kernel(kernel, architecture).sass)
    if not found:
        raise DeviceError("there is no disassembler for NVIDIA's machine code here: pip install nvidia-cuda-nvdisasm")
    return found


def kernel_summary(kernel: Kernel) -> str:
    """Return registers, spills, shared memory and occupancy on an H200, as the compiler reports them; needs no GPU."""
    h200 = properties(NullDriver(), 0)
    return f"{h200.name}: {summary(build_kernel(kernel, h200.architecture), h200)}"
