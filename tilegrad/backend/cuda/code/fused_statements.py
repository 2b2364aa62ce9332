"""Write consecutive statements with one layout as one loop over the registers of a thread.

    for each chunk of registers:
        positions
        loads of vectors
        for each element of the vector: everything else
        stores of vectors

Variables used only here are local to an iteration; results of reductions are available after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import bool_
from ....ir.functions import accumulation_dtype
from ....ir.tile_access import walk
from ....ir.tile_types import TileType
from . import functions
from .batched_loads import batch_array, is_batchable, iterations_per_batch, load_elements, load_vector, write_batched
from .dot_exchange import declare_exchange, exchange_lines, exchanges_lanes, without_rounding
from .dot_store import StagedStore, stage_stores, write_staged
from .elements import RegisterTile, View, element_view, matches_layout
from .foreign_registers import unavailable_names
from .functions import MEMORY, TYPES, Text, literal
from .hardware import VECTOR_BYTES
from .layout import SCALAR, RegisterLayout
from .warp_reduce import COMBINE, initial_value, reduce_threads, scan_threads
from .writing import Lines, unrolling

if TYPE_CHECKING:
    from .lower import CudaLowering

MIN_RUN_BYTES = 4
"""Bytes of a contiguous run of a vector from which on it is loaded as a whole."""


class FusedLoop:
    """Writes one fused loop."""

    def __init__(self, low: CudaLowering, layout: RegisterLayout, members: Sequence[ir.Assign | ir.Store]) -> None:
        self.low, self.layout, self.members = low, layout, list(members)
        self.elements = low.elements
        self.own = {id(m) for m in members}
        self.heads, self.loads, self.lanes, self.stores = Lines(), Lines(), Lines(), Lines()
        self.view: View = ()
        """Positions where vectors start."""
        self.element_view: View = ()
        """Positions of the current element."""
        self.in_tile: list[str] = []
        self.indices = low.indices(layout)
        self.totals: dict[str, str] = {}
        self.staged: dict[int, StagedStore] = {}
        self.exchange_words: dict[int, str] = {}
        """Register arrays of stores whose values lanes exchange, by the identity of the store."""
        self.batch = 1
        """Iterations of the outermost loop whose loads are batched (`batched_loads.py`)."""
        self.arrays: list[str] = []
        """Declarations of the arrays that hold a batch of loads."""
        self.fetches = self.loads

    def write(self) -> None:
        low = self.low
        assigns = [m for m in self.members if isinstance(m, ir.Assign)]
        stores = [m for m in self.members if isinstance(m, ir.Store)]
        self._add_barriers(assigns, stores)
        taken = low.memory.large_allocations
        low.share_tiles(sorted(unavailable_names(low, self.members, self.layout)))
        copied = low.memory.large_allocations > taken
        for m in assigns:
            self._declare(m)
        if not copied:  # otherwise staged stores would overwrite tiles that this loop reads
            self.exchange_words = {
                id(m): declare_exchange(low, m) for m in stores if exchanges_lanes(low, m, self.layout)
            }
            self.staged = stage_stores(low, [m for m in stores if id(m) not in self.exchange_words], self.layout)
        self.batch = iterations_per_batch(self) if copied else 1
        self._loop()
        if self.staged:
            low.barrier()
        for store in stores:
            if id(store) in self.staged:
                write_staged(low, store, self.staged[id(store)])
        for m in assigns:
            if isinstance(m.value, ir.Reduce):
                self._finish_reduction(m.name, m.value)
            elif isinstance(m.value, ir.Scan):
                t = low.types.variables[m.name]
                scan_threads(low, m.value.fn, t.dtype, low.names.of(m.name), m.value.axis, self.layout)
        self.elements.forget_local_tiles()
        low.share_tiles([])

    def _add_barriers(self, assigns: Sequence[ir.Assign], stores: Sequence[ir.Store]) -> None:
        """Write the barriers that the loop needs, before it."""
        hazards = self.low.hazards
        for m in assigns:
            if isinstance(m.value, ir.Load):
                self.low.barrier_if(hazards.note_load(m.value.pointer, self.layout))
        for store in stores:
            self.low.barrier_if(hazards.note_store(store.pointer, self.layout))

    # --- variables -------------------------------------------------------------------------------

    def _is_local(self, name: str) -> bool:
        """Return whether only this loop uses a variable."""
        return self.low.counts.get(name, 1) == 1 and all(use in self.own for use in self.low.uses.get(name, ()))

    def _declare(self, m: ir.Assign) -> None:
        """Declare a variable that outlives the loop."""
        low, name = self.low, m.name
        t = low.types.variables[name]
        match m.value:
            case ir.Reduce(fn, x, axis):
                source = low.types.of(x).dtype
                element = TYPES[accumulation_dtype(source).name]
                type = f"Place<{element}>" if fn.startswith("arg") else element
                total = low.names.fresh(f"{low.names.of(name)}_found") if fn.startswith("arg") else low.names.of(name)
                rest = self.layout.without([axis])
                start = initial_value(fn, accumulation_dtype(source))
                if fn.startswith("arg"):
                    start = Text(f"{{{start}, {low.position(self.layout, axis, first=True)}}}")
                self._array(type, total, rest, start)
                self.totals[name] = total
                low.scopes[-1].add(name)
                if t.shape and not fn.startswith("arg"):
                    self.elements.register_tiles[name] = RegisterTile(total, rest)
                return
            case ir.Scan():
                self._array(low.register_type(t, name), low.names.of(name), self.layout, None)
                self.elements.register_tiles[name] = RegisterTile(low.names.of(name), self.layout)
                return
        if not self._is_local(name):
            low.declare(name, self.layout)

    def _array(self, type: str, name: str, layout: RegisterLayout, start: Text | None) -> None:
        """Declare an array over the registers of a layout."""
        extents = "".join(f"[{n}]" for n in layout.extents())
        if start is None or not extents:
            self.low.out.add(f"{type} {name}{extents}{'' if start is None else f' = {start}'};")
            return
        self.low.out.add(f"{type} {name}{extents};")
        with self.low.over(layout) as at:
            self.low.out.add(f"{name}{at} = {type if start.text.startswith('{') else ''}{start};")

    # --- the loop --------------------------------------------------------------------------------

    def _loop(self) -> None:
        low, out = self.low, self.low.out
        heads = low.loops(self.layout, {(self.layout.vector, 0)})
        if low.products.is_accumulator(self.layout):
            heads.reverse()  # computes the position of a column once for all its rows
        depth = out.depth + max(1, len(heads)) + (self.batch > 1)
        wide = self.layout.width > 1
        if self.batch > 1:
            self.fetches = Lines()
        for lines in (self.heads, self.loads, self.fetches, self.stores):
            lines.depth = depth
        self.lanes.depth = depth + wide
        with low.writing(self.heads):
            self.view, self.in_tile = low.positions(self.layout, named=True)
            self.element_view = element_view(self.view, self.layout)
            with self.elements.naming(self._name):
                for m in self.members:
                    self._member(m)
        lanes = self._over_lanes(depth) if self.lanes.lines and wide else self.lanes.lines
        if self.batch > 1:
            write_batched(self, heads[1:], lanes)
            return
        for n, head in enumerate(heads):
            out.lines += ["    " * (out.depth + n) + unrolling(head), "    " * (out.depth + n) + head + " {"]
        if not heads:
            out.add("{")
        out.lines += [*self.heads.lines, *self.loads.lines, *lanes, *self.stores.lines]
        out.lines += ["    " * (depth - 1 - n) + "}" for n in range(max(1, len(heads)))]

    def _over_lanes(self, depth: int) -> list[str]:
        """Return the lines of the loop over the elements of a vector."""
        index = "    " * depth
        alone = len(self.lanes.lines) == 1 and not self.lanes.lines[0].strip().startswith("const")
        head = f"{index}for (int v = 0; v < {self.layout.width}; ++v){'' if alone else ' {'}"
        return [f"{index}#pragma unroll", head, *self.lanes.lines, *([] if alone else [index + "}"])]

    def _name(self, type: str, stem: str, value: Text) -> str:
        """Declare a variable for a position at the start of the loop body."""
        taken = self.low.names.taken
        name = stem if not any(f" {stem} = " in line for line in self.heads.lines) else self.low.names.fresh(stem)
        taken.add(name)
        self.heads.add(f"{'' if type == 'auto' else 'const '}{type} {name} = {value};")
        return name

    def _member(self, m: ir.Assign | ir.Store) -> None:
        match m:
            case ir.Store():
                self._store(m)
            case ir.Assign(name, ir.Load() as load):
                self._load(name, load)
            case ir.Assign(name, ir.Reduce(fn, x, axis)):
                self._accumulate(name, fn, x, axis)
            case ir.Assign(name, ir.Scan(fn, x, _)):
                t = self.low.types.of(x)
                value = self._current(x, t)
                if self.in_tile:
                    start = initial_value(fn, accumulation_dtype(t.dtype))
                    value = Text(f"{self._conjunction(self.in_tile)} ? {value.within(3)} : {start}", 0)
                self.lanes.add(f"{self.low.names.of(name)}{self.indices} = {value};")
            case ir.Assign(name, value):
                self._assign(name, self._current(value, self.low.types.variables[name]))

    def _current(self, x: ir.Tile, t: TileType) -> Text:
        """Evaluate an expression at the current element."""
        return self.elements.part(x, self.element_view, self.layout.shape, t.dtype)

    def _vector_start(self, x: ir.Tile, t: TileType) -> Text:
        """Evaluate an expression at the start of the vector."""
        return self.elements.part(x, self.view, self.layout.shape, t.dtype)

    def _conjunction(self, conditions: Sequence[str]) -> str:
        return " && ".join(conditions)

    def condition(self, mask: ir.Tile | None, first: bool = False) -> str:
        """Return the condition that an element is in the tile and unmasked: the current one, or (`first`) the vector's
        first.
        """
        if mask is None:
            return self._conjunction(self.in_tile)
        made = (self._vector_start if first else self._current)(mask, TileType(bool_))
        return self._conjunction([*self.in_tile, str(made.within(functions.AND))])

    def target(self, name: str, vector: bool) -> str:
        """Return the destination of an element: an array that outlives the loop, or a new local variable."""
        low, t = self.low, self.low.types.variables[name]
        called = low.names.of(name)
        kept = self.elements.register_tiles.get(name)
        if kept is not None and not kept.element:
            return f"{called}{self.indices}"
        if vector:
            return self._vector_target(name, low.register_type(t, name))
        self.elements.register_tiles[name] = RegisterTile(called, self.layout, called)
        return f"const {low.register_type(t) if not t.pointer else 'auto'} {called}"

    def _vector_target(self, name: str, type: str) -> str:
        """Declare a vector of loaded elements: in the batch array, or local to an iteration."""
        called, width = self.low.names.of(name), self.layout.width
        if self.batch > 1:
            extents, at = batch_array(self)
            self.arrays.append(f"{type} {called}{extents};")
            called += at
        else:
            self.loads.add(f"{type} {called}[{width}];")
        element = f"{called}[v]" if width > 1 else called
        self.elements.register_tiles[name] = RegisterTile(called, self.layout, element)
        return element

    def _assign(self, name: str, value: Text) -> None:
        self.lanes.add(f"{self.target(name, False)} = {value};")

    # --- memory ----------------------------------------------------------------------------------

    def _is_vector(self, pointer: ir.Tile) -> bool:
        """Return whether an access is one contiguous vector."""
        positional = self.layout.width > 1 and self.low.is_positional(pointer)
        return positional and self.low.affine.step(pointer, self.layout.vector_axis, self.layout.width) == 1

    def _is_uniform(self, x: ir.Tile | None) -> bool:
        """Return whether a mask is the same for all elements of a vector."""
        if x is None:
            return True
        return self.low.is_positional(x) and self.low.affine.step(x, self.layout.vector_axis, self.layout.width) == 0

    def _is_aligned(self, pointer: ir.Tile, t: TileType) -> bool:
        alignment = self.low.affine.growth(pointer, self.layout.vector_axis, self.layout.width).alignment
        return alignment * t.dtype.bytes >= min(VECTOR_BYTES, self.layout.width * t.dtype.bytes)

    def _load(self, name: str, load: ir.Load) -> None:
        t = self.low.types.variables[name]
        if self._is_vector(load.pointer) and self.low.is_positional(load.mask) and self.low.is_positional(load.other):
            self._load_vector(name, load, t)
            return
        each, other = self._contiguous_run(load), self._replacement(load, t)
        if each > 1 and other is not None:
            self._load_pieces(name, load, t, each, other)
            return
        if self.batch > 1 and is_batchable(self.low, load) and other is not None:
            load_elements(self, name, load, t, other)
            return
        self._load_element(name, load, t)

    def _contiguous_run(self, load: ir.Load) -> int:
        """Return the length of contiguous, aligned runs in a vector that is not contiguous as a whole; 1: none."""
        low, axis, bytes = self.low, self.layout.vector_axis, self.low.types.of(load.pointer).dtype.bytes
        if not low.is_positional(load.pointer) or not low.is_positional(load.mask):
            return 1
        each = self.layout.width // 2
        while each > 1 and each * bytes >= MIN_RUN_BYTES:
            masked = load.mask is not None and low.affine.step(load.mask, axis, each) != 0
            if low.affine.is_vector(load.pointer, axis, each) and not masked:
                return each
            each //= 2
        return 1

    def _is_broadcast(self, load: ir.Load) -> bool:
        """Return whether all elements of a vector load the same element under the same mask."""
        return self.layout.width > 1 and all(map(self._is_uniform, (load.pointer, load.mask, load.other)))

    def _load_element(self, name: str, load: ir.Load, t: TileType) -> None:
        """Load each element by itself, or once for the whole vector."""
        broadcast = self._is_broadcast(load) and self._is_local(name)
        view, evaluate = (self.view, self._vector_start) if broadcast else (self.element_view, self._current)
        value = functions.from_memory(self._memory(load.pointer, view), t.dtype)
        condition = self.condition(load.mask, first=broadcast)
        if condition:
            other = literal(0, t.dtype) if load.other is None else evaluate(load.other, t)
            value = Text(f"{condition} ? {value.within(3)} : {other.within(3)}", 0)
            if TYPES[t.dtype.name] not in ("float", "double", "int", "int64"):
                value = Text(f"{TYPES[t.dtype.name]}({value})")
        if broadcast:
            self.loads.add(f"{self.target(name, False)} = {value};")
        else:
            self._assign(name, value)

    def _load_pieces(self, name: str, load: ir.Load, t: TileType, each: int, other: Text) -> None:
        target = self.target(name, True).removesuffix("[v]")
        pointer, condition = self._current(load.pointer, t), self.condition(load.mask)
        with self.fetches.block(f"for (int v = 0; v < {self.layout.width}; v += {each})", unrolled=True):
            load_vector(self, load, "read", f"subarray<{each}>({target} + v)", pointer, condition, other)

    def _memory(self, pointer: ir.Tile, view: View) -> Text:
        """Return the element of memory at a view; a scalar pointer has no positions."""
        shape = self.elements.shape(pointer)
        assert len(shape) == len(view) or not shape
        return self.elements.memory(pointer, view if shape else ())

    def _load_vector(self, name: str, load: ir.Load, t: TileType) -> None:
        target = self.target(name, True).removesuffix("[v]")
        pointer = self._vector_start(load.pointer, t)
        function = "read" if self._is_aligned(load.pointer, t) else "read_unaligned"
        if name in self.low.prefetched:
            pointer = Text(self.low.prefetched[name])
        other = self._replacement(load, t)
        if self._is_uniform(load.mask) and other is not None:
            load_vector(self, load, function, target, pointer, self.condition(load.mask, first=True), other)
            return
        mask = self._mask(self.fetches, name, load.mask)
        with self._each(self.fetches):
            start = literal(0, t.dtype) if load.other is None else self._current(load.other, t)
            self.fetches.add(f"{target}[v] = {start};")
        self.fetches.add(f"read_masked({target}, {pointer}, {mask});")

    def _replacement(self, load: ir.Load, t: TileType) -> Text | None:
        """Return the replacement of masked elements, if it is a scalar."""
        if load.other is None:
            return (
                functions.call(TYPES[t.dtype.name], literal(0, t.dtype))
                if not t.dtype.is_float
                else literal(0, t.dtype)
            )
        if self.elements.shape(load.other):
            return None
        made = self.elements.of(load.other, (), t.dtype)
        return made if t.dtype.is_float else functions.call(TYPES[t.dtype.name], made)

    def _each(self, lines: Lines) -> AbstractContextManager[None]:
        return lines.block(f"for (int v = 0; v < {self.layout.width}; ++v)", unrolled=True)

    def _mask(self, lines: Lines, name: str, mask: ir.Tile | None) -> str:
        """Declare the mask of a vector's elements."""
        called = self.low.names.fresh(f"{name}_mask".replace("__", "_"))
        lines.add(f"bool {called}[{self.layout.width}];")
        with self._each(lines):
            lines.add(f"{called}[v] = {self.condition(mask) or 'true'};")
        return called

    def _store(self, store: ir.Store) -> None:
        t = self.low.types.of(store.pointer)
        owners = self.low.owners(self.layout)
        if id(store) in self.staged:
            self._store_staged(store, t, owners, self.staged[id(store)])
            return
        if id(store) in self.exchange_words:
            values = self._values(store, t, rounded=False)
            self.stores.extend(
                exchange_lines(self.low, store, self.layout, self.exchange_words[id(store)], values, self.view)
            )
            return
        if self._is_vector(store.pointer):
            self._store_vector(store, t, owners)
            return
        memory = self._memory(store.pointer, self.element_view)
        conditions = [*owners, *self.in_tile]
        if store.mask is not None:
            conditions.append(self._current(store.mask, TileType(bool_)).within(functions.AND))
        guard = f"if ({self._conjunction(conditions)}) " if conditions else ""
        self.lanes.add(f"{guard}{memory} = {functions.to_memory(self._current(store.value, t), t.dtype)};")

    def _store_staged(self, store: ir.Store, t: TileType, owners: list[str], stage: StagedStore) -> None:
        """Store to shared memory, from where `write_staged` stores to global memory."""
        conditions = [*owners, *self.in_tile]
        guard = f"if ({self._conjunction(conditions)}) " if conditions else ""
        if self.layout.vector == 1:
            self.stores.add(f"{guard}write({stage.at(self.view)}, {self._values(store, t)});")
            return
        row, column = map(self.elements.position, self.element_view)
        value = functions.to_memory(self._current(store.value, t), t.dtype)
        self.lanes.add(f"{guard}{stage.name}[{row.within(10)} * {stage.pitch} + {column}] = {value};")

    def _store_vector(self, store: ir.Store, t: TileType, owners: list[str]) -> None:
        values = self._values(store, t)
        pointer = self._vector_start(store.pointer, t)
        conditions = [*owners, *self.in_tile]
        even = self._is_uniform(store.mask)
        if even and store.mask is not None:
            conditions.append(self._vector_start(store.mask, TileType(bool_)).within(functions.AND))
        guard = f"if ({self._conjunction(conditions)}) " if conditions else ""
        if even:
            write = "write" if self._is_aligned(store.pointer, t) else "write_unaligned"
            self.stores.add(f"{guard}{write}({pointer}, {values});")
            return
        assert store.mask is not None
        called = self.low.names.fresh(f"{values.split('[')[0]}_mask".replace("__", "_"))
        self.loads.add(f"bool {called}[{self.layout.width}];")
        self.lanes.add(f"{called}[v] = {self._current(store.mask, TileType(bool_))};")
        self.stores.add(f"{guard}write_masked({pointer}, {values}, {called});")

    def _values(self, store: ir.Store, t: TileType, rounded: bool = True) -> str:
        """Return an array with the values of a vector store."""
        if isinstance(store.value, ir.Name):
            kept = self.elements.register_tiles.get(store.value.name)
            if kept is not None and matches_layout(kept.layout, self.view) and kept.element != kept.text:
                element = kept.element or f"{kept.text}{self.indices}"
                return element.removesuffix("[v]")
        base = next(
            (x.name for x in walk(store.pointer) if isinstance(x, ir.Name) and x.name not in self.elements.inlined), "x"
        )
        called = self.low.names.fresh(f"{base}_out".replace("__", "_"))
        self.loads.add(f"{TYPES[t.dtype.name]} {called}[{self.layout.width}];")
        value = self._current(store.value, t)
        self.lanes.add(f"{called}[v] = {value if rounded else without_rounding(value)};")
        return called

    # --- reductions ------------------------------------------------------------------------------

    def _accumulate(self, name: str, fn: str, x: ir.Tile, axis: int) -> None:
        t = self.low.types.of(x)
        value = self._current(x, t)
        at = self._rest_indices(axis)
        total = f"{self.totals[name]}{at}"
        guard = f"if ({self._conjunction(self.in_tile)}) " if self.in_tile else ""
        if fn.startswith("arg"):
            place = self.elements.position(self.element_view[axis])
            conditions = [*self.in_tile, f"{COMBINE[fn]}::beats({value}, {total}.value)"]
            self.lanes.add(f"if ({self._conjunction(conditions)}) {total} = {{{value}, {place}}};")
        elif fn in ("add", "mul") and t.dtype.is_float:
            self.lanes.add(f"{guard}{total} {'+' if fn == 'add' else '*'}= {value};")
        else:
            combined = functions.apply_function(fn, accumulation_dtype(t.dtype), [Text(total), value])
            self.lanes.add(f"{guard}{total} = {combined};")

    def _rest_indices(self, axis: int) -> str:
        """Return the indices of the registers along the other axes."""
        return "".join(
            f"[{self.low.variable(self.layout, a, place)}]" for a, place in self.layout.registers() if a != axis
        )

    def _finish_reduction(self, name: str, reduce: ir.Reduce) -> None:
        low = self.low
        source = low.types.of(reduce.x).dtype
        element = TYPES[accumulation_dtype(source).name]
        arg = reduce.fn.startswith("arg")
        rest = self.layout.without([reduce.axis])
        total = self.totals[name]
        type = f"Place<{element}>" if arg else element
        reduce_threads(low, reduce.fn, type, total, self.layout.axes[reduce.axis], rest)
        if arg:
            called = low.names.of(name)
            if rest == SCALAR:
                low.out.add(f"const int {called} = {total}.at;")
                return
            self._array("int", called, rest, None)
            with low.over(rest) as at:
                low.out.add(f"{called}{at} = {total}{at}.at;")
            self.elements.register_tiles[name] = RegisterTile(called, rest)
        elif source.is_float and MEMORY[source.name] != element:
            with low.over(rest) as at:
                low.out.add(f"{total}{at} = {functions.narrowed(Text(f'{total}{at}'), source)};")
