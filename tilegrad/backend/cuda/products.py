"""Recognise kernels that compute a matrix product with a simple epilogue, so that a library can replace them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir import tile as ir
from ...ir.dtype import DType, float32
from .code.dot_operands import Strided
from .sums import NotRecognised, ProductKernel, Terms, require


class Matrix(NamedTuple):
    """The matrices of a batch: argument of the kernel, and strides per line, column and matrix, in elements."""

    argument: int
    dtype: DType
    line: int
    column: int
    apart: int


class ProductProblem(NamedTuple):
    """out = x @ y for each matrix of a batch, with an optional bias per column and ReLU."""

    m: int
    n: int
    k: int
    batch: int
    x: Matrix
    y: Matrix
    out: Matrix
    bias: int = -1
    """Argument with the bias; -1 without one."""
    relu: bool = False
    precision: str = "highest"

    @property
    def operations(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def given(self) -> tuple[Matrix, Matrix]:
        return self.x, self.y

    @property
    def made(self) -> Matrix:
        return self.out

    @property
    def results(self) -> int:
        return self.elements()[self.out.argument]

    def elements(self) -> dict[int, int]:
        """Return the number of elements of each argument."""
        found: dict[int, int] = {}
        shapes = ((self.x, (self.m, self.k)), (self.y, (self.k, self.n)), (self.out, (self.m, self.n)))
        for matrix, (lines, columns) in shapes:
            last = (lines - 1) * matrix.line + (columns - 1) * matrix.column + (self.batch - 1) * matrix.apart
            found[matrix.argument] = max(found.get(matrix.argument, 0), last + 1)
        return found if self.bias < 0 else {**found, self.bias: self.n}

    def __str__(self) -> str:
        more = (" + bias" if self.bias >= 0 else "") + (", relu" if self.relu else "")
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.k} @ {self.k} x {self.n} {self.x.dtype}{more}"


def product_of(kernel: ir.Kernel, extents: Sequence[int]) -> ProductProblem | None:
    """Return the product that a kernel computes on a grid with these extents, or None.

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
        return _ProductRecogniser(kernel, extents).found()
    except NotRecognised:
        return None


class _ProductGrid(NamedTuple):
    """The grid of a product: what counts rows and columns, the shape of all tiles, and the batch with its strides."""

    counted: tuple[Terms, Terms]
    m: int
    n: int
    batch: int
    strides: tuple[int, int, int]


class _ProductRecogniser(ProductKernel):
    def __init__(self, kernel: ir.Kernel, extents: Sequence[int]) -> None:
        super().__init__(kernel, extents)
        require(len(self.loops) <= 1)
        self.loop = self.loops[0] if self.loops else None

    def found(self) -> ProductProblem:
        x, y, pointer = self.operand(self.dot.x), self.operand(self.dot.y), self.store.pointer
        t = self.definitions.types.of(pointer)
        steps = (self.definitions.step(pointer, -2) or 0, self.definitions.step(pointer, -1) or 0)
        target = self.definitions.parameter(pointer)
        require(target is not None and t.shape == (x.shape[0], y.shape[1]) and t.dtype in (x.dtype, float32))
        firsts = [self.definitions.linear_form(p) for p in (x.pointer, y.pointer, pointer)]
        grid = self._grid(x, y, steps, firsts)
        k, index = self._depth(x.shape[1])
        if index is not None:
            require(firsts[0].pop(index, 0) == x.steps[1] and firsts[1].pop(index, 0) == y.steps[0])
        require(not any(firsts))
        m, n = self._stored(grid.counted, grid.m, grid.n)
        k = self._check_bounds(x, y, grid.counted, (m, n, k), {index: 1} if index else {})
        bias, relu = self.rest(-1, grid.counted[1], n, t.dtype)
        read = {self.places[x.parameter], self.places[y.parameter]} | ({bias} if bias >= 0 else set())
        self.check_places(read, str(target))
        require(x.pitch >= (k if x.along else m) and y.pitch >= (n if y.along else k))
        require(steps[0] >= n and steps[1] == 1)
        left = Matrix(self.places[x.parameter], x.dtype, *x.steps, grid.strides[0])
        right = Matrix(self.places[y.parameter], y.dtype, *y.steps, grid.strides[1])
        made = Matrix(self.places[str(target)], t.dtype, *steps, grid.strides[2])
        precision = self.dot.precision if x.dtype is float32 else "highest"
        return ProductProblem(m, n, k, grid.batch, left, right, made, bias, relu, precision)

    def _grid(self, x: Strided, y: Strided, steps: tuple[int, int], firsts: list[Terms]) -> _ProductGrid:
        """Match the axes of the grid with rows, columns and batch; removes their terms from the offsets."""
        rows, columns = x.shape[0], y.shape[1]
        counted: list[Terms] = [{}, {}]
        shape, batch, strides = [rows, columns], 1, (0, 0, 0)
        for axis, extent in enumerate(self.extents):
            id = ir.ProgramId(axis)
            moves = (firsts[0].pop(id, 0), firsts[1].pop(id, 0), firsts[2].pop(id, 0))
            if not counted[0] and moves == (x.steps[0] * rows, 0, steps[0] * rows):
                counted[0], shape[0] = {id: rows}, rows * extent
            elif not counted[1] and moves == (0, y.steps[1] * columns, steps[1] * columns):
                counted[1], shape[1] = {id: columns}, columns * extent
            elif extent > 1:
                require(batch == 1 and moves[2])
                batch, strides = extent, moves
        return _ProductGrid((counted[0], counted[1]), shape[0], shape[1], batch, strides)

    def _check_bounds(
        self, x: Strided, y: Strided, counted: tuple[Terms, Terms], shape: tuple[int, int, int], index: Terms
    ) -> int:
        """Check that masks of the operands only exclude what is not stored; return the depth they leave."""
        m, n, k = shape
        for bound, place, extent in ((x.bounds[0], counted[0], m), (y.bounds[1], counted[1], n)):
            require(bound is None or (self.definitions.linear_form(bound.at) == place and bound.extent >= extent))
        for bound in (x.bounds[1], y.bounds[0]):
            require(bound is None or self.definitions.linear_form(bound.at) == index)
            k = k if bound is None else min(k, bound.extent)
        return k

    def _depth(self, depth: int) -> tuple[int, ir.Tile | None]:
        """Return the depth that the loop covers, and its index."""
        match self.loop:
            case None:
                return depth, None
            case ir.For(index, ir.Literal(0), ir.Literal(int(stop)), ir.Literal(int(step))) if step == depth:
                return -(-stop // step) * step, ir.Name(index)
        raise NotRecognised

    def _stored(self, counted: tuple[Terms, Terms], m: int, n: int) -> tuple[int, int]:
        """Return the shape of what is stored: whole tiles, limited by the mask."""
        shape = [m, n]
        for index, extent in self.definitions.comparisons(self.store.mask) if self.store.mask is not None else ():
            steps = (self.definitions.step(index, -2), self.definitions.step(index, -1))
            require(extent >= 0 and steps in ((1, 0), (0, 1)))
            axis = steps.index(1)
            require(self.definitions.linear_form(index) == counted[axis])
            shape[axis] = min(shape[axis], extent)
        return shape[0], shape[1]
