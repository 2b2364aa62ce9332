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
from .emit_blocks import (
    ROW_BLOCKS,
    block_function,
    blocks_function,
    dot_blocks,
    dots_function,
    row_masks,
    rows_function,
)
from .emit_packing import pack_function, packed_copies, packed_elements, packed_transposed, padding_function
from .emit_tables import offsets_function, runs_function
from .emit_tasks import (
    alone_function,
    dots_task,
    finish_function,
    multiply_function,
    packed_function,
    prepare_function,
    rows_task,
    store_function,
    tables_function,
    task_function,
)
from .function_builder import ElementFormat, FunctionBuilder

ENTRIES = ("prepare", "multiply", "finish", "alone")
DATA = 5
"""Data of a run: the description, the operands, the result and memory."""


def accumulated_dtype(dtype: DType) -> DType:
    """Return the type in which elements are multiplied and summed; integers wrap around in any wider one."""
    if dtype.is_float:
        return float64 if dtype is float64 else float32
    return int64 if dtype.bits == 64 else int32


class ProductCode(NamedTuple):
    """The linked code of a dtype, and the programs that run it: on all threads, or on that of the caller."""

    linked: objects.LinkedCode
    format: ElementFormat
    shape: BlockShape
    cached_rows: int
    threads: int
    together: TaskTable
    alone: TaskTable


def product_ir(dtype: DType, target: Target) -> str:
    """Generate the module of a dtype."""
    format = ElementFormat(dtype, accumulated_dtype(dtype), target)
    shape = block_shape(target, format)
    functions: list[FunctionBuilder] = [offsets_function(), runs_function()]
    functions += [pack_function(format), packed_copies(format), packed_transposed(format), packed_elements(format)]
    functions += [
        block_function(format, shape, rows, vectors)
        for rows in shape.row_variants
        for vectors in range(1, shape.vectors + 1)
    ]
    functions += [dots_function(format, shape, *block) for block in dot_blocks(shape)]
    functions += [rows_function(format, shape, *block, masked) for block in ROW_BLOCKS for masked in row_masks(format)]
    functions += [blocks_function(format, shape), padding_function(format), task_function(format, shape)]
    functions += [packed_function(format, shape), dots_task(format, shape), rows_task(format, shape)]
    functions += [tables_function(format, shape), store_function(format, shape)]
    entries = [prepare_function(format), multiply_function(format), finish_function(format), alone_function()]
    declared: dict[str, str] = {}
    for f in (*functions, *entries):
        declared |= f.declarations
    bits = target.vector_bytes * 8
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}'
    texts = [f.text() for f in functions] + [f.text("dso_local") for f in entries]
    return "\n".join([f"; products of {dtype}", *declared.values(), *texts, attributes, ""])


@cache
def product_code(dtype: DType) -> ProductCode:
    """Compile the code of a dtype for this machine, or read it from the disk cache, and link it."""
    return compiled_products(dtype, target(), objects.host())


def compiled_products(dtype: DType, machine: Target, host: objects.HostProcessor) -> ProductCode:
    """Compile and link the code of a dtype for a processor."""
    linked = objects.link([_object(dtype, machine, host)], ENTRIES)
    format = ElementFormat(dtype, accumulated_dtype(dtype), machine)
    shape, threads = block_shape(machine, format), native.team().threads
    together, alone = _table(linked, ENTRIES[:3], threads), _table(linked, ENTRIES[3:], 1)
    return ProductCode(linked, format, shape, cached_rows(shape, format, machine), threads, together, alone)


def _object(dtype: DType, machine: Target, host: objects.HostProcessor) -> bytes:
    """Return the object file of a dtype; one in the disk cache is found without generating IR."""
    store = shared("objects")
    name = key("products", sources("backend/cpu", "ir"), *host, *machine, objects.version(), dtype.name)
    found = store.read(name)
    if found is None:
        with events.timed("compile", f"products of {dtype}", "cpu"):
            found = objects.compile_object(f"products of {dtype}", product_ir(dtype, machine), host)
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
