"""Prefetch the loads of the next loop iteration.

In a loop that reduces rows, all threads meet at several barriers per iteration, and no loads are in flight meanwhile.
So each thread copies its elements of the next rows asynchronously to its own part of shared memory; since no other
thread reads them, no barrier is needed. Where shared memory does not suffice, they are prefetched to the L2 cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.tile_access import names_in
from ....ir.tile_rewrite import substitute
from .dot_helpers import COPIES, SHARED_MEMORY
from .functions import MEMORY
from .hardware import ASYNC_COPY_CAPABILITY, VECTOR_BYTES
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering

MIN_PREFETCH_THREADS = 512
"""Threads of a block from which on a multiprocessor holds too few blocks to hide latency."""
MAX_PREFETCH_BYTES = 160 * 1024
"""Bytes of shared memory for two iterations. Three are prefetched where a block is alone on its multiprocessor anyway:
with two, no copy is in flight between the arrival of an iteration's elements and the next request.
"""

RESERVED_BYTES = 8192
"""Bytes of shared memory left for reductions."""
MAX_SHARED_ITERATIONS = 4
"""A block is alone on its multiprocessor if this many iterations (two for each of two blocks) do not fit."""


class PrefetchedLoad(NamedTuple):
    """A prefetched load: variable, layout, and address as a function of the loop index."""

    name: str
    layout: RegisterLayout
    pointer: ir.Tile
    offset: int = -1
    """Offset of its pieces in the memory of an iteration; -1: none."""


class LoopPrefetch:
    """Writes the prefetches of a loop."""

    def __init__(self, low: CudaLowering, loop: ir.For, stop: str) -> None:
        self.low, self.loop, self.stop = low, loop, stop
        self.loads = _find_loads(low, loop)
        self.bytes, self.iterations = 0, 2
        """Bytes of the elements of an iteration, and the number of iterations in shared memory."""
        copies = int(low.architecture.strip("sm_af")) >= ASYNC_COPY_CAPABILITY and not low.products.dots
        if copies and all(_is_piece_aligned(low, w) for w in self.loads):
            placed = []
            for w in self.loads:
                placed.append(w._replace(offset=self.bytes))
                self.bytes += _vectors_per_thread(w.layout) * low.threads * VECTOR_BYTES
            available = low.max_shared_bytes - RESERVED_BYTES
            if 2 * self.bytes <= min(MAX_PREFETCH_BYTES, available):
                self.loads = placed
                alone = MAX_SHARED_ITERATIONS * self.bytes > low.max_shared_bytes
                self.iterations = 3 if alone and self.bytes <= available // 3 else 2
            else:
                self.bytes = 0

    def begin(self) -> None:
        """Prefetch the first iterations, before the loop."""
        if not self.bytes or not self.loads:
            return
        low = self.low
        low.products.texts |= dict.fromkeys([SHARED_MEMORY, COPIES])
        low.memory.held_bytes, low.memory.separate = max(low.memory.held_bytes, self.iterations * self.bytes), True
        self.buffer_index, self.iteration_address = low.names.fresh("turn_"), low.names.fresh("here_")
        low.out.add(f"int {self.buffer_index} = 0;")
        for n in range(self.iterations - 1):
            self._request(self._later(self.loop.start, n), str(n))

    def next(self) -> None:
        """Start an iteration: wait for its elements, and prefetch those of a later one."""
        if not self.loads:
            return
        low, place, last = self.low, "", self.iterations - 1
        if self.bytes:
            place = buffer = self.buffer_index
            low.out.add(f"wait_for_copies<{last - 1}>();")
            address = f"held + {buffer} * {self.bytes} + thread * {VECTOR_BYTES}"
            low.out.add(f"const unsigned char* const {self.iteration_address} = {address};")
            if last == 1:
                low.out.add(f"{buffer} ^= 1;")
            else:
                place = low.names.fresh("free_")
                low.out.add(f"const int {place} = {buffer} == 0 ? {last} : {buffer} - 1;")
                low.out.add(f"{buffer} = {buffer} == {last} ? 0 : {buffer} + 1;")
        self._request(self._later(ir.Name(self.loop.index), last), place)
        if self.bytes:
            low.prefetched |= {w.name: self._place(w) for w in self.loads}

    def _later(self, index: ir.Tile, iterations: int) -> ir.Tile:
        """Return the loop index some iterations later."""
        step = self.loop.step
        if iterations > 1:
            step = (
                ir.Literal(iterations * step.value)
                if isinstance(step, ir.Literal)
                else ir.Apply("mul", (step, ir.Literal(iterations)))
            )
        if iterations == 0 or index == ir.Literal(0):
            return step if iterations else index
        return ir.Apply("add", (index, step))

    def _request(self, index: ir.Tile, place: str) -> None:
        """Prefetch the elements of an iteration, if the loop reaches it."""
        low = self.low
        low.elements.add_position(index)
        at = low.elements.of(index, (), low.types.variables[self.loop.index].dtype)
        with low.out.block(f"if ({at.within(8)} < {self.stop})"):
            self._copy(index, place)
        if self.bytes:
            low.out.add("commit_copies();")

    def end(self) -> None:
        for w in self.loads:
            self.low.prefetched.pop(w.name, None)

    def _copy(self, index: ir.Tile, place: str) -> None:
        low = self.low
        for w in self.loads:
            pointer = substitute(w.pointer, {self.loop.index: index})
            low.elements.add_position(pointer)
            with low.over(w.layout, without={(w.layout.vector, 0)}):
                view, conditions = low.positions(w.layout)
                conditions = [*low.owners(w.layout), *conditions]
                guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                there = low.elements.of(pointer, view, low.types.of(pointer).dtype)
                if not self.bytes:
                    low.out.add(f"{guard}prefetch_l2({there});")
                    continue
                own = f"{place} * {self.bytes} + {w.offset} + {self._piece(w)} + thread * {VECTOR_BYTES}"
                low.out.add(f"{guard}copy_16(shared_address(held + {own}), {there});")

    def _piece(self, w: PrefetchedLoad) -> str:
        return self.low.flat(w.layout, self.low.threads * VECTOR_BYTES, {(w.layout.vector, 0)})

    def _place(self, w: PrefetchedLoad) -> str:
        """Return the shared-memory address of the current vector."""
        type = MEMORY[self.low.types.of(w.pointer).dtype.name]
        return f"reinterpret_cast<const {type}*>({self.iteration_address} + {w.offset} + {self._piece(w)})"


def _find_loads(low: CudaLowering, loop: ir.For) -> list[PrefetchedLoad]:
    """Return the loads of a loop that can be prefetched, if its iterations wait for reductions."""
    reduces = (s.value for s in loop.body if isinstance(s, ir.Assign) and isinstance(s.value, ir.Reduce))
    if low.threads < MIN_PREFETCH_THREADS or not any(low.types.of(reduce.x).shape for reduce in reduces):
        return []
    found = []
    for s in loop.body:
        if isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) and s.value.mask is None:
            pointer = low.affine.expanded(s.value.pointer)
            if _is_prefetchable(low, loop, pointer) and _is_vector(low, s.name, pointer):
                found.append(PrefetchedLoad(s.name, low.plan.of_name(s.name), pointer))
    return found


def _is_piece_aligned(low: CudaLowering, w: PrefetchedLoad) -> bool:
    """Return whether vectors are aligned pieces of 16 bytes."""
    bytes = low.types.of(w.pointer).dtype.bytes
    growth = low.affine.growth(w.pointer, w.layout.vector_axis, w.layout.width)
    return w.layout.width * bytes == VECTOR_BYTES and growth.alignment * bytes >= VECTOR_BYTES


def _vectors_per_thread(layout: RegisterLayout) -> int:
    """Return the number of vectors of a thread."""
    count = 1
    for axis, place in layout.registers():
        if (axis, place) != (layout.vector, 0):
            count *= layout.axes[axis][place].extent
    return count


def _is_prefetchable(low: CudaLowering, loop: ir.For, pointer: ir.Tile) -> bool:
    """Return whether an address depends only on the loop index and on values known before the loop."""
    names = names_in(pointer)
    known = set().union(*low.scopes)
    return loop.index in names and names <= known | {loop.index} and not low.hazards.may_read_stored(pointer)


def _is_vector(low: CudaLowering, name: str, pointer: ir.Tile) -> bool:
    layout = low.plan.of_name(name)
    return layout.vector >= 0 and low.affine.step(pointer, layout.vector_axis, layout.width) == 1
