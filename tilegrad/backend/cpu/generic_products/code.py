"""Compile and link the code of the generic products of a dtype, once per machine and process."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ....ir.dtype import DType, float32, float64, int32, int64
from ....runtime import events
from ....runtime.cache import key, shared, sources
from .. import native, objects
from ..partition import InstanceRange, NativeCall, ParallelSegment
from ..target import Target, target
from ..task_table import ArgumentPatch, TaskTable
from .blocking import cached_rows
from .description import BlockShape, block_shape
from .element_format import ElementFormat

ENTRIES = ("prepare", "multiply", "finish", "alone")
DATA = 5
"""Data of a run: the description, the operands, the result and memory."""


def accumulated_dtype(dtype: DType) -> DType:
    """Return the type in which elements are multiplied and summed; integers wrap around in any wider one."""
    if dtype.is_float:
        return float64 if dtype is float64 else float32
    return int64 if dtype.bits == 64 else int32


class MethodCode(NamedTuple):
    """The linked code of a method, and the programs that run it: on all threads, or on that of the caller."""

    linked: objects.LinkedCode
    together: TaskTable
    alone: TaskTable


class ProductCode(NamedTuple):
    """Generate the code of a dtype for a processor; each method is compiled when it is first needed."""

    format: ElementFormat
    shape: BlockShape
    cached_rows: int
    threads: int
    host: objects.HostProcessor

    def method(self, method: int) -> MethodCode:
        return method_code(self.format.dtype, self.format.target, self.host, method)


@cache
def product_code(dtype: DType) -> ProductCode:
    """Return the code of a dtype for this machine."""
    return product_code_for(dtype, target(), objects.host())


def product_code_for(dtype: DType, machine: Target, host: objects.HostProcessor) -> ProductCode:
    """Return the code of a dtype for a processor."""
    format = ElementFormat(dtype, accumulated_dtype(dtype), machine)
    shape = block_shape(machine, format)
    return ProductCode(format, shape, cached_rows(shape, format, machine), native.team().threads, host)


@cache
def method_code(dtype: DType, machine: Target, host: objects.HostProcessor, method: int) -> MethodCode:
    """Compile and link a method for a processor, or read it from the disk cache and link it."""
    linked, threads = objects.link([_object(dtype, machine, host, method)], ENTRIES), native.team().threads
    return MethodCode(linked, _table(linked, ENTRIES[:3], threads), _table(linked, ENTRIES[3:], 1))


def _object(dtype: DType, machine: Target, host: objects.HostProcessor, method: int) -> bytes:
    """Return the object file of a method; one in the disk cache is found without generating IR."""
    store, code = shared("objects"), sources("backend/cpu", "ir", "runtime/target_model.py")
    name = key("products", code, *host, *machine, objects.version(), dtype.name, method)
    found = store.read(name)
    if found is None:
        with events.timed("compile", f"products of {dtype}", "cpu"):
            from .generate import product_ir  # loads the emitters of kernels

            format = ElementFormat(dtype, accumulated_dtype(dtype), machine)
            found = objects.compile_object(f"products of {dtype}", product_ir(format, method), host)
        store.write(name, found)
    return found


def _table(linked: objects.LinkedCode, entries: tuple[str, ...], threads: int) -> TaskTable:
    """Build a program that runs functions one after the other, each by an instance per thread."""
    calls = [NativeCall(name, linked.addresses[name], (0,) * DATA, threads, 0.0) for name in entries]
    segments = [
        ParallelSegment(call.name, [[[InstanceRange(n, thread, thread + 1)]] for thread in range(threads)])
        for n, call in enumerate(calls)
    ]
    patches = [ArgumentPatch(datum, n, datum) for n in range(len(calls)) for datum in range(DATA)]
    return TaskTable(native.team(), calls, segments, patches, DATA, long=threads > 1)
