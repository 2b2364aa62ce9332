"""Pack operands of matrix products for AMX: tiles of 16 rows of 64 bytes.

Consecutive numbers along k share a 32-bit word: two bfloat16 numbers, or four 8-bit integers. A tile of the left
operand has 16 of its rows, each with 16 words; a tile of the right operand has 16 words along k in its rows, and 16 of
its columns. Operands with the other layout are transposed in registers. float32 numbers are split into bfloat16
numbers, each rounded from the residual of those before it:

    x = upper + middle + lower

Tiles are padded with zeros along k; padding along the other axis never reaches a result. The unit flushes denormal
numbers to 0, and infinities cannot be split, so packing records the range of magnitudes.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, int8, uint8
from ..costs import AMX_PREFETCH_ROWS, AMX_PREFETCH_WORDS, AMX_WORDS_PER_PASS
from ..emit import I64, Builder, LlvmValue, OpenLoop, Type, constant
from .nests import LoopNests, transpose_square
from .packing import tabulate, transposed_operand
from .position import Position, position

ROWS, WORDS, DEPTH = 16, 16, 32
"""Rows of a tile, words in a row, and the depth of a tile of 16-bit numbers."""
TILE_BYTES, RANGE_BYTES = 1024, 64
"""Bytes of a tile, and of a vector with a recorded magnitude."""
HALVES, FLOATS, FOUR = Type("i16", 32), Type("float", 16), Type("i32", 16)

MAX_EXPONENT_SUM = 364
"""Bound of the sum of the largest biased exponents of both operands: products stay below 2**112."""
MIN_EXPONENT_SUM = 160
"""Bound of the sum of the smallest biased exponents: the last bits of products of parts are above 2**-126."""
MAX_EXPONENT, MIN_EXPONENT = 250, 27
"""Bounds of the biased exponents of each operand: beyond these, rounding overflows or parts are denormal."""


class AmxTiles(NamedTuple):
    """A packed operand: tile (block, step, part) is number (block * steps + step) * parts + part."""

    address: LlvmValue
    steps: int
    parts: int

    def at(self, b: Builder, block: LlvmValue, step: LlvmValue, part: int, line: LlvmValue) -> LlvmValue:
        """Address of a line of a tile."""
        number = b.op("add", b.op("mul", block, constant(self.steps, I64)), step)
        first = b.op("mul", number, constant(TILE_BYTES * self.parts, I64))
        inside = b.op("add", b.op("mul", line, constant(64, I64)), constant(TILE_BYTES * part, I64))
        return b.offset(self.address, "i8", b.op("add", first, inside))


class MagnitudeRange(NamedTuple):
    """Range of magnitudes in an operand, as bits shifted left by one: the largest, and the least nonzero one less 1."""

    most: LlvmValue
    least: LlvmValue

    def union(self, b: Builder, other: MagnitudeRange) -> MagnitudeRange:
        return MagnitudeRange(b.intrinsic("umax", self.most, other.most), b.intrinsic("umin", self.least, other.least))


def bits_of(dtype: DType) -> Type:
    """Vector type of a magnitude range."""
    return HALVES if dtype is bfloat16 else FOUR


class PackedTiles(NamedTuple):
    tiles: AmxTiles
    magnitudes: MagnitudeRange


def numbers_per_word(dtype: DType) -> int:
    """Numbers in a 32-bit word.

    >>> numbers_per_word(bfloat16), numbers_per_word(int8)
    (2, 4)
    """
    return 4 if dtype in (int8, uint8) else 2


def packed_bytes(dtype: DType, shape: tuple[int, ...], right: bool, parts: int) -> int:
    """Bytes of a prepacked operand: its tiles, then its magnitude range."""
    extent, depth = reversed(shape) if right else shape
    return -(-extent // ROWS) * -(-depth // (WORDS * numbers_per_word(dtype))) * parts * TILE_BYTES + 2 * RANGE_BYTES


class AmxPacker:
    """Packs one operand: an expression over (i, k) for the left, over (k, i) for the right one.

    The tiles go into memory of the instance, or to `place` where other kernels read them.
    """

    def __init__(
        self,
        nests: LoopNests,
        x: ir.Tile,
        parts: int,
        right: bool,
        place: LlvmValue | None = None,
        reusable: dict[str, int] | None = None,
    ) -> None:
        self.nests, self.e, self.b = nests, nests.e, nests.b
        self.dtype, self.right = self.e.types.of(x).dtype, right
        self.is_prepacked = place is not None
        transposed = transposed_operand(self.e, x)
        shape = self.e.types.of(x).shape
        self.extent, self.depth = reversed(shape) if right else shape
        self.x = x if transposed is None else transposed
        self.transposed = transposed is not None
        self._by_rows = right == self.transposed  # whether the expression is over (i, k)
        self.parts = parts
        self.prefetched = self._strided_loads()
        self.per_word = numbers_per_word(self.dtype)
        self.tile_depth = WORDS * self.per_word
        steps = -(-self.depth // self.tile_depth)
        bytes = -(-self.extent // ROWS) * steps * parts * TILE_BYTES
        to = place or self.b.allocate(bytes, "right.tiles" if right else "left.tiles", reusable)
        self.to = AmxTiles(to, steps, parts)
        bits = bits_of(self.dtype)
        self.magnitudes = MagnitudeRange(constant(0, bits), constant(-1, bits))
        noted = self.is_prepacked and self.dtype.is_float
        self._range_addresses = (
            [self.b.offset(to, "i8", constant(bytes + n * RANGE_BYTES, I64)) for n in range(2)] if noted else []
        )

    def found(self) -> PackedTiles:
        """Return the tiles and the range of a prepacked operand."""
        if not self._range_addresses:
            return PackedTiles(self.to, self.magnitudes)
        type = self.magnitudes.most.type
        return PackedTiles(
            self.to,
            MagnitudeRange(
                *[self.b.instruction(f"load {type}, ptr {at}, align 64", type) for at in self._range_addresses]
            ),
        )

    def pack(self) -> PackedTiles:
        self.e.begin_nest()
        tabulate(self.nests, self.x, 1 if self._by_rows else 0)
        if self._by_rows:
            self._transposed_rows() if self.transposed else self._rows()
        else:
            self._transposed_columns() if self.transposed else self._columns()
        for at, seen in zip(self._range_addresses, self.magnitudes, strict=False):
            self.b.effect(f"store {seen.type} {seen}, ptr {at}, align 64")
        self.e.begin_nest()
        return PackedTiles(self.to, self.magnitudes)

    # --- loops that record magnitudes ----------------------------------------------------------------

    def _open(self, hint: str, start: int, stop: int, step: int) -> OpenLoop:
        noted = list(zip(MagnitudeRange._fields, self.magnitudes, strict=True)) if self.dtype.is_float else []
        loop = self.nests.loop(hint, start, stop, step, noted)
        self.magnitudes = MagnitudeRange(*loop.carried) if noted else self.magnitudes
        return loop

    def _close(self, *loops: OpenLoop) -> None:
        for loop in loops:
            ends = self.b.close_loop(loop, self.magnitudes if loop.carried else ())
            self.magnitudes = MagnitudeRange(*ends) if loop.carried else self.magnitudes

    def _with(self, x: LlvmValue, opcode: str, by: int) -> LlvmValue:
        return self.b.op(opcode, x, constant(by, I64))

    # --- the four layouts ----------------------------------------------------------------------------

    def _rows(self) -> None:
        """Pack a left operand contiguous along k, row by row."""
        row = self._open("row", 0, self.extent, 1)
        block, line = self._with(row.index, "udiv", ROWS), self._with(row.index, "and", ROWS - 1)
        whole = self.depth // self.tile_depth * self.tile_depth
        if whole:
            along = self._open("k", 0, whole, self.tile_depth)
            words = self._row_words(row.index, along.index, self.tile_depth)
            self._store(block, self._with(along.index, "udiv", self.tile_depth), line, words)
            self._close(along)
        if whole < self.depth:
            words = self._row_words(row.index, constant(whole, I64), self.depth - whole)
            self._store(block, constant(whole // self.tile_depth, I64), line, words)
        self._close(row)

    def _transposed_rows(self) -> None:
        """Pack a right operand contiguous along k: transpose squares of 16 rows by 16 words."""
        panel = self._open("panel", 0, -(-self.extent // ROWS), 1)
        whole = self.depth // self.tile_depth
        if whole:
            along = self._open("step", 0, whole, 1)
            self._row_square(panel.index, along.index, self.tile_depth)
            self._close(along)
        if self.depth % self.tile_depth:
            self._row_square(panel.index, constant(whole, I64), self.depth % self.tile_depth)
        self._close(panel)

    def _row_square(self, block: LlvmValue, step: LlvmValue, count: int) -> None:
        line = self._open("line", 0, ROWS, 1)
        row = self.b.op("add", self._with(block, "mul", ROWS), line.index)
        if self.extent % ROWS:
            row = self.b.intrinsic("smin", row, constant(self.extent - 1, I64))
        self._store(block, step, line.index, self._row_words(row, self._with(step, "mul", self.tile_depth), count))
        self._close(line)
        self._transpose_square(block, step)

    def _columns(self) -> None:
        """Pack a right operand contiguous along its columns: interleave the rows of a word."""
        words, rest = divmod(self.depth, self.per_word)
        together = words // AMX_WORDS_PER_PASS * AMX_WORDS_PER_PASS
        if together:
            outer = self._open("word", 0, together, AMX_WORDS_PER_PASS)
            self._all_columns(outer.index, AMX_WORDS_PER_PASS, self.per_word)
            self._close(outer)
        if together < words:
            self._all_columns(constant(together, I64), words - together, self.per_word)
        if rest:
            self._all_columns(constant(words, I64), 1, rest)
        nothing = [constant(0, FOUR)] * self.parts
        padded = range(words + bool(rest), self.to.steps * ROWS)
        if padded:
            loop = self._open("panel", 0, -(-self.extent // ROWS), 1)
            for word in padded:
                self._store(loop.index, constant(word // ROWS, I64), constant(word % ROWS, I64), nothing)
            self._close(loop)

    def _all_columns(self, first: LlvmValue, words: int, full: int) -> None:
        """Pack some words along k of all columns; `full` numbers of each word exist."""
        wide = 2 if self.dtype is bfloat16 and self.prefetched else 1  # neighbouring tiles that one vector covers
        whole = self.extent // (WORDS * wide) * wide
        if whole:
            inner = self._open("panel", 0, whole, wide)
            self._some_columns(first, words, inner.index, WORDS * wide, full)
            self._close(inner)
        for block in range(whole, -(-self.extent // WORDS)):
            count = min(WORDS, self.extent - block * WORDS)
            self._some_columns(first, words, constant(block, I64), count, full)

    def _some_columns(self, first: LlvmValue, words: int, block: LlvmValue, count: int, full: int) -> None:
        loop = self._open("line", 0, words, 1)
        word = self.b.op("add", first, loop.index)
        step, line = self._with(word, "udiv", ROWS), self._with(word, "and", ROWS - 1)
        place = self._with(block, "mul", WORDS)
        if count > WORDS:
            for n, found in enumerate(self._two_columns(word, place, full)):
                self._store(self._with(block, "add", n), step, line, [found])
        else:
            self._store(block, step, line, self._column_words(word, place, count, full))
        self._close(loop)

    def _two_columns(self, word: LlvmValue, place: LlvmValue, full: int) -> list[LlvmValue]:
        """Read two rows of 32 columns of bfloat16 numbers."""
        k = self._with(word, "mul", 2)
        first, second = self._recorded(self._read([k, place], DEPTH, DEPTH)), constant(0, HALVES)
        if full == 2:
            second = self._recorded(self._read([self._with(k, "add", 1), place], DEPTH, DEPTH))
        orders = [[n // 2 + WORDS * half + DEPTH * (n % 2) for n in range(DEPTH)] for half in (0, 1)]
        return [self._as_words(self.b.shuffle(first, second, order)) for order in orders]

    def _transposed_columns(self) -> None:
        """Pack a left operand contiguous along its rows: transpose squares of 16 words by 16 rows."""
        whole = self.depth // self.tile_depth
        if whole:
            along = self._open("step", 0, whole, 1)
            self._column_squares(along.index, self.tile_depth)
            self._close(along)
        if self.depth % self.tile_depth:
            self._column_squares(constant(whole, I64), self.depth % self.tile_depth)

    def _column_squares(self, step: LlvmValue, depth: int) -> None:
        blocks = self.extent // ROWS
        if blocks:
            panel = self._open("panel", 0, blocks, 1)
            self._column_square(step, panel.index, ROWS, depth)
            self._close(panel)
        if self.extent % ROWS:
            self._column_square(step, constant(blocks, I64), self.extent % ROWS, depth)

    def _column_square(self, step: LlvmValue, block: LlvmValue, count: int, depth: int) -> None:
        first, place = self._with(step, "mul", ROWS), self._with(block, "mul", ROWS)
        whole, rest = divmod(depth, self.per_word)
        if whole:
            line = self._open("line", 0, whole, 1)
            words = self._column_words(self.b.op("add", first, line.index), place, count, self.per_word)
            self._store(block, step, line.index, words)
            self._close(line)
        if rest:
            words = self._column_words(self._with(first, "add", whole), place, count, rest)
            self._store(block, step, constant(whole, I64), words)
        for n in range(whole + bool(rest), ROWS):
            self._store(block, step, constant(n, I64), [constant(0, FOUR)] * self.parts)
        self._transpose_square(block, step)

    def _strided_loads(self) -> list[ir.Tile]:
        """List the addresses of contiguous loads whose rows are evenly strided."""
        e, shape = self.e, self.e.types.of(self.x).shape
        loads = [y.pointer for y in e.loads(self.x) if e.types.of(y).shape == shape]
        return [pointer for pointer in loads if e.affine.step(pointer) == 1 and e.affine.step(pointer, -2) is not None]

    def _prefetch(self, at: Position, rows: int) -> None:
        """Prefetch memory some rows ahead: rows are too short and too far apart for the hardware prefetcher."""
        ahead = at.moved(self._with(at.indices[0], "add", rows), at.indices[1])
        for pointer in self.prefetched:
            self.b.prefetch(self.e.evaluate(pointer, ahead, self.dtype), 1)

    # --- words ---------------------------------------------------------------------------------------

    def _store(self, block: LlvmValue, step: LlvmValue, line: LlvmValue, words: list[LlvmValue]) -> None:
        for part, word in enumerate(words):
            self.b.effect(f"store {FOUR} {word}, ptr {self.to.at(self.b, block, step, part, line)}, align 64")

    def _transpose_square(self, block: LlvmValue, step: LlvmValue) -> None:
        """Transpose a square of words in place."""
        loop = self.nests.loop("part", 0, self.parts, 1)
        first = self.to.at(self.b, block, step, 0, constant(0, I64))
        first = self.b.offset(first, "i8", self._with(loop.index, "mul", TILE_BYTES))
        places = [self.b.offset(first, "i8", constant(64 * n, I64)) for n in range(ROWS)]
        lines = [self.b.instruction(f"load {FOUR}, ptr {place}, align 64", FOUR, "line") for place in places]
        for place, line in zip(places, transpose_square(self.b, lines), strict=True):
            self.b.effect(f"store {FOUR} {line}, ptr {place}, align 64")
        self.b.close_loop(loop)

    def _read(self, at: list[LlvmValue], lanes: int, count: int) -> LlvmValue:
        """Read `count` elements along the last axis, padded with zeros."""
        b, place = self.b, position(at, lanes, active=count if count < lanes else None)
        self._prefetch(place.element, AMX_PREFETCH_ROWS if self._by_rows else AMX_PREFETCH_WORDS)
        value = b.splat(self.e.evaluate(self.x, place, self.dtype), lanes)
        if place.mask is not None:
            value = b.select(place.mask, value, constant(0, value.type))
        return value

    def _row_words(self, row: LlvmValue, k: LlvmValue, count: int) -> list[LlvmValue]:
        """Read 16 words of a row, in parts."""
        if self.per_word == 4:
            return [self._as_words(self._read([row, k], self.tile_depth, count))]
        if self.dtype is bfloat16:
            return [self._as_words(self._recorded(self._read([row, k], DEPTH, count)))]
        first = self._read([row, k], WORDS, min(count, WORDS))
        second = constant(0.0, FLOATS)
        if count > WORDS:
            second = self._read([row, self._with(k, "add", WORDS)], WORDS, count - WORDS)
        return self._split(first, second, False)

    def _column_words(self, word: LlvmValue, place: LlvmValue, count: int, full: int) -> list[LlvmValue]:
        """Read a word of each of `count` columns, padded to 16, in parts; `full` numbers of the word exist."""
        k = self._with(word, "mul", self.per_word)
        first, *others = [self._read([self._with(k, "add", n), place], WORDS, count) for n in range(full)]
        if self.per_word == 4:
            return [self._interleave_bytes([first, *others])]
        second = others[0] if others else constant(0, first.type)
        if self.dtype is bfloat16:
            mixed = [n // 2 + WORDS * (n % 2) for n in range(DEPTH)]
            return [self._as_words(self._recorded(self.b.shuffle(first, second, mixed)))]
        return self._split(first, second, True)

    def _split(self, first: LlvmValue, second: LlvmValue, mixed: bool) -> list[LlvmValue]:
        """Split float32 numbers into parts: the upper halves of two vectors, concatenated or interleaved (`mixed`)."""
        b = self.b
        words = []
        left = [first, second]
        for x in left:
            self._recorded(b.convert("bitcast", x, "i32"))
        for part in range(self.parts):
            bits = [b.op("add", b.convert("bitcast", x, "i32"), constant(0x8000, FOUR)) for x in left]
            upper = [b.op("and", x, constant(-0x10000, FOUR)) for x in bits]
            if mixed:
                words.append(b.op("or", b.op("lshr", bits[0], constant(16, FOUR)), upper[1]))
            else:
                halves = [b.pure(f"bitcast {FOUR} {x} to {HALVES}", HALVES, (x,)) for x in bits]
                words.append(self._as_words(b.shuffle(halves[0], halves[1], [*range(1, 2 * DEPTH, 2)])))
            if part < self.parts - 1:
                left = [b.op("fsub", x, b.convert("bitcast", y, "float")) for x, y in zip(left, upper, strict=True)]
        return words

    def _interleave_bytes(self, rows: list[LlvmValue]) -> LlvmValue:
        """Interleave the bytes of the rows in words."""
        b = self.b
        found, *others = [b.convert("zext", row, "i32") for row in rows]
        for n, row in enumerate(others):
            found = b.op("or", found, b.op("shl", row, constant(8 * n + 8, FOUR)))
        return found

    def _as_words(self, x: LlvmValue) -> LlvmValue:
        return self.b.pure(f"bitcast {x.type} {x} to {FOUR}", FOUR, (x,))

    def _recorded(self, bits: LlvmValue) -> LlvmValue:
        """Record magnitudes; 0 less 1 wraps to the largest of all, so zeros do not count as smallest."""
        b = self.b
        size = b.op("add", bits, bits)
        most = b.intrinsic("umax", self.magnitudes.most, size)
        least = b.intrinsic("umin", self.magnitudes.least, b.op("add", size, constant(-1, size.type)))
        self.magnitudes = MagnitudeRange(most, least)
        return bits


def exponents(b: Builder, magnitudes: MagnitudeRange) -> tuple[LlvmValue, LlvmValue]:
    """Largest and smallest biased exponents of a range (256 if all numbers are zero)."""
    found = []
    for fn, x, more in zip(("umax", "umin"), magnitudes, (0, 1), strict=True):
        one = b.call(f"llvm.vector.reduce.{fn}.{x.type.short}", Type(x.type.element), x)
        wide = b.op("add", b.convert("zext", one, "i64"), constant(more, I64))
        found.append(b.op("lshr", wide, constant(one.type.bits - 8, I64)))
    return found[0], found[1]


def matches_float32(b: Builder, left: MagnitudeRange, right: MagnitudeRange) -> LlvmValue:
    """Whether AMX gives the same result as float32 arithmetic for operands of these ranges."""
    (most, least), (more, lesser) = exponents(b, left), exponents(b, right)
    conditions = [
        b.compare("ule", b.op("add", most, more), constant(MAX_EXPONENT_SUM, I64)),
        b.compare("uge", b.op("add", least, lesser), constant(MIN_EXPONENT_SUM, I64)),
        *[b.compare("ule", x, constant(MAX_EXPONENT, I64)) for x in (most, more)],
        *[b.compare("uge", x, constant(MIN_EXPONENT, I64)) for x in (least, lesser)],
    ]
    result = conditions[0]
    for condition in conditions[1:]:
        result = b.op("and", result, condition)
    return result
