"""Loops of products by threads: float32 at `highest`, float64, int32, whose operands are copied meanwhile.

Both operands lie along their rows and columns in shared memory, a line for each k. What lies along k in memory is
turned on the way, number by number: eight of k by four rows for a warp, so that each meets a bank of its own and
whole sectors are read.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import float32, float64, int32, uint32
from .dot_operands import Definitions, Strided
from .dot_text import Turn, thread_products
from .dot_tiling import Tiling
from .functions import MEMORY

STAGES = 3
DEPTH = 16
"""Of a stage, at most."""
PAD = 16
"""Bytes between lines, where an operand is turned."""


class Side(NamedTuple):
    memory: Strided
    turned: bool
    """Whether memory lies along k."""
    extent: int
    covered: int
    """How far threads reach that multiply."""

    @property
    def pitch(self) -> int:
        """From line to line in shared memory, in elements."""
        bytes = self.memory.dtype.bytes
        return (-(-self.covered * bytes // 16) * 16 + (PAD if self.turned else 0)) // bytes


class Threaded(NamedTuple):
    tiling: Tiling
    x: Side
    y: Side
    depth: int
    """Of the operands of a product."""
    piece: int
    """Of a stage."""

    @property
    def stage(self) -> int:
        return self.piece * (self.x.pitch + self.y.pitch) * self.x.memory.dtype.bytes

    @property
    def shared(self) -> int:
        return STAGES * self.stage


def threaded_loop(definitions: Definitions, product: ir.Dot, tiling: Tiling) -> Threaded | None:
    """How a product in a loop is done, if its operands can be copied as they are."""
    x, y = definitions.strided(product.x), definitions.strided(product.y)
    if (
        x is None
        or y is None
        or any((*x.bounds, *y.bounds))
        or x.dtype is not y.dtype
        or x.dtype not in (float32, float64, int32, uint32)
    ):
        return None
    depth = x.shape[1]
    piece = next(p for p in range(min(DEPTH, depth), 0, -1) if depth % p == 0)
    if piece < 4:
        return None
    sides = (
        Side(x, x.along == 1, x.shape[0], tiling.down * tiling.rows),
        Side(y, y.along == 0, y.shape[1], tiling.across * tiling.columns),
    )
    if not all(side.turned or _in_pieces(definitions, side) for side in sides):
        return None
    return Threaded(tiling, *sides, depth, piece)


def _in_pieces(definitions: Definitions, side: Side) -> bool:
    """Whether lines can be copied by 16 bytes."""
    bytes = side.memory.dtype.bytes
    pieces = (side.extent, side.memory.pitch, definitions.divisor(side.memory.pointer))
    return all(n * bytes % 16 == 0 for n in pieces)


def threaded_text(plan: Threaded, sums: str, turn_of: Turn, shared: str) -> list[str]:
    """The loop."""
    loop, sources, numbers = turn_of
    index, start, stop, step = loop
    parts = plan.depth // plan.piece
    turn, part = ("at", "0") if parts == 1 else (f"at / {parts}", f"at % {parts}")
    dtype = plan.x.memory.dtype
    kind = MEMORY[dtype.name]
    places = [
        f"{kind}* x_tile = reinterpret_cast<{kind}*>({shared} + at % {STAGES} * {plan.stage});",
        f"{kind}* y_tile = x_tile + {plan.piece * plan.x.pitch};",
    ]
    copies = []
    for name, side, source in zip("xy", (plan.x, plan.y), sources, strict=True):
        advance = plan.piece * (1 if side.turned else side.memory.pitch)
        first = source if parts == 1 else f"{source} + int64({part}) * {advance}"
        copies += _copied(plan, name, side, first, kind)
    total = f"(({stop}) - ({start}) + {step} - 1) / ({step})" + (f" * {parts}" if parts > 1 else "")
    return [
        f"const int turns = {total};",
        "auto copy = [&](int at) {",
        f"    const {index} = {start} + {turn} * {step};",
        *[f"    {line}" for line in numbers],
        *[f"    {line}" for line in places],
        *[f"    {line}" for line in copies],
        "};",
        f"for (int at = 0; at < {STAGES - 1}; ++at) {{",
        "    if (at < turns) copy(at);",
        "    commit_copies();",
        "}",
        "for (int at = 0; at < turns; ++at) {",
        f"    wait_for_copies<{STAGES - 2}>();",
        "    __syncthreads();",
        f"    if (at + {STAGES - 1} < turns) copy(at + {STAGES - 1});",
        "    commit_copies();",
        *[f"    {line}" for line in places],
        *[f"    {line}" for line in thread_products(sums, plan.tiling, plan.piece, (plan.x.pitch, plan.y.pitch), kind)],
        "}",
        "wait_for_copies<0>();",
    ]


def _copied(plan: Threaded, name: str, side: Side, source: str, kind: str) -> list[str]:
    """Begins to copy an operand: in pieces of 16 bytes, or number by number.

    From turn to turn a thread goes on by a constant distance, if the extents allow it: then one address will do.
    """
    bytes, pitch = side.memory.dtype.bytes, side.memory.pitch
    if not side.turned:
        each = 16 // bytes
        line = side.extent // each
        at = _Spread(plan.tiling.threads, "threadIdx.x", plan.piece * line, line)
        k, row = at.across, f"{at.within} * {each}"
        to = f"address_of({name}_tile + ({k}) * {side.pitch} + {row})"
        return at.lines(f"copy_16({to}, {source} + int64({k}) * {pitch} + {row});")
    near = gcd(plan.piece, 8)
    rows, wide = 32 // near, plan.piece // near
    at = _Spread(plan.tiling.threads // 32, "threadIdx.x / 32", -(-side.extent // rows) * wide, wide)
    k, row = f"{at.within} * {near} + lane % {near}", f"({at.across}) * {rows} + lane / {near}"
    guard = f"if ({row} < {side.extent}) " if side.extent % rows else ""
    to = f"address_of({name}_tile + ({k}) * {side.pitch} + {row})"
    return at.lines(f"{guard}copy_{bytes}({to}, {source} + int64({row}) * {pitch} + {k});")


class _Spread:
    """Pieces of lines, `wide` of each, dealt out to threads (or warps), of which each has the number `own`."""

    def __init__(self, threads: int, own: str, count: int, wide: int) -> None:
        self.threads, self.own, self.count = threads, own, count
        self.turns = -(-count // threads)
        self.even = threads % wide == 0 and count % threads == 0
        if wide == 1:
            self.within, self.across = "0", f"{own} + turn * {threads}" if self.even and self.turns > 1 else "n"
        elif self.even:
            self.within = f"{own} % {wide}"
            self.across = f"{own} / {wide}" + (f" + turn * {threads // wide}" if self.turns > 1 else "")
        else:
            self.within, self.across = f"n % {wide}", f"n / {wide}"
        if wide == 1 and self.even and self.turns == 1:
            self.across = own

    def lines(self, text: str) -> list[str]:
        """Does something for each piece."""
        turn = f" + turn * {self.threads}" if self.turns > 1 else ""
        body = [] if self.even else [f"const int n = {self.own}{turn};"]
        body.append(f"if (n < {self.count}) {{ {text} }}" if self.count % self.threads else text)
        head = f"for (int turn = 0; turn < {self.turns}; ++turn) {{" if self.turns > 1 else "{"
        return [head, *[f"    {line}" for line in body], "}"]
