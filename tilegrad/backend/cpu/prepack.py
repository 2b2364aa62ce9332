"""Prepack the operands of matrix products that several instances read, in launches of their own.

An instance of a product packs low-precision operands as it reads them (`code/low_precision.py`). In a product of 1024 x
1024 matrices in tiles of 256 x 512, each row would be packed twice and each column four times, which takes longer than
multiplying them. So a launch becomes up to three, the last of which reads what the others have packed:

    contract(x, y, out)      ->      contract_left(x, left_tiles)
                                     contract_right(y, right_tiles)
                                     contract(x, y, out, left_tiles, right_tiles)

A packing kernel is the backward slice of the operand in the kernel that multiplies, for one iteration of the loop along
the sum. Each iteration has its own area in the memory of the packed tiles, addressed by the program ids that the
operand depends on. Where numbers are outside the range of low-precision products, the kernel reads the operands
themselves.

Operands of float32 products by multiply-adds are prepacked if several instances need them, or if they are made of
constants, such as the weights of an inference: these are packed once for many runs (`constant_inputs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod
from typing import Any, NamedTuple

from ...ir import tile as ir
from ...ir.dtype import float32, int64, uint8
from ...ir.graph import TensorType
from ...ir.node import set_fact_once
from ...ir.program import Launch, Program, ProgramBuffer, Step, Tiles
from ...ir.size import Dim, known
from ...ir.tile_access import accesses, expressions, names_in, statements
from ...ir.tile_checker import check
from .code.blocks import register_block
from .code.packing import panel_bytes
from .consecutive_products import consecutive_products
from .costs import MAX_GROWTH, MAX_PANEL_BYTES, MIN_GROWTH_BYTES, MIN_PANEL_READERS, MIN_READERS, PACKING_OPERATIONS
from .pool import ALIGNMENT
from .prepacked import PackedOperand, PackingKernel, PrepackedKernel
from .summed_products import SummedProduct
from .target import Target

MAX_GRID_AXES = 3
"""Axes of a grid."""
UNMOVABLE = (ir.Reduce, ir.Scan, ir.Dot, ir.Reshape, ir.GatherAlongAxis, ir.NumPrograms)


def prepack(program: Program, target: Target, constants: Set[str] = frozenset()) -> Program:
    """Prepack the operands of a program where it pays; `constants` are inputs whose operands need not be packed in each
    run.
    """
    steps: list[Step] = []
    buffers: list[ProgramBuffer] = []
    bytes = {b.name: b.type.bytes for b in program.buffers}
    for step in program.steps:
        packed = packed_launch(step, target, bytes, constants) if isinstance(step, Launch) else None
        if isinstance(step, Launch) and packed is not None:
            launches, memory = _launches(step, packed, program, len(buffers))
            steps += launches
            buffers += memory
        else:
            steps.append(step)
    if not buffers:
        return program
    arena = program.arena
    if type(arena) is int:
        arena = max(b.offset + known(b.type.bytes, {}) for b in buffers if type(b.offset) is int)
    return program.replaced(  # type: ignore[no-any-return]
        steps=tuple(steps), buffers=(*program.buffers, *buffers), arena=arena
    )


class PackedLaunch(NamedTuple):
    """A launch split into packing launches and the product of what these have packed."""

    packers: list[PackingLaunch]
    kernel: PrepackedKernel


def packed_launch(
    launch: Launch, target: Target, bytes: Mapping[str, Dim], constants: Set[str] = frozenset()
) -> PackedLaunch | None:
    """Split a launch into packing launches and the product, if it pays; `bytes` are the sizes of its buffers. What was
    found is kept with the kernel: a launch is split when it is made, and again in its program.
    """
    grid = [tiles.count({}) for tiles in launch.grid if type(tiles.extent) is int]
    known = frozenset(
        [p.name for p, a in zip(launch.kernel.parameters, launch.arguments, strict=True) if a in constants]
    )
    repeats = MIN_READERS if target.matrix_unit or target.pairs else MIN_PANEL_READERS
    if len(grid) < len(launch.grid) or (prod(grid) < repeats and not known) or launch.users:
        return None
    given = tuple([bytes.get(str(a), 0) for a in launch.arguments])
    found: dict[Any, PackedLaunch | None] = set_fact_once(launch.kernel, "_packed", {})
    key = (tuple(grid), target, given, known)
    if key not in found:
        found[key] = _split(launch.kernel, grid, target, given, known)
    return found[key]


def _split(
    kernel: ir.Kernel, grid: Sequence[int], target: Target, bytes: Sequence[Dim], known: Set[str]
) -> PackedLaunch | None:
    kernels = _PackingKernels(kernel, grid, target, known)
    own = {p.name: count for p, count in zip(kernel.parameters, bytes, strict=True)}
    packers = [packer for right in (False, True) if (packer := kernels.launch(right)) is not None]
    packers = [p for p in packers if _is_small(p, [own.get(x.name, 0) for x in p.kernel.parameters])]
    if not packers:
        return None
    packed = tuple([p for packer in packers for p in packer.packed])
    prepacked = PrepackedKernel(
        kernel.name,
        (*kernel.parameters, *[ir.TileParameter(packer.memory, uint8) for packer in packers]),
        kernel.body,
        kernel.origin,
        None,
        packed,
        tuple(kernels.products) if _is_prepacked_sum(kernel, kernels.products, packed) else (),
    )
    return PackedLaunch(packers, prepacked)


def _launches(
    launch: Launch, packed: PackedLaunch, program: Program, count: int
) -> tuple[list[Step], list[ProgramBuffer]]:
    """Return the launches that replace a launch, with their buffers, behind all other memory."""
    packers = packed.packers
    arguments = {p.name: a for p, a in zip(launch.kernel.parameters, launch.arguments, strict=True)}
    device = program.buffers[0].type.device
    at = -(-program.arena // ALIGNMENT) * ALIGNMENT if type(program.arena) is int else None
    steps: list[Step] = []
    buffers: list[ProgramBuffer] = []
    for n, packer in enumerate(packers):
        name = f"{packer.memory}_{count + n}"
        buffers.append(ProgramBuffer(name, TensorType(uint8, (packer.bytes,), device), "temporary", at))
        at = None if at is None else at + packer.bytes
        own = tuple([name if p.name == packer.memory else arguments[p.name] for p in packer.kernel.parameters])
        steps.append(Launch(packer.kernel, own, tuple([Tiles(n, 1) for n in packer.grid]), launch.stream, packer.work))
    steps.append(launch.replaced(kernel=packed.kernel, arguments=(*launch.arguments, *[b.name for b in buffers])))
    return steps, buffers


class PackingLaunch(NamedTuple):
    """A launch that packs an operand: its kernel, grid and memory."""

    kernel: PackingKernel
    grid: list[int]
    memory: str
    bytes: int
    work: float
    packed: list[PackedOperand]


def _is_small(packer: PackingLaunch, given: list[Dim]) -> bool:
    """Whether a packed operand takes little more memory than its source; that of overlapping windows would not."""
    return packer.bytes <= max(MIN_GROWTH_BYTES, MAX_GROWTH * sum([n for n in given if type(n) is int]))


class _PackingKernels:
    """Builds the packing kernels of a kernel."""

    def __init__(self, kernel: ir.Kernel, grid: Sequence[int], target: Target, constants: Set[str]) -> None:
        self.kernel, self.grid, self.target, self.constants = kernel, list(grid), target, constants
        self.products: list[SummedProduct] = []
        every = expressions(*kernel.body)
        if any(isinstance(x, ir.Dot) for x in every):
            self.names = {p.name for p in kernel.parameters} | {x.name for x in every if isinstance(x, ir.Name)}
            self.types = check(kernel)
            self.products = consecutive_products(kernel, self.types, target)
            self.stored = accesses(kernel, self.types).stored

    def launch(self, right: bool) -> PackingLaunch | None:
        """Build the launch that packs the left or the right operand, if enough instances read it."""
        if not self.products:
            return None
        slices = [self._slice(product, right) for product in self.products]
        needed = list(expressions(*(s for statements_of in slices for s in statements_of)))
        axes = {x.axis for x in needed if isinstance(x, ir.ProgramId)}
        read = {x.name for x in needed if isinstance(x, ir.Name)} & {p.name for p in self.kernel.parameters}
        parts, constant = self.products[0].form.parts, bool(read) and read <= self.constants
        if not any(axis not in axes for axis in range(len(self.grid))) and len(self.grid) < MAX_GRID_AXES:
            self.grid.append(1)
        others = [axis for axis in range(len(self.grid)) if axis not in axes]
        repeats = prod(self.grid[axis] for axis in others)
        enough = repeats >= MIN_READERS if parts else repeats >= MIN_PANEL_READERS
        if not others or not (enough or constant) or not self._can_be_moved(slices, needed):
            return None
        packer = self._launch(slices, axes, others[0], right)
        return None if not parts and not constant and packer.bytes > MAX_PANEL_BYTES else packer

    def _launch(self, slices: list[list[ir.Statement]], axes: Set[int], loop_axis: int, right: bool) -> PackingLaunch:
        """Build the packing kernel of an operand; iterations of the sum are along a grid axis that the operand does not
        use.
        """
        name = "right" if right else "left"
        memory = self._fresh(f"{name}_tiles")
        names = tuple([self._fresh(f"packed_{n}") for n in range(len(slices))])
        parts, iterations = self.products[0].form.parts, sum(product.iterations for product in self.products)
        width = 0 if parts else self._width(right)
        shapes = [self._shape(product, right) for product in self.products]
        area = max(self._area(shape, right, parts, width) for shape in shapes)
        instance: ir.Tile = ir.Literal(0)
        for axis in sorted(axes):
            own = ir.Cast(ir.ProgramId(axis), int64)
            instance = own if instance == ir.Literal(0) else instance * self.grid[axis] + own
        before = [instance * iterations + product.number() for product in self.products]
        packed = [
            PackedOperand(product.operand(right), right, ir.Name(memory) + _as_int64(at) * area, bool(width))
            for product, at in zip(self.products, before, strict=True)
        ]
        grid = [n if axis in axes else 1 for axis, n in enumerate(self.grid)]
        bytes = prod(grid) * iterations * area
        grid[loop_axis] = iterations
        body = self._body(slices, names, right, loop_axis)
        used = names_in(*expressions(*body))
        kernel = PackingKernel(
            f"{self.kernel.name}_{name}",
            (*[p for p in self.kernel.parameters if p.name in used], ir.TileParameter(memory, uint8)),
            tuple(body),
            self.kernel.origin,
            None,
            names,
            ir.Name(memory) + _as_int64(instance * iterations + ir.ProgramId(loop_axis)) * area,
            right,
            parts,
            width,
        )
        return PackingLaunch(kernel, grid, memory, bytes, prod(shapes[0]) * PACKING_OPERATIONS * max(1, parts), packed)

    def _area(self, shape: tuple[int, ...], right: bool, parts: int, width: int) -> int:
        """Bytes of an operand of one iteration."""
        if width:
            return panel_bytes(shape, right, width, self.target.lanes(float32.bytes))
        from .code.amx_packing import packed_bytes

        return packed_bytes(self.types.of(self.products[0].dot.x).dtype, shape, right, parts)

    def _width(self, right: bool) -> int:
        """Panel width: that of the register blocks that read the panels."""
        shape = self.types.of(self.products[0].dot).shape
        block = register_block(self.target, float32, shape)
        return block.wide * self.target.lanes(float32.bytes) if right else block.rows

    def _fresh(self, name: str) -> str:
        """Choose a name that the kernel does not use."""
        return name if name not in self.names else self._fresh(f"{name}_")

    def _shape(self, product: SummedProduct, right: bool) -> tuple[int, ...]:
        return self.types.of(product.operand(right)).shape

    def _slice(self, product: SummedProduct, right: bool) -> list[ir.Statement]:
        """Slice the assignments that an operand depends on, before the loop and in it."""
        inner = product.loop.body if product.loop else ()
        before = self.kernel.body
        names = names_in(product.operand(right))
        found: list[ir.Statement] = []
        for s in (*reversed(inner), *reversed(before)):
            if isinstance(s, ir.Assign) and s.name in names:
                found.append(s)
                names |= names_in(s.value)
        found.reverse()
        return found

    def _can_be_moved(self, slices: list[list[ir.Statement]], needed: list[ir.Tile]) -> bool:
        """Whether operands have the same values before the launch as in it, and each instance can compute its slice."""
        assigned = [s.name for s in statements(self.kernel.body) if isinstance(s, ir.Assign)]
        used = {s.name for statements_of in slices for s in statements_of if isinstance(s, ir.Assign)}
        once = all(assigned.count(name) == 1 for name in used)
        loaded = {x.name for x in needed if isinstance(x, ir.Name)}
        return once and not loaded & self.stored and not any(isinstance(x, UNMOVABLE) for x in needed)

    def _body(
        self, slices: list[list[ir.Statement]], names: Sequence[str], right: bool, loop_axis: int
    ) -> list[ir.Statement]:
        """Build the body of one iteration, whose number is the program id along the spare axis."""
        body: tuple[ir.Statement, ...] = ()
        for n, (product, statements_of) in reversed(list(enumerate(zip(self.products, slices, strict=True)))):
            own: list[ir.Statement] = []
            if product.loop is not None:
                number = ir.ProgramId(loop_axis) - product.first
                own.append(ir.Assign(product.loop.index, number * product.step))
            own += [*statements_of, ir.Assign(names[n], product.operand(right))]
            body = (
                (ir.If(ir.ProgramId(loop_axis) < product.first + product.iterations, tuple(own), body),)
                if body
                else tuple(own)
            )
        return list(body)


def _is_prepacked_sum(kernel: ir.Kernel, products: Sequence[SummedProduct], packed: Sequence[PackedOperand]) -> bool:
    """Whether low-precision products make up one sum from zero and all of their operands are prepacked."""
    found = {(p.operand, p.right) for p in packed}
    if any((product.operand(right), right) not in found for product in products for right in (False, True)):
        return False
    names = {product.dot.accumulator for product in products}
    begins = [
        s for s in kernel.body if isinstance(s, ir.Assign) and ir.Name(s.name) in names and isinstance(s.value, ir.Full)
    ]
    return products[0].form.parts > 0 and len(begins) == 1 == len(names)


def _as_int64(x: ir.Tile) -> ir.Tile:
    """Cast an address to int64: tiles may take more than 2 GiB."""
    return ir.Cast(x, int64)
