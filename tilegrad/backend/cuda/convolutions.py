"""Recognise kernels that compute a convolution with a simple epilogue, so that a library can replace them.

Such a kernel multiplies two matrices, one of which has overlapping lines (`transform/implicit_gemm.py`): windows of an
input that is already padded and deinterleaved in memory. So the problem has neither padding nor strides, and an axis of
the input may be longer than the distance to the next one. Gradients for an input have the form of a convolution, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...ir import tile as ir
from ...ir.dtype import DType, float32
from .split_k_sums import SplitSum
from .sums import NotRecognised, ProductKernel, Terms, require

MAX_AXES = 3
"""Most spatial axes of a convolution."""


class StridedTensor(NamedTuple):
    """A tensor in memory: argument of the kernel, offset of its first element, strides per image, channel and axis,
    stride per part, and the number of elements that the kernel touches.
    """

    argument: int
    dtype: DType
    first: int
    steps: tuple[int, ...]
    apart: int
    elements: int


class ConvolutionProblem(NamedTuple):
    """y[n, o, q] = sum of x[n, c, q + t * dilation] * w[o, t, c], with an optional bias per o and ReLU; or the gradient
    w of x and y, summed over n and q. `w` is dense. All of it is repeated for a number of `parts`.
    """

    of_weights: bool
    images: int
    channels: int
    outputs: int
    windows: tuple[int, ...]
    taps: tuple[int, ...]
    dilation: tuple[int, ...]
    parts: int
    x: StridedTensor
    w: StridedTensor
    y: StridedTensor
    bias: int = -1
    """Argument with the bias; -1 without one."""
    relu: bool = False
    precision: str = "highest"

    @property
    def operations(self) -> float:
        return 2.0 * self.parts * self.images * self.channels * self.outputs * math.prod((*self.windows, *self.taps))

    @property
    def made(self) -> StridedTensor:
        return self.w if self.of_weights else self.y

    @property
    def given(self) -> tuple[StridedTensor, StridedTensor]:
        return (self.x, self.y) if self.of_weights else (self.x, self.w)

    @property
    def results(self) -> int:
        if self.of_weights:
            return self.parts * self.outputs * self.channels * math.prod(self.taps)
        return self.y.elements

    def elements(self) -> dict[int, int]:
        """Return the number of elements of each argument."""
        found = {lying.argument: lying.elements for lying in (self.x, self.w, self.y)}
        return found if self.bias < 0 else {**found, self.bias: self.outputs}

    def whole(self, added: SplitSum) -> ConvolutionProblem | None:
        """Return the weight gradient whose split-K parts a sum adds up, or None."""
        consecutive = (self.x.apart, self.y.apart, self.w.apart) == (self.x.steps[0], self.y.steps[0], added.elements)
        if not (self.of_weights and added.pieces == self.parts > 1 and consecutive):
            return None
        windows = (*self.windows[:-1], self.windows[-1] * self.parts)
        w = self.w._replace(dtype=added.dtype, apart=0)
        x, y = (t._replace(steps=(t.steps[0] * self.parts, *t.steps[1:]), apart=0) for t in (self.x, self.y))
        return self._replace(windows=windows, parts=1, x=x, w=w, y=y)

    @property
    def overlaps(self) -> bool:
        """Whether rows or images of x overlap, sharing the padding between them."""
        outer = (self.x.steps[0] if self.images > 1 else None, *self.x.steps[2:])
        inner = zip(outer, self.x.steps[2:], self.extents, strict=False)
        return any(apart is not None and step * extent > apart for apart, step, extent in inner)

    @property
    def rows(self) -> list[int]:
        """Offset of x for each row of weights. A weight gradient sums over its own lines for each row: x has an axis of
        overlapping rows for all taps except those along a line.
        """
        found = [0]
        outer = zip(self.taps[:-1], self.x.steps[2:-1], strict=True) if self.of_weights else ()
        for taps, step in outer:
            found = [first + tap * step for first in found for tap in range(taps)]
        return found

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the axes of x."""
        return tuple([q + (t - 1) * d for q, t, d in zip(self.windows, self.taps, self.dilation, strict=True)])

    def __str__(self) -> str:
        more = (" + bias" if self.bias >= 0 else "") + (", relu" if self.relu else "")
        sides, taps = ("x".join(map(str, n)) for n in (self.extents, self.taps))
        what = "weights of " if self.of_weights else ""
        parts = f"{self.parts} x " if self.parts > 1 else ""
        size = f"{self.images} x {self.channels} x {sides}, {self.outputs} x {taps}"
        return f"{parts}{what}{size} {self.x.dtype}{more}"


class IndexDigit(NamedTuple):
    """`of // divisor % modulus`; without the remainder if the modulus is 0."""

    of: ir.Tile
    divisor: int = 1
    modulus: int = 0


class IndexStrides(NamedTuple):
    """The strides of the left operand, the right operand and the result along an index, and its extent."""

    operands: tuple[int, int]
    out: int
    extent: int


ONE = IndexDigit(ir.Literal(1))


def convolution_of(kernel: ir.Kernel, extents: Sequence[int]) -> ConvolutionProblem | None:
    """Return the convolution that a kernel computes on a grid with these extents, or None.

    >>> from ...ir.tile_parser import parse
    >>> kernel = parse('''
    ... def line_product(w: "*bf16", x: "*bf16", y: "*bf16"):
    ...     i = tl.program_id(0) * 64 + tl.arange(0, 64)
    ...     o = tl.program_id(1) * 16 + tl.arange(0, 16)
    ...     acc = tl.zeros([16, 64], tl.float32)
    ...     for k in range(3):
    ...         ks = tl.arange(0, 64)
    ...         mask = ks < 48
    ...         ws = tl.load(w + ((o * 144 + k * 48)[:, None] + ks[None, :]), mask=mask[None, :], other=0.0)
    ...         xs = tl.load(x + ((i * 16 + k * 128)[None, :] + ks[:, None]), mask=mask[:, None], other=0.0)
    ...         acc = tl.dot(ws, xs, acc)
    ...     row = i // 8 % 8
    ...     at = i % 8
    ...     place = (i // 64 * 1152 + row * 6 + at)[None, :] + (o * 36)[:, None]
    ...     tl.store(y + place, acc.to(tl.bfloat16), mask=((row < 6) & (at < 6))[None, :])
    ... ''')
    >>> print(convolution_of(kernel, (5, 2)))
    5 x 16 x 8x8, 32 x 3x3 bf16
    """
    try:
        return _ConvolutionRecogniser(kernel, extents).found()
    except NotRecognised:
        return None


class _ConvolutionRecogniser(ProductKernel):
    """Matches offsets of operands and result with sums of indices: a free index of each operand, the summed one, those
    of loops and of the grid. `firsts` holds the terms that are not matched yet.
    """

    def __init__(self, kernel: ir.Kernel, extents: Sequence[int]) -> None:
        super().__init__(kernel, extents)
        x, y, pointer = self.operand(self.dot.x), self.operand(self.dot.y), self.store.pointer
        self.operands = x, y
        (rows, self.depth), columns = x.shape, y.shape[1]
        self.tile = rows, columns
        self.free, self.deep = (x.steps[0], y.steps[1]), (x.steps[1], y.steps[0])
        made = self.definitions.types.of(pointer)
        target = self.definitions.parameter(pointer)
        require(target is not None and made.shape == self.tile and made.dtype in (x.dtype, float32))
        self.target, self.dtype = str(target), made.dtype
        self.out = self._even(pointer, -2), self._even(pointer, -1)
        self.firsts = [self._sum(p) for p in (x.pointer, y.pointer, pointer)]
        self.starts = [first.pop(ONE, 0) for first in self.firsts]
        require(min(self.starts) >= 0)
        self.touched = [
            1 + start + (tile - 1) * free + (self.depth - 1) * deep
            for start, tile, free, deep in zip(self.starts, self.tile, self.free, self.deep, strict=False)
        ]
        self.totals, self.counted = self._tiles()
        self.run = self._run()
        self.grid = self._grid()
        self.bounds, self.limits = self._stored()

    def found(self) -> ConvolutionProblem:
        digits = {d: n for d, n in self.firsts[2].items() if d.divisor > 1 or d.modulus}
        made = self._of_windows(digits) if digits else self._of_weights()
        require(max(made.taps) > 1 and not any(self.firsts) and not self.grid and not self.limits)
        read = {x.argument for x in made.given} | ({made.bias} if made.bias >= 0 else set())
        self.check_places(read, self.target)
        return made

    # --- the form of the kernel ----------------------------------------------------------------

    def _sum(self, x: ir.Tile) -> dict[IndexDigit, int]:
        found: dict[IndexDigit, int] = {}
        for term, factor in self.definitions.linear_form(x).items():
            digit = self._digit(term)
            found[digit] = found.get(digit, 0) + factor
        return found

    def _digit(self, x: ir.Tile) -> IndexDigit:
        x = self.definitions.resolved(x)
        match x:
            case ir.Cast(y) | ir.Expand(y) | ir.BroadcastTo(y):
                return self._digit(y)
            case ir.Apply("floordiv" | "mod" as fn, (y, ir.Literal(int(by)))) if by > 0:
                found = self._digit(y)
                if not found.modulus:
                    return IndexDigit(found.of, found.divisor * by) if fn == "floordiv" else found._replace(modulus=by)
        return IndexDigit(x)

    def _even(self, x: ir.Tile, axis: int) -> int:
        """Return the step of a sum along an axis, ignoring terms without a constant step."""
        step = self.definitions.step(x, axis)
        if step is not None:
            return step
        x = self.definitions.resolved(x)
        match x:
            case ir.Apply("add", args):
                return sum(self._even(y, axis) for y in args)
            case ir.Cast(y) | ir.BroadcastTo(y):
                return self._even(y, axis)
            case ir.Expand(y, axes):
                at = len(self.definitions.types.of(x).shape) + axis
                return self._even(y, axis + sum(1 for a in axes if a > at))
        return 0

    def _moves(self, digit: IndexDigit, extent: int) -> IndexStrides:
        """Return the strides along an index and remove its terms."""
        x, y, out = (first.pop(digit, 0) for first in self.firsts)
        for n, step in enumerate((x, y)):
            require(step >= 0)
            self.touched[n] += (extent - 1) * step
        return IndexStrides((x, y), out, extent)

    def _tiles(self) -> tuple[list[int], list[Terms]]:
        """Return the extents of the free axes over all tiles, and the indices that count them."""
        totals, counted = list(self.tile), [Terms(), Terms()]
        for n, extent in enumerate(self.extents):
            id = ir.ProgramId(n)
            moves = [first.get(IndexDigit(id), 0) for first in self.firsts]
            for axis, tile in enumerate(self.tile):
                wanted = [0, 0, self.out[axis] * tile]
                wanted[axis] = self.free[axis] * tile
                if not counted[axis] and moves == wanted and any(moves):
                    self._moves(IndexDigit(id), extent)
                    totals[axis], counted[axis] = tile * extent, {id: tile}
                    break
        return totals, counted

    def _run(self) -> int:
        """Return the depth that the innermost loop sums."""
        run, counted = self.depth, Terms()
        match self.loops[-1:]:
            case [ir.For(name, ir.Literal(0), ir.Literal(int(stop)), ir.Literal(int(step)))] if step == run > 1:
                self.loops = self.loops[:-1]
                run = -(-stop // step) * step
                moves = self._moves(IndexDigit(ir.Name(name)), run - step + 1)
                require(moves.operands == self.deep and not moves.out)
                counted = {ir.Name(name): 1}
        for operand, axis in zip(self.operands, (1, 0), strict=True):
            bound = operand.bounds[axis]
            require(bound is None or self.definitions.linear_form(bound.at) == counted)
            run = run if bound is None else min(run, bound.extent)
        return run

    def _grid(self) -> list[IndexStrides]:
        """Return the strides along the other indices of the grid."""
        found = []
        for n, extent in enumerate(self.extents):
            digits = {d for first in self.firsts for d in first if d.of == ir.ProgramId(n)}
            if any(ir.ProgramId(n) in counted for counted in self.counted):
                require(not digits)
                continue
            covered = 1
            for digit in sorted(digits, key=lambda d: d.divisor):
                require(digit.divisor == covered)
                each = digit.modulus or -(-extent // covered)
                covered *= each
                found.append(self._moves(digit, each))
            require(covered == extent)
        return found

    def _stored(self) -> tuple[list[int], dict[IndexDigit, int]]:
        """Return the bounds of the free axes, and of digits of their indices."""
        bounds, limits = list(self.totals), dict[IndexDigit, int]()
        for index, extent in self.definitions.comparisons(self.store.mask) if self.store.mask is not None else ():
            require(extent >= 0)
            digit = self._digit(index)
            if digit.divisor > 1 or digit.modulus:
                limits[digit] = min(extent, limits.get(digit, extent))
            else:
                axis = self._axis(digit.of)
                bounds[axis] = min(bounds[axis], extent)
        for axis, operand in enumerate(self.operands):
            bound = operand.bounds[axis]
            require(bound is None or self.definitions.linear_form(bound.at) == self.counted[axis])
            require(bound is None or bound.extent >= bounds[axis])
        return bounds, limits

    def _axis(self, index: ir.Tile) -> int:
        """Return the free axis that an index counts."""
        require(self.definitions.step(index, -1) == 1)
        shape, first = self.definitions.types.of(index).shape, self.definitions.linear_form(index)
        fits = [n for n in (0, 1) if first == self.counted[n] and shape == self.tile[n : n + 1]]
        require(len(fits) == 1)
        return fits[0]

    # --- what it computes ----------------------------------------------------------------------

    def _of_windows(self, digits: Mapping[IndexDigit, int]) -> ConvolutionProblem:
        """Match a result stored at digits of a window's index: image, row, place in the row."""
        axes = {self._axis(d.of) for d in digits}
        require(len(axes) == 1 and self.deep == (1, 1))
        (across,) = axes
        of_w = 1 - across
        channels, outputs = self.free[across], self.bounds[of_w]
        require(not self.out[across] and channels > 0 and self.run % channels == 0)
        places = sorted(digits, key=lambda d: -d.divisor)
        moves = {d: self.firsts[2].pop(d) for d in places}
        loops = [self._loop(loop) for loop in self.loops]
        inside = all(m.operands[across] < places[0].divisor * channels for m in loops)
        rows = places[1:] if inside else places
        periods = [self.bounds[across], *[d.divisor for d in places]]
        counts = [outer // d.divisor for d, outer in zip(places, periods, strict=False)]
        require(places[-1].divisor == 1 and not places[0].modulus and 1 <= len(rows) <= MAX_AXES)
        require(all(d.divisor * n == outer for d, n, outer in zip(places, counts, periods, strict=False)))
        require(all(d.modulus == n for d, n in zip(places[1:], counts[1:], strict=True)))
        images = counts[0] if inside else 1
        require(not (inside and places[0] in self.limits))
        windows = tuple([min(n, self.limits.pop(d, n)) for d, n in zip(places, counts, strict=True)][-len(rows) :])
        taps, dilation = self._taps([d.divisor * channels for d in rows], loops, across)
        parts, apart = self._parts(self.free[of_w] * outputs, self.free[of_w] * outputs, of_w)
        bias, relu = self.rest(of_w - 2, self.counted[of_w], outputs, self.dtype)
        lines = periods[1] * channels if inside else self.bounds[across] * channels
        x = self._lying(across, (lines, 1, *[d.divisor * channels for d in rows]), apart[across])
        w = self._lying(of_w, (), apart[of_w])
        steps = (moves[places[0]] if inside else 0, self.out[of_w], *[moves[d] for d in rows])
        y = self._made(steps, (images, outputs, *windows), apart[2], parts)
        shape = (images, channels, outputs, windows, taps, dilation)
        return ConvolutionProblem(False, *shape, parts, x, w, y, bias, relu, self._precision())

    def _loop(self, loop: ir.For) -> IndexStrides:
        match loop:
            case ir.For(name, ir.Literal(0), ir.Literal(int(stop)), ir.Literal(1)):
                found = self._moves(IndexDigit(ir.Name(name)), stop)
                require(not found.out and all(found.operands))
                return found
        raise NotRecognised

    def _taps(self, steps: Sequence[int], loops: Sequence[IndexStrides], across: int) -> tuple[tuple[int, ...], ...]:
        """Return the taps along each axis, on which an operand has stride `steps`, and their dilation; weights are read
        in order.
        """
        channels, last = steps[-1], len(steps)
        taps, dilation, inner = [1] * last, [1] * last, self.run
        for loop in reversed(loops):
            move = loop.operands[across]
            axis = next((n for n, step in enumerate(steps) if move % step == 0), last)
            require(axis < last and loop.operands[1 - across] == inner)
            taps[axis], dilation[axis], last = loop.extent, move // steps[axis], axis
            inner *= loop.extent
        if taps[-1] == 1:
            taps[-1] = self.run // channels
        else:
            require(self.run == channels)
        require(self.free[1 - across] == inner)
        return tuple(taps), tuple(dilation)

    def _of_weights(self) -> ConvolutionProblem:
        """Match a result stored at taps, outermost first, and along a row of the input: more taps, and channels."""
        across = self.out.index(1) if 1 in self.out else 0
        of_y = 1 - across
        channels, run, outputs = self.deep[across], self.bounds[across], self.bounds[of_y]
        require(self.out[across] == 1 == self.free[across] and not self.loops)
        require(channels > 0 and self.free[of_y] > 0 and self.deep[of_y] > 0 and run % channels == 0)
        of_taps = sorted([m for m in self.grid if not m.operands[of_y]], key=lambda m: m.out)
        inner = run
        for m in of_taps:
            require(m.out == inner and m.operands[across] > 0)
            inner *= m.extent
        require(self.out[of_y] == inner and len(of_taps) < MAX_AXES)
        self.grid = [m for m in self.grid if m not in of_taps]
        parts, apart = self._parts(inner * outputs, 0, of_y)
        require(self.rest(of_y - 2, {}, outputs, self.dtype) == (-1, False))
        of_taps.reverse()
        whole = self.run * channels
        x = self._lying(across, (whole, 1, *[m.operands[across] for m in of_taps], channels), apart[across])
        whole = self.run * self.deep[of_y]
        y = self._lying(of_y, (whole, self.free[of_y], *[whole] * len(of_taps), self.deep[of_y]), apart[of_y])
        w = self._made((), (parts * inner * outputs,), 0, 1)._replace(apart=apart[2])
        windows = (*[1] * len(of_taps), self.run)
        taps = (*[m.extent for m in of_taps], run // channels)
        shape = (1, channels, outputs, windows, taps, (1,) * len(taps))
        return ConvolutionProblem(True, *shape, parts, x, w, y, precision=self._precision())

    def _parts(self, out: int, of_weights: int, weights: int) -> tuple[int, tuple[int, int, int]]:
        """Return the number of parts and their strides."""
        if not self.grid:
            return 1, (0, 0, 0)
        require(len(self.grid) == 1)
        moves = self.grid.pop()
        require(all(moves.operands) and moves.out > 0)
        require(moves.operands[weights] == of_weights if of_weights else moves.out == out)
        return moves.extent, (*moves.operands, moves.out)

    def _lying(self, operand: int, steps: tuple[int, ...], apart: int) -> StridedTensor:
        memory = self.operands[operand]
        place = self.places[memory.parameter]
        return StridedTensor(place, memory.dtype, self.starts[operand], steps, apart, self.touched[operand])

    def _made(self, steps: tuple[int, ...], extents: tuple[int, ...], apart: int, parts: int) -> StridedTensor:
        last = sum((n - 1) * step for n, step in zip(extents, steps or (1,), strict=True)) + (parts - 1) * apart
        return StridedTensor(
            self.places[self.target], self.dtype, self.starts[2], steps, apart, self.starts[2] + last + 1
        )

    def _precision(self) -> str:
        return self.dot.precision if self.operands[0].dtype is float32 else "highest"
