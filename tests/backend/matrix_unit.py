"""Emulate AMX on processors without it: its instructions as Python functions on eight tiles; and `vdpbf16ps` as a
function in LLVM IR.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilegrad.backend.cpu import ir_modules, objects
from tilegrad.backend.cpu.code.bf16_dot import INSTRUCTION
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.objects import HostProcessor
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.program import Launch, Program
from tilegrad.ir.tile import Kernel

TARGET = Target("x86", 64, 32, 49152, 2 << 20, matrix_unit=True)
FEATURES = "avx512f avx512bw avx512cd avx512dq avx512vl avx512bf16 amx-tile amx-bf16 amx-int8"
LEAST = np.float32(2.0**-126)
PAIRED = TARGET._replace(matrix_unit=False, pairs=True)
FABS = "declare <16 x float> @llvm.fabs.v16f32(<16 x float>)"
FMA = "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)"
DEFINED = """
define internal <16 x float> @flushed(<16 x float> %x) {
  %size = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x)
  %small = fcmp olt <16 x float> %size, splat (float 0x3810000000000000)
  %made = select <16 x i1> %small, <16 x float> zeroinitializer, <16 x float> %x
  ret <16 x float> %made
}
define internal <16 x float> @part(<32 x bfloat> %pairs, i32 %up) {
  %words = bitcast <32 x bfloat> %pairs to <16 x i32>
  %one = insertelement <16 x i32> poison, i32 %up, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %moved = shl <16 x i32> %words, %all
  %bits = and <16 x i32> %moved, splat (i32 -65536)
  %x = bitcast <16 x i32> %bits to <16 x float>
  %made = call <16 x float> @flushed(<16 x float> %x)
  ret <16 x float> %made
}
define internal <16 x float> @multiplied_pairs(<16 x float> %sum, <32 x bfloat> %x, <32 x bfloat> %y) {
  %odd.x = call <16 x float> @part(<32 x bfloat> %x, i32 0)
  %odd.y = call <16 x float> @part(<32 x bfloat> %y, i32 0)
  %even.x = call <16 x float> @part(<32 x bfloat> %x, i32 16)
  %even.y = call <16 x float> @part(<32 x bfloat> %y, i32 16)
  %one = call <16 x float> @llvm.fma.v16f32(<16 x float> %odd.x, <16 x float> %odd.y, <16 x float> %sum)
  %two = call <16 x float> @llvm.fma.v16f32(<16 x float> %even.x, <16 x float> %even.y, <16 x float> %one)
  %made = call <16 x float> @flushed(<16 x float> %two)
  ret <16 x float> %made
}
"""
"""Definition of `vdpbf16ps`, which flushes denormal numbers to 0."""


def host() -> HostProcessor:
    """A processor that has the unit."""
    here = objects.host()
    return HostProcessor(here.triple, "x86-64-v4", here.features + "".join(f",+{name}" for name in FEATURES.split()))


def assembly(launch: Launch, target: Target = TARGET) -> str:
    """Compile a kernel for that processor and return its assembly."""
    return ir_modules.assembly(launch.kernel.name, lower(launch.kernel, target), host())


class Unit:
    """Eight tiles of 16 x 16 words, and the number of products of the last run."""

    def __init__(self) -> None:
        self.tiles = np.zeros((8, 16, 16), np.uint32)
        self.products = 0
        self.configured = False
        self.codes: dict[str, objects.LinkedCode] = {}
        numbers = {
            "ldtilecfg": (self._configure, (ctypes.c_int64,)),
            "tilerelease": (self._release, ()),
            "tilezero": (self._zero, (ctypes.c_int8,)),
            "tileloadd64": (self._load, (ctypes.c_int8, ctypes.c_int64, ctypes.c_int64)),
            "tileloaddt164": (self._load, (ctypes.c_int8, ctypes.c_int64, ctypes.c_int64)),
            "tilestored64": (self._store, (ctypes.c_int8, ctypes.c_int64, ctypes.c_int64)),
            "tdpbf16ps": (self._multiply, (ctypes.c_int8,) * 3),
            "tdpbssd": (partial(self._multiply_integers, np.int8), (ctypes.c_int8,) * 3),
            "tdpbuud": (partial(self._multiply_integers, np.uint8), (ctypes.c_int8,) * 3),
        }
        self.functions = {
            f"unit_{name}": ctypes.CFUNCTYPE(None, *types)(function) for name, (function, types) in numbers.items()
        }

    def run(self, launch: Launch, arrays: Sequence[np.ndarray]) -> None:
        """Run all instances of a launch on arrays in memory."""
        self.products = 0
        grid = [*(tiles.count({}) for tiles in launch.grid), 1, 1, 1][:3]
        arguments = (ctypes.c_int64 * (len(arrays) + 3))(*(a.ctypes.data for a in arrays), *grid)
        self._compiled(launch.kernel)(ctypes.addressof(arguments), 0, int(np.prod(grid)))
        assert not self.configured, "the unit was not released"

    def run_program(self, program: Program, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Run the launches of a program of fixed sizes; return its first output."""
        memory = {b.name: _aligned([int(str(n)) for n in b.type.shape], b.type.dtype.numpy) for b in program.buffers}
        memory |= dict(zip(program.inputs, arrays, strict=True))
        products = 0
        for step in program.steps:
            if isinstance(step, Launch):
                self.run(step, [memory[str(name)] for name in step.arguments])
                products += self.products
        self.products = products
        return memory[program.outputs[0]]

    def _compiled(self, kernel: Kernel) -> Callable[..., Any]:
        form = kernel.form()
        if form not in self.codes:
            text = lower(kernel, TARGET).replace("llvm.x86.", "unit_")
            symbols = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in self.functions.items()}
            self.codes[form] = _linked(kernel, text, symbols)
        return _callable(self.codes[form], kernel)

    def _configure(self, address: int) -> None:
        data = ctypes.string_at(address, 64)
        assert (data[0], data[16:32], data[48:56]) == (1, b"\x40\0" * 8, b"\x10" * 8)
        self.configured = True

    def _release(self) -> None:
        self.configured = False

    def _zero(self, tile: int) -> None:
        self.tiles[tile] = 0

    def _load(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            self.tiles[tile, row] = _line(address + row * stride)

    def _store(self, tile: int, address: int, stride: int) -> None:
        for row in range(16):
            _line(address + row * stride)[:] = self.tiles[tile, row]

    def _multiply(self, c: int, a: int, b: int) -> None:
        """Odd and even numbers are accumulated separately; denormal numbers are 0."""
        assert self.configured
        self.products += 1
        with np.errstate(all="ignore"):
            sums = _flushed(self.tiles[c].view(np.float32))
            even, odd = (_halves(self.tiles[a], n) @ _halves(self.tiles[b], n) for n in (0, 1))
            self.tiles[c] = _flushed(sums + _flushed(_flushed(even) + _flushed(odd))).view(np.uint32)

    def _multiply_integers(self, dtype: type, c: int, a: int, b: int) -> None:
        assert self.configured
        self.products += 1
        x, y = (self.tiles[n].view(dtype).reshape(16, 16, 4).astype(np.int32) for n in (a, b))
        self.tiles[c] += np.einsum("iwn,wjn->ij", x, y).view(np.uint32)


class Pairs(Unit):
    """Runs kernels with `vdpbf16ps`, emulated where the processor lacks it."""

    def _compiled(self, kernel: Kernel) -> Callable[..., Any]:
        form = kernel.form()
        if form not in self.codes:
            self.codes[form] = _linked(kernel, with_function(lower(kernel, PAIRED)), {})
        return _callable(self.codes[form], kernel)


def with_function(text: str) -> str:
    """Replace the instruction in a kernel by a function."""
    needed = [line for line in (FABS, FMA) if line not in text]
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and f"@{INSTRUCTION}(" in line)]
    return "\n".join([*lines, *needed, DEFINED]).replace(INSTRUCTION, "multiplied_pairs")


def _linked(kernel: Kernel, text: str, symbols: dict[str, int]) -> objects.LinkedCode:
    return objects.link([objects.compile_object(kernel.name, text, objects.host())], [kernel.name], symbols)


def _callable(code: objects.LinkedCode, kernel: Kernel) -> Callable[..., Any]:
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return signature(code.addresses[kernel.name])


def _aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Zeros aligned to 64 bytes, as the memory of programs is."""
    bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(bytes + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + bytes].view(dtype).reshape(shape)


def _line(address: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint32 * 16).from_address(address))


def _halves(words: np.ndarray, odd: int) -> np.ndarray:
    bits = words & np.uint32(0xFFFF0000) if odd else words << np.uint32(16)
    return _flushed(bits.view(np.float32))


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < LEAST, np.float32(0.0), x)
