"""Choose the threads of a kernel and the layouts of its tiles.

Layouts follow memory: adjacent threads load adjacent elements, and what is computed from a tile keeps its layout. A
constant tile takes the layout of the tiles it is combined with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set

from ....ir import tile as ir
from ....ir.dtype import float64
from ....ir.tile_access import roots, statements, walk
from ....ir.tile_types import TileType, Types
from ....tiles.affine import Affine, power_of_two
from .hardware import BANK_BYTES, VECTOR_BYTES
from .layout import SCALAR, RegisterLayout, blocked

MIN_THREADS, MAX_THREADS = 32, 1024
"""Bounds on the threads of a block."""
ELEMENTS_PER_THREAD, ELEMENTS_PER_THREAD_OF_LARGE, LARGE_TILE_ELEMENTS = 8, 16, 4096
"""Elements of the largest tile that a thread holds; more for tiles of more than LARGE_TILE_ELEMENTS elements."""
MIN_ALIGNED_BYTES = 8
"""Alignment, in bytes, below which stores to rows use narrower vectors."""


class LayoutPlan:
    """Chooses the layouts of one kernel, on demand."""

    def __init__(self, body: Sequence[ir.Statement], types: Types, affine: Affine, threads: int = 0) -> None:
        self.types, self.affine = types, affine
        self.statements = list(statements(tuple(body)))
        self.values: dict[str, list[ir.Tile]] = {}
        for s in self.statements:
            if isinstance(s, ir.Assign):
                self.values.setdefault(s.name, []).append(s.value)
        self.is_strided = False
        """Whether some access is not contiguous along the last axis."""
        self.widths = self._widths()
        self.adjacent = self._adjacent_windows()
        """Adjacent elements of a thread, by the extent of an axis that is not vectorised."""
        self.threads = threads or self._threads()
        self.layouts: dict[str, RegisterLayout] = {}
        self.accumulators: tuple[RegisterLayout, ...] = ()
        """Layouts of accumulators on tensor cores."""
        self.scattered = False
        """Whether tiles combined with accumulators are accessed element by element: then the accumulators are
        redistributed.
        """
        self.updates_in_place = False
        """Whether tiles combined with accumulators are updated in place."""
        self._in_progress: set[str] = set()

    # --- the kernel as a whole -------------------------------------------------------------------

    def accesses(self) -> Iterator[tuple[ir.Tile, TileType]]:
        """Yield the pointers of loads and stores, with their types."""
        for s in self.statements:
            if isinstance(s, ir.Store):
                yield s.pointer, self.types.of(s.pointer)
            elif isinstance(s, ir.Assign) and isinstance(s.value, ir.Load):
                yield s.value.pointer, self.types.of(s.value.pointer)

    def _widths(self) -> dict[int, int]:
        """Return the vector widths by the extent of the axis along which tiles are accessed."""
        found: dict[int, list[tuple[int, int]]] = {}
        for pointer, t in self.accesses():
            if t.shape:
                fastest = self.order(pointer)[0]
                self.is_strided |= fastest != len(t.shape) - 1
                if self._contiguous_run(pointer, fastest) > 1:
                    found.setdefault(t.shape[fastest], []).append(
                        (t.dtype.bytes, self._contiguous_run(pointer, fastest))
                    )
        widths = {}
        for extent, runs in found.items():
            bytes = [b for b, _ in runs]
            widest = max(bytes)
            if self.is_strided:  # transposed through shared memory element by element
                wide = max(1, BANK_BYTES // widest)
            else:
                mixed = widest == float64.bytes and min(bytes) != widest
                wide = VECTOR_BYTES // (widest // 2 if mixed else widest)
            widths[extent] = min(power_of_two(extent), wide, max(run for _, run in runs))
        for extent, aligned in self._aligned().items():
            widths[extent] = min(widths.get(extent, 1), aligned)
        return widths

    def _aligned(self) -> dict[int, int]:
        """Return narrower widths for stores to rows of odd length, by the extent of the axis.

        Stored element by element, the elements of a thread would lie between those of others.
        """
        found: dict[int, int] = {}
        if any(isinstance(v, ir.Reduce | ir.Scan | ir.Dot) for values in self.values.values() for v in values):
            return found
        for s in self.statements:
            t = self.types.of(s.pointer) if isinstance(s, ir.Store) else None
            if isinstance(s, ir.Store) and t is not None and t.shape:
                axis = self.order(s.pointer)[0]
                growth = self.affine.growth(s.pointer, axis - len(t.shape), VECTOR_BYTES // t.dtype.bytes)
                if growth.step == 1 and growth.alignment * t.dtype.bytes < MIN_ALIGNED_BYTES:
                    found[t.shape[axis]] = min(found.get(t.shape[axis], VECTOR_BYTES), growth.alignment)
        return found

    def _adjacent_windows(self) -> dict[int, int]:
        """Return overlapping windows that one thread should compute together, by extent."""
        found: dict[int, int] = {}
        if any(isinstance(v, ir.Reduce | ir.Scan | ir.Dot) for values in self.values.values() for v in values):
            return found
        for x in (x for s in self.statements for root in roots(s) for x in walk(root)):
            match x:
                case ir.Apply("floordiv", (index, ir.Literal(2 | 4 as apart))):
                    shape = () if isinstance(index, ir.Literal) else self.types.of(index).shape
                    if len(shape) == 1 and shape[0] % apart == 0 and self.affine.step(index, -1, 4) == 1:
                        found[shape[0]] = int(apart)
        return found

    def _contiguous_run(self, pointer: ir.Tile, axis: int) -> int:
        """Return the length of contiguous runs along an axis."""
        shape = self.types.of(pointer).shape
        for width in (16, 8, 4, 2):
            if shape[axis] % width == 0 and self.affine.step(pointer, axis - len(shape), width) == 1:
                return width
        return 1

    def _threads(self) -> int:
        most = 1
        for name, values in self.values.items():
            t = self.types.variables[name]
            shapes = [t.shape] + [self.types.of(v.x).shape for v in values if isinstance(v, ir.Reduce)]
            if not self._is_position(name):
                most = max(most, *[math.prod(shape) for shape in shapes])
        for _, t in self.accesses():
            most = max(most, math.prod(t.shape))
        each = ELEMENTS_PER_THREAD if most <= LARGE_TILE_ELEMENTS else ELEMENTS_PER_THREAD_OF_LARGE
        if self.is_strided and all(t.dtype.bytes <= 2 for _, t in self.accesses()):
            each *= 2  # small elements need more loads in flight
        if any(isinstance(value, ir.Scan) for values in self.values.values() for value in values):
            each *= 2  # less work across threads
        wanted = max(1, most // each)
        return max(MIN_THREADS, min(MAX_THREADS, 1 << (wanted - 1).bit_length()))

    def _is_position(self, name: str) -> bool:
        return name in self.affine.definitions

    # --- layouts ---------------------------------------------------------------------------------

    def follow_accumulators(
        self, sums: Sequence[RegisterLayout], body: Sequence[ir.Statement], updated: Set[str]
    ) -> None:
        """Give tiles loaded to be combined with accumulators the accumulators' layout.

        If 32-bit tiles are `updated` (loaded from where others are stored), memory traffic dominates: then whole lines
        are accessed, and the accumulators are redistributed.
        """
        self.accumulators = tuple(sums)
        for name in updated:
            shape, bytes = self.types.variables[name].shape, self.types.variables[name].dtype.bytes
            if bytes == 4 and any(layout.shape == shape for layout in self.accumulators):
                self.scattered = self.updates_in_place = True
                self.widths |= dict.fromkeys(shape, VECTOR_BYTES // bytes)
        shapes = {layout.shape: layout for layout in self.accumulators}
        dots = [v for values in self.values.values() for v in values if isinstance(v, ir.Dot)]
        operands = {x.name for dot in dots for x in (dot.x, dot.y) if isinstance(x, ir.Name)}
        found: dict[str, RegisterLayout] = {}
        for s in body:
            if not isinstance(s, ir.Assign) or s.name in operands:
                continue
            if isinstance(s.value, ir.Load) and len(self.values[s.name]) == 1:
                layout = shapes.get(self.types.variables[s.name].shape)
                if layout is not None:
                    found[s.name] = layout
                    self.scattered |= not self._is_vectorised(s.value.pointer)
        if not self.scattered:
            self.layouts |= found

    def _is_vectorised(self, pointer: ir.Tile) -> bool:
        """Return whether a tile is contiguous in aligned pieces of 16 bytes."""
        width = VECTOR_BYTES // self.types.of(pointer).dtype.bytes
        axis = self.order(pointer)[0] - len(self.types.of(pointer).shape)
        return self.affine.is_vector(pointer, axis, width)

    def order(self, pointer: ir.Tile) -> tuple[int, ...]:
        """Return the axes of an access, fastest in memory first."""
        shape = self.types.of(pointer).shape
        axes = list(reversed(range(len(shape))))
        steps = {n: self.affine.step(pointer, n - len(shape), 2, True) if shape[n] > 1 else None for n in axes}
        known = {n: abs(step) for n, step in steps.items() if step}
        if not known:
            return tuple(axes)
        first = min(known, key=lambda n: (known[n], self.affine.step(pointer, n - len(shape), 2) is None, -n))
        return (first, *[n for n in axes if n != first])

    def default_layout(self, shape: tuple[int, ...]) -> RegisterLayout:
        """Return the default layout of a tile."""
        return blocked(shape, self.threads, self.widths.get(shape[-1], 1), adjacent=self.adjacent) if shape else SCALAR

    def of_access(self, pointer: ir.Tile) -> RegisterLayout:
        """Return the layout in which adjacent threads access adjacent memory."""
        shape = self.types.of(pointer).shape
        if not shape:
            return SCALAR
        order = self.order(pointer)
        return blocked(shape, self.threads, self.widths.get(shape[order[0]], 1), order, self.adjacent)

    def of_name(self, name: str) -> RegisterLayout:
        """Return the layout of a variable, the same for all its values."""
        shape = self.types.variables[name].shape
        if not shape:
            return SCALAR
        if name not in self.layouts:
            simple = all(isinstance(v, ir.Load | ir.Full) for v in self.values.get(name, ()))
            wanted = self._from_larger_tile(name) if simple else None
            self.layouts[name] = (
                wanted or self._of_values(name) or self._from_larger_tile(name) or self.default_layout(shape)
            )
        return self.layouts[name]

    def _of_values(self, name: str) -> RegisterLayout | None:
        if name in self.layouts:
            return self.layouts[name]
        if name in self._in_progress:
            return None
        self._in_progress.add(name)
        try:
            found = [self.of_value(value) for value in self.values.get(name, ())]
            return next((layout for layout in found if layout is not None), None)
        finally:
            self._in_progress.discard(name)

    def of_value(self, value: ir.Tile) -> RegisterLayout | None:
        """Return the layout that the parts of an expression suggest, or None."""
        shape = () if isinstance(value, ir.Literal) else self.types.of(value).shape
        if not shape:
            return SCALAR
        match value:
            case ir.Load(pointer):
                return self._of_load(value) or self.of_access(pointer)
            case ir.Reduce(_, x, axis):
                return self.of_operand(x).without([axis])
            case ir.Scan(_, x, axis):
                return self.of_scan(x, axis)
            case ir.Dot() | ir.Trans() | ir.Reshape():
                return None
            case ir.Name(name):
                return None if self._is_position(name) else self._of_values(name)
        parts = (x for x in ir.parts(value) if not isinstance(x, ir.Literal) and self.types.of(x).shape == shape)
        return next((found for x in parts if (found := self.of_value(x)) is not None), None)

    def of_operand(self, x: ir.Tile) -> RegisterLayout:
        """Return the layout of an operand, named or not."""
        if isinstance(x, ir.Name):
            return self.of_name(x.name)
        return self.of_value(x) or self.default_layout(self.types.of(x).shape)

    def of_scan(self, x: ir.Tile, axis: int) -> RegisterLayout:
        """Return a layout whose scanned axis is a vector, threads, and chunks of these."""
        own = self.of_operand(x)
        kinds = "".join("r" if d.stride is None else "t" for d in own.axes[axis])
        return own if kinds in ("", "r", "t", "rt", "tr", "rtr") else self.default_layout(own.shape)

    def of_store(self, store: ir.Store) -> RegisterLayout:
        """Return the layout of a store: that of the value, unless accesses would not be contiguous."""
        shape = self.types.of(store.pointer).shape
        if not shape:
            return SCALAR
        spread = isinstance(store.value, ir.Literal) or self.types.of(store.value).shape != shape
        own = None if spread else self.of_value(store.value)
        natural = self.of_access(store.pointer)
        dense = self.scattered or self._is_dense(store.pointer, fastest(natural))
        if own is not None and own in self.accumulators and not dense:
            return own  # not contiguous either way: redistribution would not help
        same = own is not None and fastest(own) == fastest(natural)
        return own if same and not (self.scattered and own in self.accumulators) else natural  # type: ignore[return-value]

    def _is_dense(self, pointer: ir.Tile, axis: int) -> bool:
        """Return whether pairs along an axis are certainly contiguous."""
        return self.affine.step(pointer, axis - len(self.types.of(pointer).shape), 2) == 1

    def _of_load(self, load: ir.Load) -> RegisterLayout | None:
        """Return the layout of a gather's indices, or None."""
        indices = [x for x in walk(load.pointer) if isinstance(x, ir.Name) and not self._is_position(x.name)]
        shape = self.types.of(load.pointer).shape
        for x in indices:
            t = self.types.variables[x.name]
            if t.shape == shape and not t.pointer:
                return self._of_values(x.name)
        return None

    def _from_larger_tile(self, name: str) -> RegisterLayout | None:
        """Return the layout that the first larger tile with which a variable is combined suggests."""
        for s in self.statements:
            for root in roots(s):
                for whole in walk(root):
                    if not isinstance(whole, ir.Apply | ir.BroadcastTo):
                        continue
                    for part in ir.parts(whole):
                        if isinstance(part, ir.ExpandDims) and part.x == ir.Name(name):
                            layout = self.of_operand(whole)
                            return layout.without(part.axes) if len(layout.shape) == len(part.axes) + 1 else None
        return None


def fastest(layout: RegisterLayout) -> int:
    """Return the axis along which adjacent threads hold adjacent elements."""
    if layout.vector >= 0:
        return layout.vector
    for axis, digits in enumerate(layout.axes):
        if any(d.stride == 1 for d in digits):
            return axis
    return len(layout.shape) - 1
