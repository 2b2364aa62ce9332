"""Stage results of products in shared memory, so that whole lines are stored to global memory.

A thread holds pairs of many rows; stored directly, they would fill half of each memory sector at a time. Where a row of
the tile is not a row of memory (padding is left out), adjacent threads store adjacent elements one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.dtype import bool_
from .elements import AxisPosition, View
from .functions import MEMORY, Text
from .hardware import VECTOR_BYTES
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering

MAX_STAGED_BYTES = 96 * 1024
"""Bytes of shared memory for staged results."""
SECTOR_BYTES = 32
"""Bytes of a memory sector."""


class StagedStore(NamedTuple):
    """A tile in shared memory that is to be stored: an array and its pitch."""

    name: str
    pitch: int
    along: int
    """Axis along which elements are stored one by one or in small vectors; -1: rows are stored in pieces of 16 bytes.
    """
    each: int = 1
    """Elements that are certainly contiguous in memory."""

    def at(self, view: View) -> str:
        return f"{self.name} + {view[0].at.within(10)} * {self.pitch} + {view[1].at}"


def stage_stores(low: CudaLowering, stores: Sequence[ir.Store], layout: RegisterLayout) -> dict[int, StagedStore]:
    """Allocate staging for stores by their identity: for accumulators, as far as shared memory suffices."""
    found: dict[int, tuple[ir.Store, int, int]] = {}
    available = max(MAX_STAGED_BYTES - (low.memory.held_bytes if low.memory.separate else 0), low.memory.large_bytes)
    offsets, used = {}, 0
    for store in stores:
        along = _store_axis(low, store, layout)
        if along is None:
            continue
        t = low.types.of(store.pointer)
        pitch = layout.shape[1] + VECTOR_BYTES // t.dtype.bytes
        bytes = -(-layout.shape[0] * pitch * t.dtype.bytes // VECTOR_BYTES) * VECTOR_BYTES
        if used + bytes <= available:
            found[id(store)] = (store, pitch, along)
            offsets[id(store)] = used
            used += bytes
    if not found:
        return {}
    place = low.take_shared(used)
    made = {}
    for key, (store, pitch, along) in found.items():
        name, type = low.names.fresh("staged"), MEMORY[low.types.of(store.pointer).dtype.name]
        at = f"{place} + {offsets[key]}" if offsets[key] else place
        low.out.add(f"{type}* {name} = reinterpret_cast<{type}*>({at});")
        made[key] = StagedStore(name, pitch, along, _vector_columns(low, store) if along == 1 else 1)
    return made


def _vector_columns(low: CudaLowering, store: ir.Store) -> int:
    """Return how many columns are stored as one vector."""
    t = low.types.of(store.pointer)
    for each in (VECTOR_BYTES // t.dtype.bytes >> n for n in range(4)):
        if each > 1 and t.shape[1] % each == 0:
            masked = store.mask is not None and low.affine.step(store.mask, -1, each) != 0
            if low.affine.is_vector(store.pointer, -1, each) and not masked:
                return each
    return 1


def _store_axis(low: CudaLowering, store: ir.Store, layout: RegisterLayout) -> int | None:
    """Return the axis to store along (`StagedStore.along`); None if the holders of the elements should store them."""
    bytes, analysis = low.types.of(store.pointer).dtype.bytes, low.products.analysis
    if len(layout.shape) != 2 or layout.width == 1 or layout.width * bytes >= VECTOR_BYTES:
        return None
    if not low.products.is_accumulator(layout) or not can_be_delayed(low, store):
        return None
    if low.products.persistent and layout.width * bytes == SECTOR_BYTES // 4:
        return None  # pairs of four lanes fill a memory sector anyway
    if stores_in_pieces(low, store, layout.shape[1], bytes):
        return -1
    down, across = analysis.step(store.pointer, -2), analysis.step(store.pointer, -1)
    return 0 if down == 1 else 1 if across in (1, None) else None


def can_be_delayed(low: CudaLowering, store: ir.Store) -> bool:
    """Return whether other threads may perform the store later."""
    target = low.products.analysis.parameter(store.pointer)
    if target is None or low.hazards.is_shared(target):
        return False  # all loads must precede the stores
    return low.is_positional(store.pointer) and (store.mask is None or low.is_positional(store.mask))


def stores_in_pieces(low: CudaLowering, store: ir.Store, columns: int, bytes: int) -> bool:
    """Return whether the whole tile can be stored in pieces of 16 bytes."""
    analysis = low.products.analysis
    line = analysis.step(store.pointer, -2)
    if analysis.step(store.pointer, -1) != 1 or line is None:
        return False
    if any(n * bytes % VECTOR_BYTES for n in (columns, line, analysis.divisor(store.pointer))):
        return False
    return (
        store.mask is None or low.affine.step(store.mask, -1, VECTOR_BYTES // bytes) == 0
    )  # a mask along columns would split pieces


def write_staged(low: CudaLowering, store: ir.Store, stage: StagedStore) -> None:
    """Store the staged tile, in pieces of 16 bytes or element by element; a barrier has preceded."""
    t = low.types.of(store.pointer)
    if stage.along >= 0:
        _write_elements(low, store, stage)
        return
    rows, columns = t.shape
    each = VECTOR_BYTES // t.dtype.bytes
    pack = f"Pack<{MEMORY[t.dtype.name]}, {each}>"
    with low.out.block(f"for (int n = thread; n < {rows * columns // each}; n += {low.threads})"):
        low.out.add(f"const int row = n / {columns // each}, column = n % {columns // each} * {each};")
        pointer = low.elements.of(store.pointer, _VIEW, t.dtype)
        low.out.add(
            f"{guard(low, store)}*reinterpret_cast<{pack}*>({pointer}) = "
            f"*reinterpret_cast<const {pack}*>({stage.name} + row * {stage.pitch} + column);"
        )


_VIEW = (AxisPosition(Text("row"), None), AxisPosition(Text("column"), None))


def guard(low: CudaLowering, store: ir.Store, view: View = _VIEW) -> str:
    """Return the condition of a masked store."""
    if store.mask is None:
        return ""
    return f"if ({low.elements.part(store.mask, view, low.types.of(store.pointer).shape, bool_)}) "


def _write_elements(low: CudaLowering, store: ir.Store, stage: StagedStore) -> None:
    """Let adjacent threads store adjacent elements; a thread that stays in its column computes it once."""
    shape, threads = low.types.of(store.pointer).shape, low.threads
    near, far = ("column", "row") if stage.along == 1 else ("row", "column")
    each, type = stage.each, MEMORY[low.types.of(store.pointer).dtype.name]
    length, others = shape[stage.along] // each, shape[1 - stage.along]
    to, place = low.elements.memory(store.pointer, _VIEW), f"{stage.name}[row * {stage.pitch} + column]"
    line = f"{guard(low, store)}{to} = {place};"
    if each > 1:
        pack = f"Pack<{type}, {each}>"
        line = f"{guard(low, store)}*reinterpret_cast<{pack}*>(&{to}) = *reinterpret_cast<{pack}*>(&{place});"
    times = f" * {each}" if each > 1 else ""
    if length % threads and threads % length:
        with low.out.block(f"for (int n = thread; n < {length * others}; n += {threads})"):
            low.out.add(f"const int {near} = n % {length}{times}, {far} = n / {length};")
            low.out.add(line)
        return
    head = f"int {near} = thread % {length}{times}; {near} < {length * each}; {near} += {threads * each}"
    with low.out.block(f"for ({head})"):
        low.out.add("#pragma unroll 4")
        start, step = f"thread / {length}", max(1, threads // length)
        with low.out.block(f"for (int {far} = {start}; {far} < {others}; {far} += {step})"):
            low.out.add(line)
