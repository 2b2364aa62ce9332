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
    if x is None or y is None or any((*x.bounds, *y.bounds)) or x.dtype is not y.dtype or x.dtype not in (float32, float64, int32, uint32):
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
    """Begins to copy an operand: in pieces of 16 bytes, or number by number."""
    threads, bytes, pitch = plan.tiling.threads, side.memory.dtype.bytes, side.memory.pitch
    if not side.turned:
        each = 16 // bytes
        line = side.extent // each
        count = plan.piece * line
        at, k = f"n % {line} * {each}", f"n / {line}"
        copy = f"copy_16(address_of({name}_tile + {k} * {side.pitch} + {at}), {source} + int64({k}) * {pitch} + {at});"
        return _spread(count, threads, copy)
    near = gcd(plan.piece, 8)
    rows, wide = 32 // near, plan.piece // near
    count = -(-side.extent // rows) * wide
    k = f"lane % {near}" if wide == 1 else f"n % {wide} * {near} + lane % {near}"
    at = f"n / {wide} * {rows} + lane / {near}"
    guard = f"if ({at} < {side.extent}) " if side.extent % rows else ""
    to = f"address_of({name}_tile + ({k}) * {side.pitch} + {at})"
    copy = f"{guard}copy_{bytes}({to}, {source} + int64({at}) * {pitch} + {k});"
    return _spread(count, threads // 32, copy, "threadIdx.x / 32")


def _spread(count: int, threads: int, text: str, first: str = "threadIdx.x") -> list[str]:
    """Does something for n below a count, spread over the threads (or warps)."""
    turns = -(-count // threads)
    body = [f"int n = {first} + turn * {threads};" if turns > 1 else f"int n = {first};"]
    body.append(f"if (n < {count}) {{ {text} }}" if count % threads else text)
    head = f"for (int turn = 0; turn < {turns}; ++turn) {{" if turns > 1 else "{"
    return [head, *[f"    {line}" for line in body], "}"]
