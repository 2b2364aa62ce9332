"""Show the generated code of a kernel: source, assembly, and its resources on a GPU; works without a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import DeviceError, KernelError
from ..ir.tile import Kernel
from ..runtime.device import device

BACKENDS = f"{__package__.rpartition('.')[0]}.backend"
SOURCE_PRINTERS = {
    "llvm": ("cpu.launch", "launched_ir"),
    "cpu": ("cpu.launch", "launched_ir"),
    "cuda": ("cuda.build", "kernel_source"),
}
"""The function of each backend that prints the source it compiles."""
ASSEMBLERS = {
    "llvm": ("cpu.launch", "launched_ir"),
    "cpu": ("cpu.launch", "launched_assembly"),
    "x86": ("cpu.launch", "launched_assembly"),
    "arm": ("cpu.launch", "launched_assembly"),
    "ptx": ("cuda.forms", "kernel_ptx"),
    "sass": ("cuda.forms", "kernel_sass"),
}
"""The function of each backend that prints assembly, or the nearest text to it."""


def source(kernel: Kernel, fast: Kernel, kind: str) -> str:
    """Return the kernel as `tile` text, or as the source of a backend: `llvm`, `cuda`."""
    if kind == "tile":
        return str(kernel)
    if kind in SOURCE_PRINTERS:
        return str(_writer(*SOURCE_PRINTERS[kind])(fast))
    raise KernelError(f"a kernel's source is asked for as 'tile', 'llvm' or 'cuda', and not as {kind!r}")


def assembly(fast: Kernel, kind: str) -> str:
    """Return the assembly of a kernel: `llvm`, `x86` or `arm` (of this machine), `ptx`, `sass`, or a device's."""
    if kind in ASSEMBLERS:
        return str(_writer(*ASSEMBLERS[kind])(fast))
    try:
        return device(kind).assembly(fast)
    except DeviceError as error:
        raise KernelError(
            f"a kernel's code is asked for as 'llvm', 'x86', 'ptx' or 'sass', or by a device, and not as {kind!r}"
        ) from error


def gpu_resources(fast: Kernel) -> str:
    """Return registers, spills, shared memory and occupancy as reported for an H200, or why there are none."""
    try:
        return str(_writer("cuda.forms", "kernel_summary")(fast))
    except DeviceError as error:
        return str(error)


def _writer(module: str, function: str) -> Any:
    return getattr(import_module(f"{BACKENDS}.{module}"), function)
