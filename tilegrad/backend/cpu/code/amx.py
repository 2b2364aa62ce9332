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
from .amx_blocks import Blocks, Finish, Form, Sums, unit
from .amx_packing import ROWS, WORDS, Packer, Span, Tiles, bits_of, fit
from .elements import Memory
from .nests import Nests

CONFIGURATION = "@tile_configuration"

PLAIN = Form(0, ())
"""Of what is left to multiply-adds."""
ONE = Form(1, ((0, 0),))
THREE = Form(2, ((0, 1), (0, 0), (1, 0)))
SIX = Form(3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)))
FORMS: dict[Precision, Form] = {"medium": ONE, "high": THREE, "highest": SIX}
INTEGERS = {int8: Form(1, ((0, 0),), "tdpbssd"), uint8: Form(1, ((0, 0),), "tdpbuud")}
"""All numbers have a sign, or none has."""


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
            _multiply(nests, out, (left.tiles, right.tiles), form, Sums(constant(not accumulates, I1)))
        e.begin()

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


def whole(
    nests: Nests, out: Memory, turns: Sequence[Turn], finish: Finish | None, otherwise: Callable[[], None]
) -> None:
    """out = the sum of the products of all turns, whose operands were packed beforehand, or what `finish` makes of it.

    Whether numbers are odd is asked once for all of them.
    """
    b = nests.b
    if not turns[0].form.looks:
        return _by_unit(nests, out, turns, finish)
    chosen = _all_fit(nests, turns)
    b.open_branch("unit")
    _by_unit(nests, out, turns, finish)
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


def may_be_finished(target: Target, shape: tuple[int, ...]) -> bool:
    """Whether the unit's blocks of a result may be finished one by one: none reaches beyond it."""
    return target.matrix_unit and shape[0] % (2 * ROWS) == 0 == shape[1] % (2 * WORDS)


def _by_unit(nests: Nests, out: Memory, turns: Sequence[Turn], finish: Finish | None) -> None:
    """The sum of all turns, made in the unit."""
    b = nests.b
    with _configured(nests):
        for turn in turns:
            loop = _open(nests, turn)
            left, right = (p.to for p in _packers(nests, turn))
            sums = Sums(_is_number(b, turn, loop, 0, turn.first == 0), asks=True)
            if turn is turns[-1] and finish is not None:
                sums = sums._replace(ends=_is_number(b, turn, loop, turn.times - 1, True), finish=finish)
            _multiply(nests, out, (left, right), turn.form, sums)
            b.close_loop(loop)
    nests.e.begin()


def _is_number(b: Builder, turn: Turn, loop: Loop, number: int, possible: bool) -> Value:
    """Whether this is the turn of a product with some number."""
    if not possible or turn.times == 1:
        return constant(possible, I1)
    return b.compare("eq", loop.index, constant(number, I64))


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


def _multiply(nests: Nests, out: Memory, tiles: tuple[Tiles, Tiles], form: Form, sums: Sums) -> None:
    """In the matrix unit, or where there are only vectors of pairs (`pairs.py`), by these."""
    if nests.target.matrix_unit:
        Blocks(nests, out, tiles, form, sums).write()
    else:
        pairs.Products(nests, out, tiles, sums.begins).write()


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


def _configuration() -> str:
    """All eight tiles have 16 rows of 64 bytes."""
    data = bytes([1, 0, *[0] * 14, *[64, 0] * 8, *[0] * 16, *[ROWS] * 8, *[0] * 8])
    shown = "".join(f"\\{byte:02X}" for byte in data)
    return f'{CONFIGURATION} = private constant [64 x i8] c"{shown}", align 64'
