"""Run generated CUDA C++ without a GPU, if there is a C++ compiler: the threads of a block are fibers of one thread.

Barriers, tensor copies and products of warps and warpgroups are implemented in `host/`. A fiber runs until it waits. In
`reversed` order the last thread runs first, and asynchronous work is done as late as possible: results change if a
barrier or a wait is missing.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.backend.cuda.ptx import translated
from tilegrad.backend.cuda.code.checked_indices import PLACE
from tilegrad.backend.cuda.code.functions import MEMORY
from tilegrad.backend.cuda.code.lower import KernelSource, lower
from tilegrad.backend.cuda.tensor_map import ALIGNED, BYTES, TensorMap
from tilegrad.ir.tile import Kernel
from tilegrad.runtime.index_faults import IndexFaults

HOST = Path(__file__).parent / "host"
FLAGS = ["-std=c++17", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fwrapv", "-shared", "-fPIC", f"-I{HOST}"]
MULTIPROCESSORS = 3
"""Multiprocessors that persistent blocks are launched for."""
ONE_AT_A_TIME = threading.Lock()


class Grid(ctypes.Structure):
    """Parameters of `run_grid`."""

    _fields_ = [(name, ctypes.c_int) for name in ("blocks", "threads", "shared", "reversed", "late")]


def has_compiler() -> bool:
    return shutil.which("g++") is not None


def made(text: str, *more: str) -> Path:
    """Return a compiled library of C++ sources, cached."""
    folder = Path(tempfile.gettempdir()) / "tilegrad-emulated"
    folder.mkdir(exist_ok=True)
    library = folder / f"{hashlib.sha256('|'.join([text, *more]).encode()).hexdigest()[:24]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            source, result = Path(aside, "made.cpp"), Path(aside, "made.so")
            source.write_text(text)
            done = subprocess.run(
                ["g++", *FLAGS, "-o", str(result), str(source), *more], capture_output=True, text=True
            )
            if done.returncode:
                raise AssertionError(done.stderr[:4000])
            result.rename(library)
    return library


def host() -> Path:
    """Return the library that kernels are linked with, cached by its source."""
    return made((HOST / "host.cpp").read_text() + f"// {(HOST / 'host.h').read_text()!r}", "-O3", "-march=native")


def on_host(source: KernelSource, kernel: Kernel, number: int) -> str:
    """Translate a kernel to host C++ in its own namespace, with a function that takes addresses of arguments."""
    text = translated(source.text)
    text = text.replace("extern __shared__ __align__(1024) unsigned char shared[];", "").replace('extern "C" ', "")
    taken = [f"{MEMORY[p.dtype.name]}{'*' if p.pointer else ''}" for p in kernel.parameters]
    taken += ["int"] * 3 + ["int64*"] * checks_indices(source) + ["TensorMap"] * len(source.maps)
    arguments = ", ".join([f"*({type}*)a[{n}]" for n, type in enumerate(taken)])
    return f"""
namespace k{number} {{
{text}
static void call(void** a) {{ {source.name}({arguments}); }}
}}
extern "C" void run_{number}(void** a) {{ k{number}::call(a); }}
"""


def checks_indices(source: KernelSource) -> bool:
    return f"int64* {PLACE}" in source.text


def encoded(map: TensorMap, address: int, begin: int, end: int) -> bytes:
    """Encode a tensor map for `host.cpp`; memory is valid from `begin` to `end`."""
    kind, rank, _, extents, pitches, box, steps, interleaved, swizzle, _, fill = map.arguments(address)
    assert (list(steps), interleaved, swizzle, fill) == ([1, 1, 1], 0, 3, 0)
    words = [address, kind, rank, *extents, *pitches, *box[:2], swizzle, begin, end]
    return np.array([*words, *[0] * (BYTES // 8 - len(words))], np.uint64).tobytes()


class Emulated:
    """Kernels compiled together."""

    def __init__(self, kernels: Sequence[Kernel], architecture: str = "sm_70") -> None:
        self.kernels = list(kernels)
        self.index_faults = IndexFaults()
        self.sources = [lower(k, architecture) for k in kernels]
        library = str(host())
        self.host = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self.host.problem.restype = ctypes.c_char_p
        text = '#include "host.h"\n' + "".join(map(on_host, self.sources, self.kernels, range(len(kernels))))
        self.code = ctypes.CDLL(str(made(text, "-O1", library)))

    def run(self, number: int, arguments: Sequence[Any], grid: Sequence[int], reversed: bool = False) -> None:
        """Run a kernel; stores go to the arrays among the arguments."""
        kernel, source = self.kernels[number], self.sources[number]
        cells: list[Any] = []
        for p, a in zip(kernel.parameters, arguments, strict=True):
            if p.pointer:
                cells.append(ctypes.c_void_p(a.__array_interface__["data"][0]))
            else:
                array = np.array(a).astype(p.dtype.numpy)
                cells.append((ctypes.c_char * array.itemsize).from_buffer_copy(array.tobytes()))
        extents = (*grid, 1, 1)[:3]
        cells += [ctypes.c_int(extent) for extent in extents]
        cells += [ctypes.c_void_p(self.index_faults.address)] if checks_indices(source) else []
        places = [ctypes.addressof(cell) for cell in cells]
        maps = ctypes.create_string_buffer(BYTES * len(source.maps) + ALIGNED)
        first = -(-ctypes.addressof(maps) // ALIGNED) * ALIGNED
        for n, map in enumerate(source.maps):
            address, bytes = arguments[map.parameter].__array_interface__["data"][0], arguments[map.parameter].nbytes
            ctypes.memmove(first + BYTES * n, encoded(map, address, address, address + bytes), BYTES)
            places.append(first + BYTES * n)
        self.start(number, places, int(np.prod(extents)), reversed)

    def start(self, number: int, places: Sequence[int], instances: int, reversed: bool = False) -> None:
        """Run a grid with the addresses of arguments."""
        source = self.sources[number]
        blocks = min(instances, source.resident * MULTIPROCESSORS) if source.resident else instances
        grid = Grid(blocks, source.threads, source.shared, int(reversed), int(reversed))
        kernel = getattr(self.code, f"run_{number}")
        with ONE_AT_A_TIME:
            if self.host.run_grid(ctypes.byref(grid), kernel, (ctypes.c_void_p * len(places))(*places)):
                raise AssertionError(f"{source.name}: {self.host.problem().decode()}")
