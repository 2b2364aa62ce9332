"""Kernels that are a matrix product with little more: what a library that has products could do in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir import tile as ir
from ...ir.dtype import DType, bfloat16, float16, float32
from ...ir.tile_access import statements
from ...ir.tile_checker import check
from .code.dot_operands import Definitions, Strided

TYPES = (bfloat16, float16, float32)


class Matrix(NamedTuple):
    """A tensor as the matrices of a batch: which argument of the kernel, and how far it is to the next line, column and
    matrix, in elements."""

    argument: int
    dtype: DType
    line: int
    column: int
    apart: int


class Product(NamedTuple):
    """out = x @ y for each matrix of a batch; then perhaps a bias for each column is added, and what is negative 0."""

    m: int
    n: int
    k: int
    batch: int
    x: Matrix
    y: Matrix
    out: Matrix
    bias: int = -1
    """The argument with the bias."""
    relu: bool = False
    precision: str = "highest"

    @property
    def operations(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.batch

    def __str__(self) -> str:
        more = (" + bias" if self.bias >= 0 else "") + (", relu" if self.relu else "")
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.k} @ {self.k} x {self.n} {self.x.dtype}{more}"


class _Other(Exception):
    """The kernel is something else."""


def product_of(kernel: ir.Kernel, extents: Sequence[int]) -> Product | None:
    """What the kernel computes when its grid has these extents, if that is a product.

    >>> from ...ir.tile_parser import parse
    >>> kernel = parse('''
    ... def contract(x: "*bf16", y: "*bf16", out: "*bf16"):
    ...     i = tl.program_id(0) * 64 + tl.arange(0, 64)
    ...     j = tl.program_id(1) * 32 + tl.arange(0, 32)
    ...     acc = tl.zeros([32, 64], tl.float32)
    ...     for k in range(0, 96, 32):
    ...         ks = k + tl.arange(0, 32)
    ...         acc = tl.dot(tl.load(x + ((j * 96)[:, None] + ks[None, :])),
    ...                      tl.load(y + ((ks * 128)[:, None] + i[None, :])), acc)
    ...     tl.store(out + ((j * 128)[:, None] + i[None, :]), acc.to(tl.bfloat16))
    ... ''')
    >>> print(product_of(kernel, (2, 3)))
    96 x 96 @ 96 x 128 bf16
    """
    try:
        return _Finder(kernel, extents).found()
    except _Other:
        return None


def _need(fits: object) -> None:
    if not fits:
        raise _Other


class _Finder:
    def __init__(self, kernel: ir.Kernel, extents: Sequence[int]) -> None:
        every = list(statements(kernel.body))
        _need(all(isinstance(s, ir.Assign | ir.For | ir.Store) for s in every))
        dots = [s for s in every if isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)]
        stores = [s for s in every if isinstance(s, ir.Store)]
        loops = [s for s in every if isinstance(s, ir.For)]
        _need(len(dots) == len(stores) == 1 and len(loops) <= 1 and stores[0] in kernel.body)
        self.loop = loops[0] if loops else None
        _need(self.loop is None or dots[0] in self.loop.body)
        dot = dots[0].value
        assert isinstance(dot, ir.Dot)
        self.sums, self.dot, self.store = dots[0].name, dot, stores[0]
        starts = [s.value for s in every if isinstance(s, ir.Assign) and s.name == self.sums and s is not dots[0]]
        _need(len(starts) == 1 and _is_zeros(starts[0]) and self.dot.accumulator == ir.Name(self.sums))
        self.definitions = Definitions(kernel, check(kernel))
        self.places = {p.name: n for n, p in enumerate(kernel.parameters)}
        self.extents = (*extents, 1, 1, 1)[:3]

    def found(self) -> Product:
        x, y, pointer = self._operand(self.dot.x), self._operand(self.dot.y), self.store.pointer
        (rows, depth), columns = x.shape, y.shape[1]
        t = self.definitions.types.of(pointer)
        steps = (self.definitions.step(pointer, -2) or 0, self.definitions.step(pointer, -1) or 0)
        target = self.definitions.parameter(pointer)
        _need(target is not None and t.shape == (rows, columns) and t.dtype in (x.dtype, float32))
        firsts = [self._first(p) for p in (x.pointer, y.pointer, pointer)]
        across: ir.Tile | None = None
        along: ir.Tile | None = None
        batch, apart = 1, (0, 0, 0)
        m, n = rows, columns
        for axis, extent in enumerate(self.extents):
            id = ir.ProgramId(axis)
            moves = (firsts[0].pop(id, 0), firsts[1].pop(id, 0), firsts[2].pop(id, 0))
            if across is None and moves == (x.steps[0] * rows, 0, steps[0] * rows):
                across, m = id, rows * extent
            elif along is None and moves == (0, y.steps[1] * columns, steps[1] * columns):
                along, n = id, columns * extent
            elif extent > 1:
                _need(batch == 1 and moves[2])
                batch, apart = extent, moves
        k, turn = self._depth(depth)
        if turn is not None:
            _need(firsts[0].pop(turn, 0) == x.steps[1] and firsts[1].pop(turn, 0) == y.steps[0])
        _need(not any(firsts))
        counted = ({across: rows} if across else {}, {along: columns} if along else {})
        m, n = self._stored(counted, m, n)
        for bound, index, extent in ((x.bounds[0], counted[0], m), (y.bounds[1], counted[1], n)):
            _need(bound is None or (self._first(bound.at) == index and bound.extent >= extent))
        for bound in (x.bounds[1], y.bounds[0]):
            _need(bound is None or self._first(bound.at) == ({turn: 1} if turn else {}))
            k = k if bound is None else min(k, bound.extent)
        bias, relu = self._rest(counted[1], columns, n, t.dtype)
        self._check_places(x, y, str(target), bias)
        _need(x.pitch >= (k if x.along else m) and y.pitch >= (n if y.along else k))
        _need(steps[0] >= n and steps[1] == 1)
        left = Matrix(self.places[x.parameter], x.dtype, *x.steps, apart[0])
        right = Matrix(self.places[y.parameter], y.dtype, *y.steps, apart[1])
        made = Matrix(self.places[str(target)], t.dtype, *steps, apart[2])
        precision = self.dot.precision if x.dtype is float32 else "highest"
        return Product(m, n, k, batch, left, right, made, bias, relu, precision)

    def _check_places(self, x: Strided, y: Strided, target: str, bias: int) -> None:
        """Every argument of the kernel is one of the product, and none that is read is written."""
        read = {self.places[x.parameter], self.places[y.parameter]} | ({bias} if bias >= 0 else set())
        _need(self.places[target] not in read and len(self.places) == len(read) + 1)

    def _first(self, x: ir.Tile) -> dict[ir.Tile, int]:
        """Where the first element of a tile is, as a sum."""
        return {term: factor for term, factor in self.definitions.coefficients(x).items() if factor}

    def _operand(self, x: ir.Tile) -> Strided:
        memory = self.definitions.strided(x)
        _need(memory is not None and memory.dtype in TYPES)
        assert memory is not None
        return memory

    def _depth(self, depth: int) -> tuple[int, ir.Tile | None]:
        """How far the loop goes, and its index."""
        match self.loop:
            case None:
                return depth, None
            case ir.For(index, ir.Literal(0), ir.Literal(int(stop)), ir.Literal(int(step))) if step == depth:
                return -(-stop // step) * step, ir.Name(index)
        raise _Other

    def _stored(self, counted: tuple[dict[ir.Tile, int], dict[ir.Tile, int]], m: int, n: int) -> tuple[int, int]:
        """The shape of what is stored: whole tiles, or as far as the mask says."""
        shape = [m, n]
        for index, extent in self.definitions.comparisons(self.store.mask) if self.store.mask is not None else ():
            steps = (self.definitions.step(index, -2), self.definitions.step(index, -1))
            _need(extent >= 0 and steps in ((1, 0), (0, 1)))
            axis = steps.index(1)
            _need(self._first(index) == counted[axis])
            shape[axis] = min(shape[axis], extent)
        return shape[0], shape[1]

    def _rest(self, counted: dict[ir.Tile, int], columns: int, n: int, dtype: DType) -> tuple[int, bool]:
        """The argument with a bias, or -1, and whether what is negative becomes 0: what is done with the sums."""
        value, relu, bias = self._plain(self.store.value, dtype), False, -1
        match value:
            case ir.Apply("maximum", (y, ir.Literal(zero))) | ir.Apply("maximum", (ir.Literal(zero), y)) if zero == 0:
                value, relu = self._plain(y, dtype), True
        match value:
            case ir.Apply("add", (y, z)):
                parts = [self._plain(part, dtype) for part in (y, z)]
                added = parts[0] if parts[1] == ir.Name(self.sums) else parts[1]
                value = parts[1] if added is parts[0] else parts[0]
                bias = self._bias(added, counted, columns, n, dtype)
        _need(value == ir.Name(self.sums))
        return bias, relu

    def _plain(self, x: ir.Tile, dtype: DType) -> ir.Tile:
        """Without names, without rounding to what is stored in the end, and without axes of extent 1."""
        while True:
            x = self.definitions.resolved(x)
            match x:
                case ir.Cast(y, to) if to in (dtype, float32):
                    x = y
                case ir.Expand(y, (0,)):
                    x = y
                case _:
                    return x

    def _bias(self, x: ir.Tile, counted: dict[ir.Tile, int], columns: int, n: int, dtype: DType) -> int:
        definitions = self.definitions
        _need(isinstance(x, ir.Load) and definitions.types.of(x).shape == (columns,))
        assert isinstance(x, ir.Load)
        parameter = definitions.parameter(x.pointer)
        _need(parameter is not None and definitions.types.of(x).dtype is dtype)
        _need(definitions.step(x.pointer, -1) == 1 and self._first(x.pointer) == counted)
        for index, extent in definitions.comparisons(x.mask) if x.mask is not None else ():
            _need(extent >= n and definitions.step(index, -1) == 1 and self._first(index) == counted)
        return self.places[str(parameter)]


def _is_zeros(x: ir.Tile) -> bool:
    return isinstance(x, ir.Full) and isinstance(x.value, ir.Literal) and x.value.value == 0
