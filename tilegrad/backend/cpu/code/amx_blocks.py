"""Compute the blocks of a matrix product with AMX, two tiles by two, and process the sums of the previous block
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..costs import AMX_MAX_PREFETCHED_LINES, AMX_MAX_UNROLLED_LINES
from ..emit import I1, I64, Builder, LlvmValue, Type, constant
from .amx_packing import ROWS, TILE_BYTES, WORDS, AmxTiles
from .low_precision_forms import LowPrecisionForm
from .memory import StackTile
from .nests import EmitVector, LoopNests
from .position import position

CONFIGURATION = "@tile_configuration"
FIRST_LEFT, FIRST_RIGHT = 4, 6
"""Numbers of the first tile registers of the left and the right operand; the sums are in those before."""


class LoadTile(NamedTuple):
    """Load a part of an operand into a tile register: 4 and 5 hold rows, 6 and 7 columns."""

    tile: int
    part: int


class MultiplyTiles(NamedTuple):
    """Multiply row r of tiles by column c."""

    row: int
    column: int


def schedule_step(form: LowPrecisionForm, tall: int, wide: int) -> list[LoadTile | MultiplyTiles]:
    """Schedule one step along k: each tile register is reloaded as soon as its last use is over, so that the unit never
    waits.

    >>> for instruction in schedule_step(LowPrecisionForm(1, ((0, 0),)), 2, 2): print(*instruction, end="; ")
    4 0; 6 0; 0 0; 7 0; 0 1; 5 0; 1 0; 1 1;
    """
    work: list[tuple[int, int, int, int]] = []
    for (one, two), after in zip(form.products, (*form.products[1:], form.products[-1]), strict=True):
        places = [(r, c) for r in range(tall) for c in range(wide)]
        if after[0] == one and after[1] != two:  # columns change next: release the first one early
            places.sort(key=lambda place: place[1])
        work += [(one, two, r, c) for r, c in places]
    made: list[LoadTile | MultiplyTiles] = []
    has: dict[int, int] = {}
    for n, (one, two, r, c) in enumerate(work):
        for tile, part in ((FIRST_LEFT + r, one), (FIRST_RIGHT + c, two)):
            if has.get(tile) != part:
                made.append(LoadTile(tile, part))
                has[tile] = part
        made.append(MultiplyTiles(r, c))
        for tile in (FIRST_LEFT + r, FIRST_RIGHT + c):
            ahead = work[n + 1 : n + 1 + 2 * tall * wide]
            used = (w for w in ahead if tile in (FIRST_LEFT + w[2], FIRST_RIGHT + w[3]))
            following = next((w[tile >= FIRST_RIGHT] for w in used), has[tile])
            if following != has[tile]:
                made.append(LoadTile(tile, following))
                has[tile] = following
    return made


def amx_instruction(b: Builder, name: str, arguments: str = "") -> None:
    """Emit an AMX instruction."""
    types = ", ".join(argument.split()[0] for argument in arguments.split(", ") if argument)
    b.declarations.setdefault(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
    b.effect(f"call void @llvm.x86.{name}({arguments})")


@contextmanager
def configured_tiles(b: Builder) -> Iterator[None]:
    """Configure the tile registers for the code emitted within."""
    b.declarations.setdefault(CONFIGURATION, _configuration())
    amx_instruction(b, "ldtilecfg", f"ptr {CONFIGURATION}")
    yield
    amx_instruction(b, "tilerelease")


def _configuration() -> str:
    """All eight tiles have 16 rows of 64 bytes."""
    data = bytes([1, 0, *[0] * 14, *[64, 0] * 8, *[0] * 16, *[ROWS] * 8, *[0] * 8])
    shown = "".join(f"\\{byte:02X}" for byte in data)
    return f'{CONFIGURATION} = private constant [64 x i8] c"{shown}", align 64'


class BlockSums(NamedTuple):
    """Storing of the sums of blocks: `begins` says whether they overwrite the result or are added to it; the last ones
    (`ends`) go through the epilogue `finish` instead.
    """

    begins: LlvmValue
    ends: LlvmValue = constant(False, I1)
    finish: EmitVector | None = None
    prefetches: bool = False
    """Whether operands were prepacked, and are prefetched."""

    @property
    def are_direct(self) -> bool:
        """Whether tile registers are stored straight to the result."""
        return self.finish is None and self.prefetches and self.begins.text == "true"


class AmxBlocks:
    """Emits the blocks of a result: two tiles by two, or fewer at the ends.

    The sums of a block are processed during the steps of the next block, some lines in each step: vectors are added,
    rounded and stored while the unit multiplies.
    """

    def __init__(
        self,
        nests: LoopNests,
        out: StackTile,
        tiles: tuple[AmxTiles, AmxTiles],
        form: LowPrecisionForm,
        sums: BlockSums,
    ) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        (self.left, self.right), self.form, self.storing = tiles, form, sums
        self.m, self.n = out.shape
        self.blocks, self.tall = -(-self.m // ROWS), min(2, -(-self.m // ROWS))
        self.sums = None if sums.are_direct else self.b.allocate(4 * ROWS * WORDS * 4, "sums")

    def write(self) -> None:
        blocks = -(-self.n // WORDS)
        if blocks > 1:
            self._columns(0, blocks // 2 * 2, 2)
        if blocks % 2:
            self._columns(blocks - 1, blocks, 1)

    def _columns(self, start: int, end: int, wide: int) -> None:
        """Emit the blocks of some columns, rows of blocks innermost: the tiles of a column stay in the L1 cache.

        Tiles of rows are streamed, and loaded with a non-temporal hint if they have one part.
        """
        b = self.b
        outer = self.nests.loop("n", start, end, wide)
        inner = self.nests.loop("m", 0, self.blocks, self.tall)
        row, column, last = inner.index, outer.index, constant((self.blocks - 1) // self.tall * self.tall, I64)
        top = b.compare("eq", row, constant(0, I64))
        first = b.op("and", top, b.compare("eq", column, constant(start, I64)))
        above = b.select(top, last, b.op("sub", row, constant(self.tall, I64)))
        column_index = b.select(top, b.op("sub", column, constant(wide, I64)), column)
        self._block(row, column, wide, (first, above, column_index))
        b.close_loop(inner)
        b.close_loop(outer)
        if self.sums is not None:
            place = last, constant(end - wide, I64)
            self._process_lines(self.sums, constant(0, I64), self.tall * ROWS, place, wide)

    def _block(
        self, row: LlvmValue, column: LlvmValue, wide: int, before: tuple[LlvmValue, LlvmValue, LlvmValue]
    ) -> None:
        """Emit a block, and process the previous one unless this is the first."""
        b, e, tall = self.b, self.e, self.tall
        e.begin_nest()
        rows = [b.op("add", row, constant(r, I64)) for r in range(tall)]
        if self.blocks % tall:
            rows = [b.intrinsic("smin", r, constant(self.blocks - 1, I64)) for r in rows]
        columns = [b.op("add", column, constant(c, I64)) for c in range(wide)]
        if self.storing.begins.text != "true":
            self._prefetch_result(row, column, wide)
        for number in range(tall * wide):
            amx_instruction(b, "tilezero", f"i8 {number}")
        loop = self.nests.loop("k", 0, self.left.steps, 1)
        self._prefetch_operand(row, column, loop.index, wide)
        for instruction in schedule_step(self.form, tall, wide):
            match instruction:
                case LoadTile(tile, part) if tile < FIRST_RIGHT:
                    at = self.left.at(b, rows[tile - FIRST_LEFT], loop.index, part, constant(0, I64))
                    load = "tileloaddt164" if self.form.parts == 1 else "tileloadd64"
                    amx_instruction(b, load, f"i8 {tile}, ptr {at}, i64 64")
                case LoadTile(tile, part):
                    at = self.right.at(b, columns[tile - FIRST_RIGHT], loop.index, part, constant(0, I64))
                    amx_instruction(b, "tileloadd64", f"i8 {tile}, ptr {at}, i64 64")
                case MultiplyTiles(r, c):
                    tiles = f"i8 {r * wide + c}, i8 {FIRST_LEFT + r}, i8 {FIRST_RIGHT + c}"
                    amx_instruction(b, self.form.instruction, tiles)
        if self.sums is not None:
            self._process_step(self.sums, loop.index, before, wide)
        b.close_loop(loop)
        self._store_tiles(rows, columns)
        e.begin_nest()

    def _store_tiles(self, rows: list[LlvmValue], columns: list[LlvmValue]) -> None:
        """Store the accumulators of a block: in the memory for its sums, or as results."""
        b, wide = self.b, len(columns)
        pitch = wide * WORDS * 4 if self.sums is not None else self._row_bytes()
        for number in range(self.tall * wide):
            r, c = divmod(number, wide)
            if self.sums is None:
                at = self._tile_address(rows[r], columns[c])
            else:
                at = b.offset(self.sums, self.out.element, constant((r * ROWS * wide + c) * WORDS, I64))
            amx_instruction(b, "tilestored64", f"i8 {number}, ptr {at}, i64 {pitch}")

    def _process_step(
        self, sums: LlvmValue, step: LlvmValue, before: tuple[LlvmValue, LlvmValue, LlvmValue], wide: int
    ) -> None:
        """Process the lines of the previous block that belong to a step: a power of two, which divides all of them."""
        b, (first, *place), lines = self.b, before, self.tall * ROWS
        each = next(n for n in (1, 2, 4, 8, 16, 32) if n * self.left.steps >= lines)
        b.open_branch("none")
        nothing = b.close_branch()
        b.open_branch("before")
        self._process_lines(sums, b.op("mul", step, constant(each, I64)), each, (place[0], place[1]), wide)
        none = first
        if each * self.left.steps > lines:
            none = b.op("or", first, b.compare("uge", step, constant(lines // each, I64)))
        b.close_branches(none, nothing, b.close_branch())
        self.e.begin_nest()

    def _process_lines(
        self, sums: LlvmValue, line: LlvmValue, count: int, place: tuple[LlvmValue, LlvmValue], wide: int
    ) -> None:
        """Store lines of a block in the result, or pass them to the epilogue."""
        b, ends = self.b, self.storing.ends
        if ends.is_constant:
            return self._store_lines(
                sums, line, count, place, wide, self.storing.finish if ends.text == "true" else None
            )
        b.open_branch("last")
        self._store_lines(sums, line, count, place, wide, self.storing.finish)
        last = b.close_branch()
        b.open_branch("more")
        self._store_lines(sums, line, count, place, wide, None)
        b.close_branches(ends, last, b.close_branch())
        self.e.begin_nest()

    def _store_lines(
        self,
        sums: LlvmValue,
        line: LlvmValue,
        count: int,
        place: tuple[LlvmValue, LlvmValue],
        wide: int,
        finish: EmitVector | None,
    ) -> None:
        loop = self.nests.loop("line", 0, count, 1) if count > AMX_MAX_UNROLLED_LINES else None
        for n in range(1 if loop else count):
            self._store_line(
                sums, self.b.op("add", line, loop.index if loop else constant(n, I64)), place, wide, finish
            )
        if loop:
            self.b.close_loop(loop)
        self.e.begin_nest()

    def _store_line(
        self, sums: LlvmValue, line: LlvmValue, place: tuple[LlvmValue, LlvmValue], wide: int, finish: EmitVector | None
    ) -> None:
        """Store a line of the sums of a block; the memory of the result holds whole blocks."""
        b, e, element, begins = self.b, self.e, self.out.element, self.storing.begins
        e.begin_nest()
        type, add = Type(element, WORDS), "fadd" if self.out.dtype.is_float else "add"
        first = b.offset(sums, element, b.op("mul", line, constant(wide * WORDS, I64)))
        row_index = b.op("add", b.op("mul", place[0], constant(ROWS, I64)), line)
        for c in range(wide):
            column_index = b.op("mul", b.op("add", place[1], constant(c, I64)), constant(WORDS, I64))
            value, at = b.load_invariant(b.offset(first, element, constant(c * WORDS, I64)), type, 4), None
            if begins.text != "true" or finish is None:
                at = self.out.address_of(b, (row_index, column_index))
            if begins.text != "true" and at is not None:
                more = b.op(add, b.load_invariant(at, type, 4), value)
                value = more if begins.is_constant else b.select(begins, value, more)
            if finish is not None:
                finish(position((row_index, column_index), WORDS, aligned=True), value)
            else:
                b.effect(f"store {type} {value}, ptr {at}, align 4")
        e.begin_nest()

    def _prefetch_operand(self, row: LlvmValue, column: LlvmValue, step: LlvmValue, wide: int) -> None:
        """Prefetch the tiles of the next columns to the L2 cache, some lines in each step.

        Addresses past the last columns need not be mapped.
        """
        b, steps = self.b, self.left.steps
        heights = -(-self.blocks // self.tall)
        lines = -(-wide * self.form.parts * ROWS // heights)
        if not self.storing.prefetches or lines > AMX_MAX_PREFETCHED_LINES:
            return
        following = b.op("add", column, constant(wide, I64))
        first = self.right.at(b, following, constant(0, I64), 0, constant(0, I64))
        number = b.op("mul", b.op("udiv", row, constant(self.tall, I64)), constant(steps, I64))
        number = b.op("add", number, step)
        first = b.offset(first, "i8", b.op("mul", number, constant(64 * lines, I64)))
        for n in range(lines):
            b.prefetch(b.offset(first, "i8", constant(64 * n, I64)), 2)

    def _prefetch_result(self, row: LlvmValue, column: LlvmValue, wide: int) -> None:
        """Prefetch the accumulator of a block to the L1 cache while the block is computed."""
        b, first = self.b, self._tile_address(row, column)
        for line in range(self.tall * ROWS):
            for c in range(wide):
                b.prefetch(b.offset(first, "i8", constant(line * self._row_bytes() + c * TILE_BYTES // ROWS, I64)), 1)

    def _tile_address(self, row: LlvmValue, column: LlvmValue) -> LlvmValue:
        """Address of a tile of the result."""
        return self.out.address_of(self.b, [self.b.op("mul", x, constant(ROWS, I64)) for x in (row, column)])

    def _row_bytes(self) -> int:
        return 4 * self.out.row_pitch
