"""Products of tiles in the matrix unit (AMX): tiles of 16 x 16 sums, four of them at a time.

Each float32 factor is taken as the sum of one to three bfloat16 numbers (its precision says how many), and the products
of these that matter are added up in float32. The sums of one product of tiles are made from 0 and added
to those before them by ordinary vectors: the chain of additions is short, and denormal sums stay what they are.

Where numbers are so large, small or odd that the unit would give another result than float32 arithmetic, the
product is computed by multiply-adds (`dot.py`); packing finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32, uint8
from ....ir.precision import Precision
from ....ir.tile_types import Types
from ....runtime.grain import pays_in_unit
from ..emit import I64, Value, constant
from ..target import Target
from .amx_packing import ROWS, WORDS, Operand, Packer, fit
from .elements import Memory
from .nests import Nests

CONFIGURATION = "@tile_configuration"


class Form(NamedTuple):
    """Bfloat16 parts of each factor, and which of the left and the right one are multiplied: one changes at a time."""

    parts: int
    products: tuple[tuple[int, int], ...]


ONE = Form(1, ((0, 0),))
THREE = Form(2, ((0, 1), (0, 0), (1, 0)))
SIX = Form(3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)))
FORMS: dict[Precision, Form] = {"medium": ONE, "high": THREE, "highest": SIX}


def form_of(target: Target, types: Types, product: ir.Dot) -> Form | None:
    """How the unit makes a product; None: it does not."""
    (m, k), (_, n) = types.of(product.x).shape, types.of(product.y).shape
    dtype = shared_dtype(types, product.x, product.y)
    if not target.matrix_unit or types.of(product).dtype is not float32 or dtype not in (float32, bfloat16):
        return None
    form = ONE if dtype is bfloat16 else FORMS[product.precision]
    return form if pays_in_unit(m, k, n, form.parts) else None


def shared_dtype(types: Types, x: ir.Tile, y: ir.Tile) -> DType | None:
    one, two = types.of(x).dtype, types.of(y).dtype
    return one if one is two else None


def dot(
    nests: Nests,
    out: Memory,
    factors: tuple[ir.Tile, ir.Tile],
    form: Form,
    accumulates: bool,
    otherwise: Callable[[], None],
) -> None:
    """out (+)= x @ y; `otherwise` writes the same without the unit."""
    e, b = nests.e, nests.b
    spare, b.spare = b.spare, dict(nests.panels)
    packers = [Packer(nests, x, form.parts, bool(side), _place(nests, x, bool(side))) for side, x in enumerate(factors)]
    nests.panels |= {p.to.address.text: b.allocated[p.to.address.text] for p in packers if not p.beforehand}
    b.spare = spare
    left, right = (p.found() if p.beforehand else p.pack() for p in packers)
    chosen = fit(b, left, right)
    b.open_branch("unit")
    _Products(nests, out, left, right, form, accumulates).write()
    then = b.close_branch()
    b.open_branch("odd")
    before, made, b.spare = set(b.allocated), dict(e.made), dict(nests.panels)
    otherwise()
    b.close_branches(chosen, then, b.close_branch())
    nests.panels |= {name: size for name, size in b.allocated.items() if name not in before}
    b.spare, e.made = spare, made  # what that way has put in tables is not there on the other
    e.begin()


def _place(nests: Nests, x: ir.Tile, right: bool) -> Value | None:
    """Where an operand is that was packed beforehand."""
    place = nests.packed.get((x, right))
    return None if place is None else nests.e.of(place, [], 0, uint8)


class _Products:
    """The blocks of a result: two tiles by two, or what there is."""

    def __init__(self, nests: Nests, out: Memory, left: Operand, right: Operand, form: Form, accumulates: bool) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        self.left, self.right, self.form, self.accumulates = left.tiles, right.tiles, form, accumulates
        self.m, self.n = out.shape
        self.tall = min(2, -(-self.m // ROWS))
        self.sums = self.b.allocate(4 * ROWS * WORDS * 4, "sums")

    def write(self) -> None:
        b = self.b
        b.declarations.setdefault(CONFIGURATION, _configuration())
        self._unit("ldtilecfg", f"ptr {CONFIGURATION}")
        blocks = -(-self.n // WORDS)
        if blocks > 1:
            self._columns(0, blocks // 2 * 2, 2)
        if blocks % 2:
            self._columns(blocks - 1, blocks, 1)
        self._unit("tilerelease")

    def _unit(self, name: str, arguments: str = "") -> None:
        types = ", ".join(argument.split()[0] for argument in arguments.split(", ") if argument)
        self.b.declarations.setdefault(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
        self.b.effect(f"call void @llvm.x86.{name}({arguments})")

    def _columns(self, start: int, end: int, wide: int) -> None:
        """The blocks of some columns, rows of blocks inside: the tiles of a column stay in the first cache."""
        outer = self.nests.loop("n", start, end, wide)
        inner = self.nests.loop("m", 0, -(-self.m // ROWS), self.tall)
        self._block(inner.index, outer.index, wide)
        self.b.close_loop(inner)
        self.b.close_loop(outer)

    def _block(self, row: Value, column: Value, wide: int) -> None:
        b, e, tall = self.b, self.e, self.tall
        e.begin()
        blocks = -(-self.m // ROWS)
        rows = [b.op("add", row, constant(r, I64)) for r in range(tall)]
        if blocks % tall:
            rows = [b.intrinsic("smin", r, constant(blocks - 1, I64)) for r in rows]
        columns = [b.op("add", column, constant(c, I64)) for c in range(wide)]
        for number in range(tall * wide):
            self._unit("tilezero", f"i8 {number}")
        loop = self.nests.loop("k", 0, self.left.steps, 1)
        had: tuple[int, int] = (-1, -1)
        for one, two in self.form.products:
            if one != had[0]:
                for r, place in enumerate(rows):
                    self._load(4 + r, self.left.at(e, place, loop.index, one, constant(0, I64)))
            if two != had[1]:
                for c, place in enumerate(columns):
                    self._load(6 + c, self.right.at(e, place, loop.index, two, constant(0, I64)))
            for r in range(tall):
                for c in range(wide):
                    self._unit("tdpbf16ps", f"i8 {r * wide + c}, i8 {4 + r}, i8 {6 + c}")
            had = (one, two)
        b.close_loop(loop)
        for r in range(tall):
            for c in range(wide):
                at = b.offset(self.sums, "float", constant((r * ROWS * wide + c) * WORDS, I64))
                self._unit("tilestored64", f"i8 {r * wide + c}, ptr {at}, i64 {wide * WORDS * 4}")
        e.begin()
        self._add(row, column, wide)

    def _load(self, tile: int, address: Value) -> None:
        self._unit("tileloadd64", f"i8 {tile}, ptr {address}, i64 64")

    def _add(self, row: Value, column: Value, wide: int) -> None:
        """Adds the sums of a block to the result, or puts them there."""
        b, e = self.b, self.e
        first = b.op("mul", row, constant(ROWS, I64))
        count = constant(self.tall * ROWS, I64)
        if self.m % (self.tall * ROWS):
            count = b.intrinsic("smin", count, b.op("sub", constant(self.m, I64), first))
        loop = b.open_loop("line", constant(0, I64), count, constant(1, I64), guarded=False, pinned=True)
        e.begin()
        made = Memory(self.sums, float32, (self.tall * ROWS, wide * WORDS))
        for c in range(wide):
            value = e.load(made, [loop.index, constant(c * WORDS, I64)], WORDS)
            place = [
                b.op("add", first, loop.index),
                b.op("mul", b.op("add", column, constant(c, I64)), constant(WORDS, I64)),
            ]
            if self.accumulates:
                value = b.op("fadd", e.load(self.out, place, WORDS), value)
            e.keep(self.out, place, value, WORDS)
        b.close_loop(loop)
        e.begin()


def _configuration() -> str:
    """All eight tiles have 16 rows of 64 bytes."""
    data = bytes([1, 0, *[0] * 14, *[64, 0] * 8, *[0] * 16, *[ROWS] * 8, *[0] * 8])
    shown = "".join(f"\\{byte:02X}" for byte in data)
    return f'{CONFIGURATION} = private constant [64 x i8] c"{shown}", align 64'
