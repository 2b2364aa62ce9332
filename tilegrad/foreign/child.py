"""Run a checked call in a child process on copies of its tensors between guard pages.

An access outside a tensor crashes the child only. Writes just outside a tensor, writes to inputs and unwritten results
are detected afterwards by fill patterns.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, ForeignError, OutOfMemoryError
from ..ir.graph import TensorType
from ..ops.broadcasting import shown
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from .abi import HostCallbacks, TensorLayout, known_extent

if TYPE_CHECKING:
    from .function import CppFunction, PreparedCppCall

GUARD_BYTES = 1 << 30
"""Bytes of inaccessible address space before and after each tensor; uses no memory."""
NO_RESERVE = 0x4000 if sys.platform == "linux" else 0x40
ALIGNMENT_BYTES = 64
"""Alignment of tensors in bytes."""
FILL_OUTSIDE_RESULT, FILL_OUTSIDE_INPUT, FILL_UNWRITTEN = 0xA5, 0x5A, 0xFB
"""Fill bytes around results, around inputs (different, as inputs may be copied), and of results before the call."""
EXIT_FAILED = 1


class GuardedMemory:
    """Memory between two guard regions."""

    def __init__(self, bytes: int, mark: int = FILL_OUTSIDE_RESULT) -> None:
        self.mark = mark
        page = mmap.PAGESIZE
        self.bytes = bytes
        room = -(-max(bytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        inner = -(-room // page) * page
        self.library = library = ctypes.CDLL(None)
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        self.length = inner + 2 * GUARD_BYTES
        shared = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NO_RESERVE
        self.start = library.mmap(None, self.length, 0, shared, -1, 0)
        begin = self.start + GUARD_BYTES
        if self.start == ctypes.c_void_p(-1).value or self._allow(begin, inner):
            raise OutOfMemoryError(f"there is no room for a guarded copy of {bytes:,} bytes")
        self.inner: np.ndarray = _bytes(begin, inner)
        self.first = inner - room
        self.address = begin + self.first
        self.inner[:] = mark

    def _allow(self, place: int, bytes: int) -> int:
        read_and_write = mmap.PROT_READ | mmap.PROT_WRITE
        return int(self.library.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(bytes), read_and_write))

    def __del__(self) -> None:
        if hasattr(self, "start"):
            self.library.munmap(ctypes.c_void_p(self.start), ctypes.c_size_t(self.length))

    @property
    def data(self) -> np.ndarray:
        return self.inner[self.first : self.first + self.bytes]

    def outside(self) -> tuple[int, int]:
        """Count the bytes written before and after the tensor."""
        before, behind = self.inner[: self.first], self.inner[self.first + self.bytes :]
        return int((before != self.mark).sum()), int((behind != self.mark).sum())


def run_checked(
    function: CppFunction, call: PreparedCppCall, buffers: Sequence[DeviceBuffer], addresses: Sequence[int]
) -> list[tuple[DeviceBuffer, TensorType]]:
    """Run a call in a child process and return its results; ForeignError if it crashed or wrote out of bounds."""
    if not hasattr(os, "fork"):
        raise ArgumentError(f"{function.name}: calls are checked by forking, which {sys.platform} does not have")
    spans = [_span_bytes(x) for x in call.inputs]
    inputs = [GuardedMemory(span, FILL_OUTSIDE_INPUT) for span in spans]
    originals = [_bytes(address, span) for address, span in zip(addresses, spans, strict=True)]
    for copy, original in zip(inputs, originals, strict=True):
        copy.data[:] = original
    outputs = [GuardedMemory(bytes) for bytes in call.bytes]
    for output in outputs:
        output.data[:] = FILL_UNWRITTEN
    given = [(x.address, b, s.type) for x, b, s in zip(inputs, buffers, call.inputs, strict=True)]
    status, answer = _in_a_child(function, call, given, [*inputs, *outputs])
    about = _described(function, call)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        reason = {
            "SIGSEGV": "it touched memory that is none of its tensors'",
            "SIGBUS": "it touched memory that is not there",
            "SIGFPE": "it divided an integer by zero",
            "SIGABRT": "it called abort(), or broke the memory of the heap",
            "SIGILL": "it ran an instruction that this machine does not have",
        }.get(name, "it ended its process")
        raise ForeignError(f"{function.name} crashed ({name}): {reason}. It was called with {about}")
    if answer is None:
        raise ForeignError(f"{function.name} ended its process with exit({os.WEXITSTATUS(status)}): {about}")
    message, file, line, made = answer
    if message is not None:
        raise function.failure(message, file, line)
    _inspect(function, call, inputs, originals, outputs)
    cpu = device("cpu")
    results = [(cpu.from_host(np.array(output.data)), type) for output, type in zip(outputs, call.outputs, strict=True)]
    return [*results, *((cpu.from_host(np.frombuffer(data, np.uint8)), type) for data, type in made)]


def _in_a_child(
    function: CppFunction,
    call: PreparedCppCall,
    given: Sequence[tuple[int, DeviceBuffer, TensorType]],
    memory: Sequence[GuardedMemory],
) -> tuple[int, Any]:
    """Run the call after a fork; return the exit status of the child and its output."""
    ctypes.CDLL(None).fflush(None)
    sys.stdout.flush()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: the child makes one call
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            faulthandler.disable()  # the parent tells about a crash
            answer = pickle.dumps(_call(call, given, memory))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
            ctypes.CDLL(None).fflush(None)
            os._exit(0)
        except BaseException:
            os._exit(EXIT_FAILED)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return status, pickle.loads(text) if text and os.WIFEXITED(status) else None


def _call(
    call: PreparedCppCall, given: Sequence[tuple[int, DeviceBuffer, TensorType]], memory: Sequence[GuardedMemory]
) -> Any:
    """Run the call in the child; serialise its error and the tensors it made."""
    cpu = device("cpu")
    record = call.record()
    base = record.address_of_tensors
    inputs = [(base + 40 * n, b, type) for n, (_, b, type) in enumerate(given)]
    with HostCallbacks(cpu, inputs) as host:
        record.call.host = host.number
        if record.run(call.entry, [m.address for m in memory]):
            message, file, line = record.error
            return (str(host.failure) if host.failure else message), file, line, []
        return None, "", 0, [(_bytes(b.address, known_extent(type.bytes)).tobytes(), type) for b, type in host.results]


def _inspect(
    function: CppFunction,
    call: PreparedCppCall,
    inputs: Sequence[GuardedMemory],
    originals: Sequence[np.ndarray],
    outputs: Sequence[GuardedMemory],
) -> None:
    name = function.name
    names = [p.name for p in function.signature.tensors]
    for parameter, copy, original in zip(names, inputs, originals, strict=True):
        _inside(name, parameter, copy)
        if not np.array_equal(copy.data, original):
            raise ForeignError(f"{name} wrote to its input `{parameter}`, which is only read: others may hold it")
    for result, output, type in zip(function.signature.results, outputs, call.outputs, strict=True):
        _inside(name, result.name, output)
        size = type.dtype.bytes
        if size == 1 or not output.bytes:
            continue  # the mark could be a result
        left = (output.data.reshape(-1, size) == FILL_UNWRITTEN).all(1)
        if left.any():
            first = np.unravel_index(int(left.argmax()), [known_extent(e) for e in type.shape])
            place = ", ".join(str(int(i)) for i in first)
            raise ForeignError(
                f"{name} left {int(left.sum())} of {left.size} elements of `{result.name}` unwritten, the first is "
                f"{result.name}[{place}] of shape {shown(type.shape)}"
            )


def _inside(name: str, parameter: str, memory: GuardedMemory) -> None:
    before, behind = memory.outside()
    if before or behind:
        where = f"{before} bytes before the beginning" if before else f"{behind} bytes behind the end"
        raise ForeignError(f"{name} wrote outside of `{parameter}`: {where} of its {memory.bytes} bytes")


def _described(function: CppFunction, call: PreparedCppCall) -> str:
    names = [p.name for p in function.signature.tensors]
    types = [x.type for x in call.inputs]
    described = [f"`{name}` {t.dtype.name} {shown(t.shape)}" for name, t in zip(names, types, strict=True)]
    described += [f"`{p.name}` = {n}" for p, n in zip(function.signature.scalars, call.match.numbers, strict=True)]
    return ", ".join(described) or "no arguments"


def _span_bytes(x: TensorLayout) -> int:
    """Bytes from the first element to the end of the last."""
    shape = [known_extent(e) for e in x.type.shape]
    if 0 in shape:
        return 0
    if x.strides is None:
        return known_extent(x.type.bytes)
    return (1 + sum((n - 1) * s for n, s in zip(shape, x.strides, strict=True))) * x.type.dtype.bytes


def _bytes(address: int, bytes: int) -> np.ndarray:
    if not bytes:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_uint8 * bytes).from_address(address)
    return np.frombuffer(memory, np.uint8)
