"""Products of tiles in the matrix unit (AMX): tiles of 16 x 16 sums, four of them at a time.

Each float32 factor is taken as the sum of one to three bfloat16 numbers (its precision says how many), and the products
of these that matter are added up in float32. The sums of one product of tiles are made from 0 and added
to those before them by ordinary vectors: the chain of additions is short, and denormal sums stay what they are.

Where numbers are so large, small or odd that the unit would give another result than float32 arithmetic, the
product is computed by multiply-adds (`dot.py`); packing finds out. Integers of 8 bits are multiplied as they are: their
sums of 32 bits are exact, or what is left of them where they overflow, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32, int8, int32, uint8
from ....ir.precision import Precision
from ....ir.tile_types import Types
from ....runtime.grain import pays_in_unit
from ..emit import I1, I64, Builder, Loop, Type, Value, constant
from ..target import Target
from . import pairs
from .amx_packing import ROWS, TILE, WORDS, Packer, Span, Tiles, bits_of, fit
from .elements import Memory
from .nests import Nests

CONFIGURATION = "@tile_configuration"


class Form(NamedTuple):
    """Parts of each factor, and which of the left and the right one are multiplied: one changes at a time."""

    parts: int
    products: tuple[tuple[int, int], ...]
    instruction: str = "tdpbf16ps"

    @property
    def looks(self) -> bool:
        """Whether numbers may be such that the unit would give something else."""
        return self.instruction == "tdpbf16ps"


PLAIN = Form(0, ())
"""Of what is left to multiply-adds."""
ONE = Form(1, ((0, 0),))
THREE = Form(2, ((0, 1), (0, 0), (1, 0)))
SIX = Form(3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)))
FORMS: dict[Precision, Form] = {"medium": ONE, "high": THREE, "highest": SIX}
INTEGERS = {int8: Form(1, ((0, 0),), "tdpbssd"), uint8: Form(1, ((0, 0),), "tdpbuud")}
"""All numbers have a sign, or none has."""


class Bring(NamedTuple):
    """A part of an operand to a tile: 4 and 5 are for rows, 6 and 7 for columns."""

    tile: int
    part: int


class Multiply(NamedTuple):
    """Row r of tiles by column c."""

    row: int
    column: int


def schedule(form: Form, tall: int, wide: int) -> list[Bring | Multiply]:
    """One step along k. What a tile has next comes as soon as what it had is done with: the unit need not wait for it.

    >>> for instruction in schedule(ONE, 2, 2): print(*instruction, end="; ")
    4 0; 6 0; 0 0; 7 0; 0 1; 5 0; 1 0; 1 1;
    """
    work: list[tuple[int, int, int, int]] = []
    for (one, two), after in zip(form.products, (*form.products[1:], form.products[-1]), strict=True):
        places = [(r, c) for r in range(tall) for c in range(wide)]
        if after[0] == one and after[1] != two:  # columns are the next to change: be done with the first one early
            places.sort(key=lambda place: place[1])
        work += [(one, two, r, c) for r, c in places]
    made: list[Bring | Multiply] = []
    has: dict[int, int] = {}
    for n, (one, two, r, c) in enumerate(work):
        for tile, part in ((4 + r, one), (6 + c, two)):
            if has.get(tile) != part:
                made.append(Bring(tile, part))
                has[tile] = part
        made.append(Multiply(r, c))
        for tile in (4 + r, 6 + c):
            following = next(
                (w[tile > 5] for w in work[n + 1 : n + 1 + 2 * tall * wide] if tile in (4 + w[2], 6 + w[3])), has[tile]
            )
            if following != has[tile]:
                made.append(Bring(tile, following))
                has[tile] = following
    return made


def form_of(target: Target, types: Types, product: ir.Dot, goes_on: bool = False) -> Form | None:
    """How the unit makes a product; None: it does not. One that goes on with the sum of others may have few k."""
    (m, k), (_, n) = types.of(product.x).shape, types.of(product.y).shape
    dtype, total = shared_dtype(types, product.x, product.y), types.of(product).dtype
    form: Form | None = None
    if total is float32 and dtype in (float32, bfloat16):
        form = ONE if dtype is bfloat16 else FORMS[product.precision]
    elif total is int32 and dtype is not None:
        form = INTEGERS.get(dtype)
    if form is None or not (target.matrix_unit or (target.pairs and form is ONE)):
        return None
    return form if goes_on or pays_in_unit(m, k, n, form.parts) else None


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

    def by_unit() -> None:
        with _configured(nests):
            _multiply(nests, out, (left.tiles, right.tiles), form, constant(not accumulates, I1))

    if not form.looks:
        return by_unit()
    chosen = fit(b, left.span, right.span)
    b.open_branch("unit")
    by_unit()
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


class Turn(NamedTuple):
    """A product in a kernel, in a loop or alone; it is made `times` times, after `first` others."""

    product: ir.Dot
    loop: ir.For | None
    first: int
    times: int
    form: Form

    def operand(self, right: bool) -> ir.Tile:
        return self.product.y if right else self.product.x

    @property
    def step(self) -> int:
        return int(self.loop.step.value) if self.loop and isinstance(self.loop.step, ir.Literal) else 0

    def number(self) -> ir.Tile:
        """Which turn of all it is, inside the kernel."""
        return ir.Literal(self.first) if self.loop is None else ir.Name(self.loop.index) // self.step + self.first


def whole(nests: Nests, out: Memory, turns: Sequence[Turn], otherwise: Callable[[], None]) -> None:
    """out = the sum of the products of all turns, whose operands were packed beforehand.

    Whether numbers are odd is asked once for all of them.
    """
    b = nests.b
    if not turns[0].form.looks:
        return _by_unit(nests, out, turns)
    chosen = _all_fit(nests, turns)
    b.open_branch("unit")
    _by_unit(nests, out, turns)
    then = b.close_branch()
    b.open_branch("odd")
    otherwise()
    b.close_branches(chosen, then, b.close_branch())
    nests.e.begin()


def _all_fit(nests: Nests, turns: Sequence[Turn]) -> Value:
    """Whether the unit gives what float32 arithmetic would, in all turns."""
    b = nests.b
    spans = [Span(constant(0, bits), constant(-1, bits)) for bits in [_bits(nests, turns[0])] * 2]
    for turn in turns:
        loop = _open(
            nests, turn, [(f"{name}{side}", x) for side in (0, 1) for name, x in zip("ml", spans[side], strict=True)]
        )
        carried = [Span(*loop.carried[:2]), Span(*loop.carried[2:])]
        seen = [span.with_(b, p.found().span) for span, p in zip(carried, _packers(nests, turn), strict=True)]
        ends = b.close_loop(loop, [x for span in seen for x in span])
        spans = [Span(*ends[:2]), Span(*ends[2:])]
    return fit(b, *spans)


def _by_unit(nests: Nests, out: Memory, turns: Sequence[Turn]) -> None:
    """The sum of all turns, made in the unit."""
    b = nests.b
    with _configured(nests):
        for turn in turns:
            loop = _open(nests, turn)
            left, right = (p.to for p in _packers(nests, turn))
            begins = b.compare("eq", loop.index, constant(0, I64)) if turn.first == 0 else constant(False, I1)
            single = len(turns) == 1 == turn.times
            first = constant(True, I1) if single else begins
            _multiply(nests, out, (left, right), turn.form, first, single)
            b.close_loop(loop)
    nests.e.begin()


def _open(nests: Nests, turn: Turn, carried: Sequence[tuple[str, Value]] = ()) -> Loop:
    """A loop over the turns of a product; what counts them is what counts them in the kernel."""
    loop = nests.loop("turn", 0, turn.times, 1, carried)
    if turn.loop is not None:
        at = nests.b.op("mul", loop.index, constant(turn.step, I64))
        nests.e.registers[turn.loop.index] = nests.b.convert("trunc", at, "i32")
    return loop


def _packers(nests: Nests, turn: Turn) -> list[Packer]:
    """How the operands of a turn were packed."""
    factors = [turn.operand(right) for right in (False, True)]
    nests.e.begin()
    return [
        Packer(nests, x, turn.form.parts, bool(side), _place(nests, x, bool(side))) for side, x in enumerate(factors)
    ]


def _bits(nests: Nests, turn: Turn) -> Type:
    return bits_of(nests.e.types.of(turn.product.x).dtype)


def _multiply(
    nests: Nests, out: Memory, tiles: tuple[Tiles, Tiles], form: Form, begins: Value, single: bool = False
) -> None:
    if nests.target.matrix_unit:
        _Products(nests, out, tiles, form, begins, single).write()
    else:
        pairs.Products(nests, out, tiles, begins).write()


@contextmanager
def _configured(nests: Nests) -> Iterator[None]:
    b = nests.b
    if not nests.target.matrix_unit:
        yield
        return
    b.declarations.setdefault(CONFIGURATION, _configuration())
    unit(b, "ldtilecfg", f"ptr {CONFIGURATION}")
    yield
    unit(b, "tilerelease")


def unit(b: Builder, name: str, arguments: str = "") -> None:
    """An instruction of the unit."""
    types = ", ".join(argument.split()[0] for argument in arguments.split(", ") if argument)
    b.declarations.setdefault(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
    b.effect(f"call void @llvm.x86.{name}({arguments})")


class _Products:
    """The blocks of a result: two tiles by two, or what there is.

    `begins`: whether sums are the first ones. If they are the only ones (`single`), they go straight to the result.
    """

    def __init__(
        self, nests: Nests, out: Memory, tiles: tuple[Tiles, Tiles], form: Form, begins: Value, single: bool = False
    ) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        (self.left, self.right), self.form, self.begins = tiles, form, begins
        self.m, self.n = out.shape
        self.blocks, self.tall = -(-self.m // ROWS), min(2, -(-self.m // ROWS))
        self.sums = None if single else self.b.allocate(4 * ROWS * WORDS * 4, "sums")

    def write(self) -> None:
        blocks = -(-self.n // WORDS)
        if blocks > 1:
            self._columns(0, blocks // 2 * 2, 2)
        if blocks % 2:
            self._columns(blocks - 1, blocks, 1)

    def _columns(self, start: int, end: int, wide: int) -> None:
        """The blocks of some columns, rows of blocks inside: the tiles of a column stay in the first cache.

        Those of the rows pass by, and the processor is told so where they have one part: 1.08 to 1.15 times as fast.
        """
        outer = self.nests.loop("n", start, end, wide)
        inner = self.nests.loop("m", 0, self.blocks, self.tall)
        self._block(inner.index, outer.index, wide)
        self.b.close_loop(inner)
        self.b.close_loop(outer)

    def _block(self, row: Value, column: Value, wide: int) -> None:
        b, e, tall = self.b, self.e, self.tall
        e.begin()
        rows = [b.op("add", row, constant(r, I64)) for r in range(tall)]
        if self.blocks % tall:
            rows = [b.intrinsic("smin", r, constant(self.blocks - 1, I64)) for r in rows]
        columns = [b.op("add", column, constant(c, I64)) for c in range(wide)]
        if self.begins.text != "true":
            self._fetch(row, column, wide)
        for number in range(tall * wide):
            unit(b, "tilezero", f"i8 {number}")
        loop = self.nests.loop("k", 0, self.left.steps, 1)
        for instruction in schedule(self.form, tall, wide):
            match instruction:
                case Bring(tile, part):
                    side, block = (self.left, rows[tile - 4]) if tile < 6 else (self.right, columns[tile - 6])
                    at = side.at(e, block, loop.index, part, constant(0, I64))
                    passing = tile < 6 and self.form.parts == 1
                    unit(b, "tileloaddt164" if passing else "tileloadd64", f"i8 {tile}, ptr {at}, i64 64")
                case Multiply(r, c):
                    unit(b, self.form.instruction, f"i8 {r * wide + c}, i8 {4 + r}, i8 {6 + c}")
        b.close_loop(loop)
        pitch = wide * WORDS * 4 if self.sums is not None else self._pitch()
        for number in range(tall * wide):
            r, c = divmod(number, wide)
            if self.sums is None:
                at = self._place(rows[r], columns[c])
            else:
                at = b.offset(self.sums, self.out.element, constant((r * ROWS * wide + c) * WORDS, I64))
            unit(b, "tilestored64", f"i8 {number}, ptr {at}, i64 {pitch}")
        e.begin()
        if self.sums is not None:
            self._add(self.sums, row, column, wide)

    def _fetch(self, row: Value, column: Value, wide: int) -> None:
        """Has what a block is added to brought to the first cache, while the block is computed."""
        b, first = self.b, self._place(row, column)
        b.declarations.setdefault("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(self.tall * ROWS):
            for c in range(wide):
                at = b.offset(first, "i8", constant(line * self._pitch() + c * TILE // ROWS, I64))
                b.effect(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 3, i32 1)")

    def _place(self, row: Value, column: Value) -> Value:
        """Where a tile of the result is."""
        return self.e.place(self.out, [self.b.op("mul", x, constant(ROWS, I64)) for x in (row, column)])

    def _pitch(self) -> int:
        return 4 * (self.out.room or self.out.shape)[1]

    def _add(self, sums: Value, row: Value, column: Value, wide: int) -> None:
        """Adds the sums of a block to the result, or puts them there. There is room for a whole block."""
        b, e = self.b, self.e
        first, element = self._place(row, column), self.out.element
        type, add = Type(element, WORDS), "fadd" if self.out.dtype.is_float else "add"
        for n in range(self.tall * ROWS * wide):
            line, c = divmod(n, wide)
            at = b.offset(first, element, constant(line * self._pitch() // 4 + c * WORDS, I64))
            value = e.once(b.offset(sums, element, constant(n * WORDS, I64)), type, 4)
            if self.begins.text != "true":
                more = b.op(add, e.once(at, type, 4), value)
                value = more if self.begins.is_constant else b.select(self.begins, value, more)
            b.effect(f"store {type} {value}, ptr {at}, align 4")
        e.begin()


def _configuration() -> str:
    """All eight tiles have 16 rows of 64 bytes."""
    data = bytes([1, 0, *[0] * 14, *[64, 0] * 8, *[0] * 16, *[ROWS] * 8, *[0] * 8])
    shown = "".join(f"\\{byte:02X}" for byte in data)
    return f'{CONFIGURATION} = private constant [64 x i8] c"{shown}", align 64'
