"""Find out what the processor has: vector registers, matrix unit, caches, name."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

from ...runtime.singletons import once
from . import native, objects


def vector_bits() -> int:
    """Width of the vector registers in bits."""
    features = objects.host().features.split(",")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 128
    return 512 if "+avx512f" in features else 256 if "+avx2" in features else 128


def has_fast_bf16_dot() -> bool:
    """Whether `vdpbf16ps` is twice as fast as float32 multiply-adds. On processors with AMX it is half as fast."""
    features = objects.host().features.split(",")
    return "+avx512bf16" in features and "+amx-bf16" not in features


@once
def amx_permitted() -> bool:
    """Ask the system for permission to use the matrix unit; the CPUID flag alone does not tell."""
    if "+amx-tile" not in objects.host().features.split(",") or not native.has_threads():
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return int(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data)) == 0


def cache_sizes() -> dict[str, int]:
    """Bytes of the caches of the first core: L1 (data), L2, L3, as far as the system tells."""
    sizes = {}
    for folder in [Path(f"/sys/devices/system/cpu/cpu0/cache/index{n}") for n in range(8)]:  # a core has fewer
        try:
            level, kind, size = ((folder / f).read_text().strip() for f in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            sizes[f"L{level}"] = int(size.rstrip("KM")) << (20 if size.endswith("M") else 10)
    return sizes


def model() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
