"""Products of tiles of narrow numbers, as `low_precision_forms.py` has chosen: by a matrix unit (`amx_blocks.py`), or
where there is none, by vectors of pairs (`bf16_dot.py`).

The sums of one product of tiles are made from 0 and added to those before them by ordinary vectors: the chain of
additions is short, and denormal sums stay what they are.

Where numbers are so large, small or odd that another result would come out than by float32 arithmetic, the product is
computed by multiply-adds (`dot.py`); packing finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ....ir import tile as ir
from ....ir.dtype import uint8
from ..emit import I1, I64, Builder, Loop, Type, Value, constant
from ..target import Target
from .amx_blocks import Blocks, Sums, configured
from .amx_packing import ROWS, WORDS, Packer, Span, Tiles, bits_of, fit
from .bf16_dot import Products
from .elements import Memory
from .low_precision_forms import Form, Turn
from .nests import Nests, Taker


def dot(
    nests: Nests,
    out: Memory,
    factors: tuple[ir.Tile, ir.Tile],
    form: Form,
    accumulates: bool,
    otherwise: Callable[[], None],
) -> None:
    """out (+)= x @ y; `otherwise` writes the same by multiply-adds."""
    e, b = nests.e, nests.b
    spare, b.spare = b.spare, dict(nests.panels)
    packers = [Packer(nests, x, form.parts, bool(side), _place(nests, x, bool(side))) for side, x in enumerate(factors)]
    nests.panels |= {p.to.address.text: b.allocated[p.to.address.text] for p in packers if not p.beforehand}
    b.spare = spare
    left, right = (p.found() if p.beforehand else p.pack() for p in packers)

    def multiply() -> None:
        with _ready(nests):
            _multiply(nests, out, (left.tiles, right.tiles), form, Sums(constant(not accumulates, I1)))
        e.begin()

    if not form.looks:
        return multiply()
    chosen = fit(b, left.span, right.span)
    b.open_branch("unit")
    multiply()
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


def whole(
    nests: Nests, out: Memory, turns: Sequence[Turn], finish: Taker | None, otherwise: Callable[[], None]
) -> None:
    """out = the sum of the products of all turns, whose operands were packed beforehand, or what `finish` makes of it.

    Whether numbers are odd is asked once for all of them.
    """
    b = nests.b
    if not turns[0].form.looks:
        return _multiply_all(nests, out, turns, finish)
    chosen = _all_fit(nests, turns)
    b.open_branch("unit")
    _multiply_all(nests, out, turns, finish)
    then = b.close_branch()
    b.open_branch("odd")
    otherwise()
    b.close_branches(chosen, then, b.close_branch())
    nests.e.begin()


def _all_fit(nests: Nests, turns: Sequence[Turn]) -> Value:
    """Whether what comes out is what float32 arithmetic would give, in all turns."""
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
    """Whether a matrix unit's blocks of a result may be finished one by one: none reaches beyond it."""
    return target.matrix_unit and shape[0] % (2 * ROWS) == 0 == shape[1] % (2 * WORDS)


def _multiply_all(nests: Nests, out: Memory, turns: Sequence[Turn], finish: Taker | None) -> None:
    """The sum of all turns, whatever their numbers are."""
    b = nests.b
    with _ready(nests):
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


def _ready(nests: Nests) -> AbstractContextManager[None]:
    return configured(nests.b) if nests.target.matrix_unit else nullcontext()


def _multiply(nests: Nests, out: Memory, tiles: tuple[Tiles, Tiles], form: Form, sums: Sums) -> None:
    if nests.target.matrix_unit:
        Blocks(nests, out, tiles, form, sums).write()
    else:
        Products(nests, out, tiles, sums.begins).write()
