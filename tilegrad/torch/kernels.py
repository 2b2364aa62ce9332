"""Launch CUDA kernels of extensions: compiled by NVRTC and run on the GPU, or simulated.

Where a GPU is simulated the threads run on the CPU; NVRTC still compiles each kernel, if it is installed, for the GPUs
in `CHECKED`, so that what does not compile is known without one.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any

from ..backend.cuda import nvrtc
from ..errors import CompileError, DeviceError, LaunchError
from ..ir.program import MAX_INSTANCES
from ..runtime import events
from ..runtime.cache import key, shared
from ..runtime.device import device
from . import host
from .simulated import SimulatedDevice

CHECKED = ("sm_80", "sm_90a")
MAX_THREADS, MAX_BLOCK = 1024, (1024, 1024, 64)
PRELUDE = """\
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long int64_t; typedef unsigned long uint64_t;
#define TILEGRAD_BOTH __device__
#define CUDA_KERNEL_LOOP(i, n) \\
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (long)blockDim.x * gridDim.x)
"""
_images: dict[str, bytes] = {}
_warned: list[bool] = []
_functions: dict[tuple[str, str], tuple[int, int]] = {}


def launched(launch: Any, current: host.Frame) -> bool:
    """Run a kernel; return whether C++ must run its threads itself, because the GPU is simulated."""
    name = kernel_name(launch.kernel.decode())
    where = f"{launch.file.decode()}:{launch.line}"
    grid, block = tuple(launch.grid), tuple(launch.block)
    refuse_configuration(name, where, grid, block, launch.shared)
    place = device("cuda")
    types = [type_name(t) for t in launch.parameters.decode().splitlines()]
    device_source = launch.source.decode()
    if isinstance(place, SimulatedDevice):
        check(device_source, name, types, where)
        place.launches += 1
        return True
    _on_gpu(place, launch, name, wrapped(device_source, name, types), grid, block, where)
    current.launched.add(place)
    return False


def refuse_configuration(name: str, where: str, grid: Any, block: Any, shared_bytes: int) -> None:
    """Raise for a launch configuration that no GPU allows."""
    at = f"kernel {name}, {where}"
    if min(*grid, *block) < 1:
        raise LaunchError(f"{at}: a grid of {grid} blocks of {block} threads: every extent is at least 1")
    if any(x > most for x, most in zip(block, MAX_BLOCK, strict=True)):
        raise LaunchError(f"{at}: blocks of {block} threads, and at most {MAX_BLOCK} are allowed along the axes")
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"{at}: {block} are {threads} threads a block, and at most {MAX_THREADS} are allowed")
    if any(x > most for x, most in zip(grid, MAX_INSTANCES, strict=True)):
        raise LaunchError(f"{at}: a grid of {grid} blocks, and at most {MAX_INSTANCES} are allowed along the axes")
    if shared_bytes > 232448:
        raise LaunchError(f"{at}: {shared_bytes} bytes of shared memory, and no GPU has more than 232448 for a block")


def kernel_name(pretty: str) -> str:
    """Return the name of a kernel with its template arguments, from the mangled name of the host compiler.

    >>> kernel_name("const char* tilegrad::kernel_name() [with auto Kernel = matmul<float>]")
    'matmul<float>'
    """
    found = re.search(r"Kernel = (.*)\]$", pretty)
    name = found[1] if found else pretty
    return name.replace("(anonymous namespace)::", "").replace("{anonymous}::", "").lstrip("&").strip("()")


def type_name(pretty: str) -> str:
    """Return the C++ type of an argument.

    >>> type_name("const char* tilegrad::type_name() [with T = const float*]")
    'const float*'
    """
    found = re.search(r"T = (.*)\]$", pretty)
    return (found[1] if found else pretty).replace("long int", "long")


def wrapped(source: str, name: str, types: list[str]) -> str:
    """Append an entry with a known name that calls the kernel, which instantiates templates."""
    parameters = ", ".join(f"{t} a{n}" for n, t in enumerate(types))
    given = ", ".join(f"a{n}" for n in range(len(types)))
    accessors = _accessors() if "Accessor" in source else ""
    body = source.replace("__global__", "__device__")
    body = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", body)
    return (
        f"{PRELUDE}{accessors}#line 1\n{body}\n"
        f'extern "C" __global__ void tilegrad_entry({parameters}) {{ {name}({given}); }}\n'
    )


def _accessors() -> str:
    from pathlib import Path

    text = (Path(__file__).parent / "include" / "tilegrad" / "accessor.h").read_text()
    return text.replace("#pragma once", "")


def check(source: str, name: str, types: list[str], where: str) -> None:
    """Compile a kernel for GPUs that are not present; return the compiler's error, if there is one."""
    text = wrapped(source, name, types)
    for architecture in CHECKED:
        image(text, architecture, name, where)


def check_all(parts: Any, name: str) -> None:
    """Compile the kernels of a file that are not templates for `CHECKED`; templates are checked when launched."""
    if not parts.kernels or not nvrtc.is_available():
        return
    accessors = _accessors() if "Accessor" in parts.device else ""
    text = f"{PRELUDE}{accessors}#line 1\n{parts.device}"
    for architecture in CHECKED:
        image(text, architecture, ", ".join(parts.kernels), name)


def image(text: str, architecture: str, name: str, where: str) -> bytes:
    """Return the machine code of a wrapped kernel, cached on disk; empty without NVRTC."""
    store = shared("kernels")
    identity = key("torch kernel", architecture, text)
    found = _images.get(identity) or store.read(identity)
    if found is not None:
        return _images.setdefault(identity, found)
    if not nvrtc.is_available():
        if not _warned:
            _warned.append(True)
            print(f"tilegrad: {nvrtc.MISSING}: kernels are simulated without being compiled for a GPU", file=sys.stderr)
        return b""
    with events.timed("compile", name, "cuda"):
        try:
            made = nvrtc.compile(text, architecture)
        except CompileError as refused:
            raise CompileError(f"kernel {name}, {where}: {refused.args[0]}") from None
    store.write(identity, made.image)
    return _images.setdefault(identity, made.image)


def _on_gpu(place: Any, launch: Any, name: str, text: str, grid: Any, block: Any, where: str) -> None:
    from ..backend.cuda.native import NativeDriver

    driver = place.driver
    if not isinstance(driver, NativeDriver):
        raise DeviceError(
            f"kernel {name}, {where}: {place.name} is none that runs kernels (TILEGRAD_CUDA=null is set?)"
        )
    with place.entered():
        identity = (place.name, text)
        if identity not in _functions:
            module = driver.load(image(text, place.properties.architecture, name, where))
            _functions[identity] = (module, driver.function(module, "tilegrad_entry"))
        function = _functions[identity][1]
        start = driver.library.cuLaunchKernel
        start.argtypes = (ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
        if launch.shared > 49152:
            driver.allow_shared(function, launch.shared)
        driver.call(
            "cuLaunchKernel", function, *grid, *block, launch.shared, place.queue.handle, launch.arguments, None
        )


host.launcher.append(launched)
