"""Product loops without tensor cores (float32 at `highest`, float64, int32), with operands copied asynchronously.

Both operands are stored to shared memory along their rows and columns, one line per k. An operand contiguous along k is
transposed element by element on the way: a warp copies eight of k by four rows, so that there are no bank conflicts and
whole sectors are read.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import float32, float64, int32, uint32
from . import dot_helpers as helpers
from .dot_operands import OperandAnalysis, Strided
from .dot_text import LoopIteration, Pipeline, part_source, thread_products
from .dot_tiling import Tiling
from .functions import MEMORY

PIPELINE_STAGES = 3
"""Stages in flight."""
MAX_STAGE_DEPTH = 16
"""Largest depth of a stage."""
PAD_BYTES = 16
"""Bytes of padding between the lines of a transposed operand."""


class ThreadOperand(NamedTuple):
    memory: Strided
    transposed: bool
    """Whether memory is contiguous along k."""
    extent: int
    covered: int
    """Extent that the multiplying threads cover."""

    @property
    def pitch(self) -> int:
        """Elements from line to line in shared memory."""
        bytes = self.memory.dtype.bytes
        return (-(-self.covered * bytes // 16) * 16 + (PAD_BYTES if self.transposed else 0)) // bytes


class ThreadLoop(NamedTuple):
    tiling: Tiling
    x: ThreadOperand
    y: ThreadOperand
    depth: int
    """Depth of the operands of a product."""
    piece: int
    """Depth of a stage."""

    @property
    def stage(self) -> int:
        return self.piece * (self.x.pitch + self.y.pitch) * self.x.memory.dtype.bytes

    @property
    def shared(self) -> int:
        return PIPELINE_STAGES * self.stage

    @property
    def strided(self) -> tuple[Strided, Strided]:
        return self.x.memory, self.y.memory

    @property
    def device_functions(self) -> tuple[str, ...]:
        return (helpers.COPIES,)

    def lines(self, sums: str, iteration: LoopIteration, shared: str) -> list[str]:
        """Return the lines of the loop."""
        parts, kind = self.depth // self.piece, MEMORY[self.x.memory.dtype.name]
        places = [
            f"{kind}* x_tile = reinterpret_cast<{kind}*>({shared} + at % {PIPELINE_STAGES} * {self.stage});",
            f"{kind}* y_tile = x_tile + {self.piece * self.x.pitch};",
        ]
        before, copies = [], []
        for name, side, source in zip("xy", (self.x, self.y), iteration.sources, strict=True):
            advance = self.piece * (1 if side.transposed else side.memory.pitch)
            of_side = _Copies(self, name, side)
            before += of_side.before()
            copies += of_side.lines(part_source(source, parts, advance))
        products = thread_products(sums, self.tiling, self.piece, (self.x.pitch, self.y.pitch), kind)
        pipeline = Pipeline(iteration, parts, PIPELINE_STAGES, places, copies, products)
        return [pipeline.trip_count, *before, *pipeline.lines]


def plan_thread_loop(analysis: OperandAnalysis, product: ir.Dot, tiling: Tiling) -> ThreadLoop | None:
    """Return the plan of a product loop whose operands can be copied unchanged, or None."""
    x, y = analysis.strided(product.x), analysis.strided(product.y)
    if (
        x is None
        or y is None
        or any((*x.bounds, *y.bounds))
        or x.dtype is not y.dtype
        or x.dtype not in (float32, float64, int32, uint32)
    ):
        return None
    depth = x.shape[1]
    piece = next(p for p in range(min(MAX_STAGE_DEPTH, depth), 0, -1) if depth % p == 0)
    if piece < 4:
        return None
    sides = (
        ThreadOperand(x, x.along == 1, x.shape[0], tiling.down * tiling.rows),
        ThreadOperand(y, y.along == 0, y.shape[1], tiling.across * tiling.columns),
    )
    if not all(side.transposed or _in_pieces(analysis, side) for side in sides):
        return None
    return ThreadLoop(tiling, *sides, depth, piece)


def _in_pieces(analysis: OperandAnalysis, side: ThreadOperand) -> bool:
    """Return whether lines can be copied in pieces of 16 bytes."""
    bytes = side.memory.dtype.bytes
    pieces = (side.extent, side.memory.pitch, analysis.divisor(side.memory.pointer))
    return all(n * bytes % 16 == 0 for n in pieces)


class _Distribution(NamedTuple):
    """Distributes pieces of lines, `wide` per line, over threads (or warps), numbered by `own`."""

    threads: int
    own: str
    pieces: int
    wide: int

    @property
    def iterations(self) -> int:
        return -(-self.pieces // self.threads)

    @property
    def even(self) -> bool:
        """Whether a thread advances by whole lines from iteration to iteration."""
        return self.threads % self.wide == 0 and self.pieces % self.threads == 0

    @property
    def lines_per_iteration(self) -> int:
        """Lines by which a thread advances."""
        return self.threads // self.wide

    def at(self, number: str) -> tuple[str, str]:
        """Return the line of a piece, and the place within it."""
        if self.wide == 1:
            return number, "0"
        return f"{number} / {self.wide}", f"{number} % {self.wide}"


class _Copies:
    """Writes the copies of one operand, in pieces of 16 bytes or element by element.

    A thread that advances by a constant distance keeps one address; recomputed addresses would exceed its registers.
    """

    def __init__(self, plan: ThreadLoop, name: str, side: ThreadOperand) -> None:
        self.name, self.side = name, side
        self.bytes = side.memory.dtype.bytes
        if side.transposed:
            near = gcd(plan.piece, 8)
            self.rows, self.near, wide = 32 // near, near, plan.piece // near
            warps = plan.tiling.threads // 32
            self.distribution = _Distribution(warps, "warp", -(-side.extent // self.rows) * wide, wide)
        else:
            self.rows, self.near, line = 1, 16 // self.bytes, side.extent * self.bytes // 16
            self.distribution = _Distribution(plan.tiling.threads, "thread", plan.piece * line, line)

    def _place(self, number: str) -> tuple[str, str]:
        """Return the k and the row of a piece."""
        line, within = self.distribution.at(number)
        if not self.side.transposed:
            return line, f"{within} * {self.near}"
        return f"{within} * {self.near} + lane % {self.near}", f"({line}) * {self.rows} + lane / {self.near}"

    def before(self) -> list[str]:
        """Declare a thread's first position in shared memory and in the operand, before the loop."""
        if not self.distribution.even:
            return []
        k, row = self._place(self.distribution.own)
        return [
            f"const int {self.name}_spot = ({k}) * {self.side.pitch} + {row};",
            f"const int64 {self.name}_own = {self._from(k, row)};",
        ]

    def _from(self, k: str, row: str) -> str:
        far, near = (row, k) if self.side.transposed else (k, row)
        return f"int64({far}) * {self.side.memory.pitch} + {near}"

    def lines(self, source: str) -> list[str]:
        """Start the copies of an iteration."""
        name, distribution, size = self.name, self.distribution, self.bytes if self.side.transposed else 16
        several = distribution.iterations > 1
        if distribution.even:
            lines_per_iteration = distribution.lines_per_iteration * self.rows
            there, here = (
                lines_per_iteration * self.side.memory.pitch,
                lines_per_iteration * (1 if self.side.transposed else self.side.pitch),
            )
            more = (f" + turn * {here}", f" + int64(turn) * {there}") if several else ("", "")
            row = f"{self._place(distribution.own)[1]}" + (f" + turn * {lines_per_iteration}" if several else "")
            copy = f"copy_{size}(shared_address({name}_tile + {name}_spot{more[0]}), {source} + {name}_own{more[1]});"
            body = [self._guarded(copy, row)]
        else:
            k, row = self._place("n")
            number = f"const int n = {distribution.own}" + (f" + turn * {distribution.threads};" if several else ";")
            to = f"shared_address({name}_tile + ({k}) * {self.side.pitch} + {row})"
            copy = self._guarded(f"copy_{size}({to}, {source} + {self._from(k, row)});", row)
            body = [
                number,
                f"if (n < {distribution.pieces}) {{ {copy} }}" if distribution.pieces % distribution.threads else copy,
            ]
        head = f"for (int turn = 0; turn < {distribution.iterations}; ++turn) {{" if several else "{"
        return [head, *[f"    {line}" for line in body], "}"]

    def _guarded(self, copy: str, row: str) -> str:
        """Guard copies of pieces that may exceed the rows."""
        inside = not self.side.transposed or self.side.extent % self.rows == 0
        return copy if inside else f"if ({row} < {self.side.extent}) {copy}"
