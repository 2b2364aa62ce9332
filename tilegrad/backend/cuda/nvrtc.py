"""Compile CUDA C++ to cubins with NVRTC, through ctypes; needs no GPU, driver or toolkit.

The library comes from the wheel `nvidia-cuda-nvrtc`, or from any toolkit that the loader finds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import CompileError, DeviceError
from ...runtime.singletons import once

OPTIONS = (
    "--std=c++17",
    "--fmad=false",  # rounds like the CPU
    "-default-device",
    "--ptxas-options=-v",
    "--extra-device-vectorization",
    "--diag-suppress=177,550",  # unused variables
)
NO_CACHE_VERSION = (13, 0)
"""First version with a cache of its own, and an option against it."""
MISSING = (
    "NVIDIA's run-time compiler (libnvrtc) is not on this machine, and nothing can be compiled for CUDA without it: "
    "pip install tilegrad[cuda]"
)


class CompilerOutput(NamedTuple):
    """Machine code and the compiler's report: registers, spills, shared memory."""

    image: bytes
    log: str


def candidates() -> Iterator[str]:
    """Yield possible paths of the library: the wheel, the loader's path, toolkits."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*"), reverse=True):
            if ".alt" not in path.name:
                yield str(path)
    for major in (13, 12):
        yield f"libnvrtc.so.{major}"
    yield "libnvrtc.so"
    for root in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        if root:
            for folder in ("lib64", "targets/x86_64-linux/lib", "lib"):
                yield f"{root}/{folder}/libnvrtc.so"


@once
def library() -> ctypes.CDLL:
    """Return the library; raise DeviceError if there is none."""
    for path in candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise DeviceError(MISSING)


def is_available() -> bool:
    """Return whether a compiler is available."""
    try:
        library()
    except DeviceError:
        return False
    return True


@once
def version() -> tuple[int, int]:
    """Return the compiler's version; (13, 0) generates code for drivers from 580 on."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile(source: str, architecture: str, *options: str) -> CompilerOutput:
    """Compile a source to a cubin; raise CompileError with the compiler's messages."""
    nvrtc = library()
    program = ctypes.c_void_p()
    _checked(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        fresh = ["--no-cache"] if version() >= NO_CACHE_VERSION else []  # the compiler's cache returns no report
        chosen = [f"--gpu-architecture={architecture}", *OPTIONS, *fresh, *options]
        given = [option.encode() for option in chosen]
        failed = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = _text(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if failed:
            raise CompileError(f"NVRTC refused a kernel for {architecture}:\n{annotate_log(log, source)}")
        return CompilerOutput(_text(nvrtc, program, "CUBIN"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def ptx(source: str, architecture: str) -> str:
    """Compile a source to PTX."""
    nvrtc = library()
    program = ctypes.c_void_p()
    _checked(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        virtual = architecture.replace("sm_", "compute_")
        given = [f"--gpu-architecture={virtual}".encode(), *(o.encode() for o in OPTIONS if "ptxas" not in o)]
        _checked(nvrtc, nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given)))
        return _text(nvrtc, program, "PTX").rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def disassemble(image: bytes) -> str:
    """Disassemble a cubin, if there is a disassembler (the wheel `nvidia-cuda-nvdisasm`, or a toolkit)."""
    tools = [str(Path(path).parents[1] / "bin" / "nvdisasm") for path in candidates() if "/lib/" in path]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        for tool in [*tools, "nvdisasm", "/usr/local/cuda/bin/nvdisasm"]:
            try:
                made = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, timeout=60)
            except OSError:
                continue
            if made.returncode == 0:
                return made.stdout
    return ""


def annotate_log(log: str, source: str) -> str:
    """Add to a compiler log the source lines it refers to."""
    lines = source.split("\n")
    shown = []
    for message in log.split("\n"):
        shown.append(message)
        place = re.match(r"kernel\.cu\((\d+)\)", message)
        if place and int(place[1]) <= len(lines):
            shown.append(f"    {place[1]}: {lines[int(place[1]) - 1].strip()}")
    return "\n".join(shown)


def _text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _checked(nvrtc: ctypes.CDLL, result: int) -> None:
    if result:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC: {nvrtc.nvrtcGetErrorString(result).decode()}")
