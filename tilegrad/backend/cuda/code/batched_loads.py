"""Batch the loads of several loop iterations before the first result is stored.

The epilogue of a product loads tensors of the result's shape through masks, and stores through them. Done element by
element, each load would wait for the store before it, and memory latency would dominate. So the loop handles several
elements per iteration:

    for (int first = 0; first < 64; first += 16) {
        float x_[16][2];
        for (int n = 0; n < 16; ++n)        loads
        for (int n = 0; n < 16; ++n)        everything else, and stores

The loads have no branches: where a mask is false, they read the tensor's first element, and the value is replaced.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.tile_types import TileType
from . import functions
from .functions import Text
from .layout import RegisterLayout
from .writing import Lines, unrolling

if TYPE_CHECKING:
    from .fused_statements import FusedLoop
    from .lower import CudaLowering

MAX_BATCH_REGISTERS = 32
"""Registers of a thread that may hold batched loads."""
MIN_BATCH = 4
"""Smallest batch, in iterations, that is worth the second loop."""


def outermost_loop(low: CudaLowering, layout: RegisterLayout) -> tuple[str, int]:
    """Return the index and the trip count of the outermost loop over registers that is not the vector loop."""
    found = [r for r in layout.registers() if r != (layout.vector, 0)]
    if not found:
        return "", 1
    axis, place = found[-1] if low.products.is_accumulator(layout) else found[0]
    return low.variable(layout, axis, place), layout.axes[axis][place].extent


def batch_array(fused: FusedLoop) -> tuple[str, str]:
    """Return the extents of the array that holds a batch of loads, and the indices of the current vector in it."""
    low, layout = fused.low, fused.layout
    first, _ = outermost_loop(low, layout)
    extents = at = ""
    for axis, place in layout.registers():
        index, extent = low.variable(layout, axis, place), layout.axes[axis][place].extent
        extents += f"[{fused.batch if index == first else extent}]"
        if (axis, place) != (layout.vector, 0):
            at += "[n]" if index == first else f"[{index}]"
    return extents, at


def is_batchable(low: CudaLowering, load: ir.Load) -> bool:
    """Return whether a load depends on positions only and reads a known parameter."""
    known = low.products.analysis.parameter(load.pointer) is not None
    return known and all(low.is_positional(x) for x in (load.pointer, load.mask, load.other))


def iterations_per_batch(fused: FusedLoop) -> int:
    """Return how many iterations of the outermost loop share a batch of loads; 1 disables batching.

    Batching needs free registers, so it applies only where sums have moved from registers to shared memory.
    """
    low, layout = fused.low, fused.layout
    of_all = [m.value for m in fused.members if isinstance(m, ir.Assign)]
    loads = [x for x in of_all if isinstance(x, ir.Load) and is_batchable(low, x)]
    others = [x for x in of_all if isinstance(x, ir.Reduce | ir.Scan)]
    if others or not loads or not low.products.dots or fused.staged or fused.exchange_words:
        return 1
    if not any(isinstance(m, ir.Store) for m in fused.members):
        return 1
    _, iterations = outermost_loop(low, layout)
    inner = math.prod(layout.extents()) // iterations
    most = MAX_BATCH_REGISTERS // (inner * len(loads))
    found = max((n for n in range(1, min(iterations, max(1, most)) + 1) if iterations % n == 0), default=1)
    return found if found >= MIN_BATCH else 1


def load_elements(fused: FusedLoop, name: str, load: ir.Load, t: TileType, other: Text) -> None:
    """Load elements one at a time into the batch array."""
    low, elements, wide = fused.low, fused.elements, fused.layout.width > 1
    target = fused.target(name, True)
    condition, source = fused.condition(load.mask), low.products.analysis.parameter(load.pointer)
    memory = elements.memory(load.pointer, fused.element_view)
    if condition:
        assert source is not None
        memory = Text(f"*({condition} ? &{memory} : {low.names.of(source)})", functions.UNARY)
    head = f"for (int v = 0; v < {fused.layout.width}; ++v)"
    with fused.fetches.block(head, unrolled=True) if wide else nullcontext():
        fused.fetches.add(f"{target} = {functions.from_memory(memory, t.dtype)};")
        if condition:
            fused.fetches.add(f"if (!({condition})) {target} = {other};")


def load_vector(
    fused: FusedLoop, load: ir.Load, function: str, target: str, pointer: Text, condition: str, other: Text
) -> None:
    """Load a vector under a condition."""
    add, source = fused.fetches.add, fused.low.products.analysis.parameter(load.pointer)
    if not condition:
        add(f"{function}({target}, {pointer});")
    elif fused.batch > 1 and source is not None:
        add(f"{function}({target}, {condition} ? {pointer} : {fused.low.names.of(source)});")
        add(f"if (!({condition})) fill({target}, {other});")
    else:
        add(f"if ({condition}) {function}({target}, {pointer});")
        add(f"else fill({target}, {other});")


def write_batched(fused: FusedLoop, heads: list[str], lanes: list[str]) -> None:
    """Write the batched loop of a fused loop; `heads` are the loop headers inside the outermost one."""
    out, low = fused.low.out, fused.low
    variable, iterations = outermost_loop(low, fused.layout)
    count = fused.batch
    with out.block(f"for (int first = 0; first < {iterations}; first += {count})", unrolled=True):
        for array in fused.arrays:
            out.add(array)
        for lines in (fused.fetches.lines, [*fused.loads.lines, *lanes, *fused.stores.lines]):
            with out.block(f"for (int n = 0; n < {count}; ++n)", unrolled=True):
                out.add(f"const int {variable} = first + n;")
                _nested(out, heads, [*fused.heads.lines, *lines])
            if lines is fused.fetches.lines:
                for array in fused.arrays:
                    out.add(f"force_loads({array.split()[1].partition('[')[0]});")


def _nested(out: Lines, heads: list[str], lines: list[str]) -> None:
    """Append already indented lines, nested in loops."""
    for n, head in enumerate(heads):
        indent = "    " * (out.depth + n)
        out.lines += [f"{indent}{unrolling(head)}", f"{indent}{head} {{"]
    out.lines += lines
    out.lines += ["    " * (out.depth + n) + "}" for n in reversed(range(len(heads)))]
