"""Compute bfloat16 matrix products with `vdpbf16ps`, which adds two products to each sum.

Operands are packed as for AMX (`amx_packing.py`), since a line of such a tile is a vector of pairs. A block of the
result stays in registers along k: some rows by one to three vectors.
"""

from __future__ import annotations

from ..costs import BF16_BLOCK_ROWS, BF16_UNROLLED_WORDS
from ..emit import I64, LlvmValue, Type, constant
from .amx_packing import ROWS, WORDS, AmxTiles
from .memory import StackTile
from .nests import LoopNests

INSTRUCTION = "llvm.x86.avx512bf16.dpbf16ps.512"
SUMS, WORD, LINE, PAIRS = Type("float", WORDS), Type("i32"), Type("i32", WORDS), Type("bfloat", 2 * WORDS)


class Bf16Blocks:
    """Emits the blocks of a result; `begins` says whether sums overwrite it."""

    def __init__(self, nests: LoopNests, out: StackTile, tiles: tuple[AmxTiles, AmxTiles], begins: LlvmValue) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        (self.left, self.right), self.begins = tiles, begins
        self.m, self.n = out.shape

    def write(self) -> None:
        """Emit rows of blocks inside columns of blocks: the tiles of a column stay in the L1 cache."""
        vectors = -(-self.n // WORDS)
        wide = 3 if vectors % 2 and vectors % 3 == 0 else 2
        whole = vectors // wide * wide
        for start, end, width in ((0, whole, wide), (whole, vectors, 1)):
            if start < end:
                outer = self.nests.loop("n", start, end, width)
                inner = self.nests.loop("m", 0, self.m, BF16_BLOCK_ROWS[width])
                self._block(inner.index, outer.index, width)
                self.b.close_loop(inner)
                self.b.close_loop(outer)

    def _block(self, row: LlvmValue, column: LlvmValue, wide: int) -> None:
        b, e = self.b, self.e
        e.begin_nest()
        block, line = b.op("udiv", row, constant(ROWS, I64)), b.op("and", row, constant(ROWS - 1, I64))
        columns = [b.op("add", column, constant(c, I64)) for c in range(wide)]
        height, sums = BF16_BLOCK_ROWS[wide], [constant(0.0, SUMS)] * (BF16_BLOCK_ROWS[wide] * wide)
        step = self.nests.loop("step", 0, self.left.steps, 1, [(f"c{n}", x) for n, x in enumerate(sums)])
        word = self.nests.loop(
            "word", 0, WORDS, BF16_UNROLLED_WORDS, [(f"d{n}", x) for n, x in enumerate(step.carried)]
        )
        sums = list(word.carried)
        rows = self.left.at(b, block, step.index, 0, line)
        right = [self.right.at(b, c, step.index, 0, word.index) for c in columns]
        for n in range(BF16_UNROLLED_WORDS):
            ys = [self._pairs(b.load_invariant(b.offset(at, "i32", constant(n * WORDS, I64)), LINE, 4)) for at in right]
            at = b.offset(rows, "i32", b.op("add", word.index, constant(n, I64)))
            for r in range(height):
                x = b.load_invariant(b.offset(at, "i32", constant(r * WORDS, I64)), WORD, 4)
                pairs = self._pairs(b.splat(x, WORDS))
                for c, y in enumerate(ys):
                    sums[r * wide + c] = b.call(INSTRUCTION, SUMS, sums[r * wide + c], pairs, y)
        ends = b.close_loop(step, b.close_loop(word, sums))
        e.begin_nest()
        self._keep(row, column, ends, wide)

    def _pairs(self, words: LlvmValue) -> LlvmValue:
        return self.b.pure(f"bitcast {words.type} {words} to {PAIRS}", PAIRS, (words,))

    def _keep(self, row: LlvmValue, column: LlvmValue, sums: tuple[LlvmValue, ...], wide: int) -> None:
        b, e, pitch = self.b, self.e, self.out.row_pitch
        first = self.out.address_of(b, (row, b.op("mul", column, constant(WORDS, I64))))
        for n, value in enumerate(sums):
            at = b.offset(first, "float", constant(n // wide * pitch + n % wide * WORDS, I64))
            if self.begins.text != "true":
                more = b.op("fadd", b.load_invariant(at, SUMS, 4), value)
                value = more if self.begins.is_constant else b.select(self.begins, value, more)
            b.effect(f"store {SUMS} {value}, ptr {at}, align 4")
        e.begin_nest()
