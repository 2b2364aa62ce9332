"""Hand out the kernels of the CPU that take sizes, strides and numbers as data: nothing is compiled for a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...ir.dtype import DType
from ...ir.graph import TensorType, Value
from ...ir.scalar import Expr, Index
from ...runtime.buffer import DeviceBuffer
from ...runtime.executable import Runner
from .buffer_factory import buffer_factory
from .copies import Copy, SourceLayout, copies
from .interpreter.loading import load
from .interpreter.reduction_templates import ReducedElement, bind_reduction, reduction_loops
from .interpreter.stages import StridedMemory
from .interpreter.templates import ElementOf, bind_copy, bind_pointwise, merged_axes
from .interpreter.translate import translate

if TYPE_CHECKING:
    from .device import CpuDevice

MAX_ARENA_BYTES = 64 << 20
"""Bytes that a product may take of the arena, which never shrinks; a larger one allocates memory for each run."""


MAX_BOUND_PARTS = 64
"""Parts of a result, some of them large, up to which each is bound to a template: binding takes as long as copying some
kilobytes.
"""


class CpuKernels:
    """The block interpreter, and the generic products."""

    def __init__(self, device: CpuDevice) -> None:
        self.device = device

    def elements(
        self, type: TensorType, element: Expr, indices: Sequence[Index], sources: Mapping[Any, SourceLayout]
    ) -> Runner | None:
        """Return a runner for an element expression, or None if it is not interpreted."""
        memories = {key: StridedMemory(s.source, s.shape, s.strides, s.offset) for key, s in sources.items()}
        shape: Any = type.shape
        program = translate(type.dtype, shape, element, indices, memories)
        if program is None:
            return None
        run = load(program, self.device)
        make = buffer_factory(self.device, prod(shape) * type.dtype.bytes)
        count = program.inputs

        def interpreted(buffers: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
            out = make()
            run(*[b.address for b in buffers[:count]], out.address)
            return (out,)

        return interpreted

    def pointwise(
        self, kind: object, type: TensorType, element: ElementOf, sources: Sequence[SourceLayout]
    ) -> Runner | None:
        """Return a runner for a pointwise expression of strided sources, or None if there is no template for it."""
        shape: Any = type.shape
        if not prod(shape):
            return None
        axes = merged_axes(shape, [s.strides for s in sources])
        return self._on_sources(type, bind_pointwise(kind, type.dtype, element, axes), sources)

    def reduction(
        self,
        kind: object,
        type: TensorType,
        axes: Sequence[int],
        element: ReducedElement,
        sources: Sequence[SourceLayout],
    ) -> Runner | None:
        """Return a runner for a reduction of a pointwise expression along some axes of its sources, or None if there is
        no template for it.
        """
        if not sources or not prod(sources[0].shape):
            return None
        loops = reduction_loops(sources[0].shape, axes, [s.strides for s in sources])
        return (
            None if loops is None else self._on_sources(type, bind_reduction(kind, type.dtype, element, loops), sources)
        )

    def _on_sources(
        self, type: TensorType, run: Callable[..., None] | None, sources: Sequence[SourceLayout]
    ) -> Runner | None:
        """Return a runner that gives a function the addresses of sources and of a new result."""
        if run is None:
            return None
        shape: Any = type.shape
        make = buffer_factory(self.device, prod(shape) * type.dtype.bytes)
        given = [(s.source, s.offset * s.item_bytes) for s in sources]

        def bound(buffers: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
            out = make()
            run(*[buffers[n].address + first for n, first in given], out.address)
            return (out,)

        return bound

    def copies(self, type: TensorType, parts: Sequence[tuple[SourceLayout, int]]) -> Runner | None:
        """Return a runner that copies strided sources to slices of a result; None if the interpreter is faster."""
        shape: Any = type.shape
        steps = [prod(shape[n + 1 :]) for n in range(len(shape))]
        copy = copies(parts, steps) or _copies_by_template(type.dtype, parts, steps)
        if copy is None:
            return None
        make = buffer_factory(self.device, prod(shape) * type.dtype.bytes)

        def copied(buffers: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
            out = make()
            copy(buffers, out.address)
            return (out,)

        return copied

    def product(self, value: Value, x: SourceLayout, y: SourceLayout) -> Runner | None:
        """Return a runner for a sum of products, or None if no kernel has its form."""
        from ...ops.product_form import product_forms
        from .generic_products import StridedOperand, generic_product

        dtype = value.dtype
        forms = product_forms(value)
        if forms is None or any(v.dtype is not dtype for v in value.inputs):
            return None
        shape: Any = value.shape
        left, right = StridedOperand(x.shape, x.strides), StridedOperand(y.shape, y.strides)
        out = StridedOperand(shape, tuple([prod(shape[n + 1 :]) for n in range(len(shape))]))
        products = [generic_product(dtype, form, left, right, out) for form in forms]
        scratch = max(p.scratch_bytes for p in products)
        if scratch <= MAX_ARENA_BYTES:
            self.device.grow_arena(scratch)
        make = buffer_factory(self.device, prod(shape) * dtype.bytes)
        return partial(
            _multiplied, self.device, scratch, make, [p.run for p in products], x.source, x.offset * dtype.bytes,
            y.source, y.offset * dtype.bytes,
        )  # fmt: skip


def _copies_by_template(dtype: DType, parts: Sequence[tuple[SourceLayout, int]], steps: Sequence[int]) -> Copy | None:
    """Return the function that copies each part by a template of its own, on all threads if that pays."""
    if not 1 < len(parts) <= MAX_BOUND_PARTS:
        return None
    bound = []
    for part, target in parts:
        if prod(part.shape):
            run = bind_copy(dtype, part.shape, part.strides, steps)
            if run is None:
                return None
            bound.append((run, part.source, part.offset * dtype.bytes, target * dtype.bytes))

    def copy(buffers: Sequence[DeviceBuffer], out: int) -> None:
        for run, source, first, target in bound:
            run(buffers[source].address + first, out + target)

    return copy


def _multiplied(
    device: CpuDevice,
    scratch: int,
    make: Any,
    runs: Any,
    x: int,
    x_first: int,
    y: int,
    y_first: int,
    buffers: Sequence[DeviceBuffer],
) -> tuple[DeviceBuffer, ...]:
    """Run the products that together make one result."""
    out = make()
    memory = device.arena if scratch <= MAX_ARENA_BYTES else device.allocate(scratch)
    for run in runs:
        run(buffers[x].address + x_first, buffers[y].address + y_first, out.address, memory.address)
    return (out,)
