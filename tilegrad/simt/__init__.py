"""CUDA-style thread kernels written in Python: simulated with race checks on the CPU, compiled for a GPU.

from tilegrad import simt from tilegrad.simt import blockDim, blockIdx, threadIdx

@simt.kernel
def add(x, y, out, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = x[i] + y[i]

add[tg.cdiv(n, 256), 256](x, y, out, n)
"""

from __future__ import annotations

from typing import Any

from ..ir.dtype import bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from ..ir.dtype import bool_ as bool_
from ..tiles.read.values import constexpr
from .builtin import (
    BUILTINS,
    blockDim,
    blockIdx,
    dynamic_shared,
    gridDim,
    local,
    shared,
    syncthreads,
    syncwarp,
    threadIdx,
)
from .counters import Counters
from .kernel import DeviceFunction, ThreadKernel, device, kernel
from .limits import GPUS, Gpu, Occupancy, gpu, occupancy

ALL_LANES = 0xFFFF_FFFF
warpSize = 32


def __getattr__(name: str) -> Any:
    if name in BUILTINS:
        return BUILTINS[name]
    raise AttributeError(f"module 'tilegrad.simt' has no attribute {name!r}")


__all__ = [
    "ALL_LANES", "GPUS", "Counters", "DeviceFunction", "Gpu", "Occupancy", "ThreadKernel", "bfloat16", "blockDim",
    "blockIdx", "constexpr", "device", "dynamic_shared", "float16", "float32", "float64", "gpu", "gridDim", "int8",
    "int16", "int32", "int64", "kernel", "local", "occupancy", "shared", "syncthreads", "syncwarp", "threadIdx",
    "uint8", "uint16", "uint32", "uint64", "warpSize",
]  # fmt: skip
__all__ += sorted(BUILTINS)


def __dir__() -> list[str]:
    return __all__
