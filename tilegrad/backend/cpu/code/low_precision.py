"""Compute low-precision matrix products as `low_precision_forms.py` decides: with AMX (`amx_blocks.py`), or with
`vdpbf16ps` (`bf16_dot.py`).

The sums of each product of tiles start at 0 and are added to the accumulator by vector additions: chains of additions
stay short, and denormal sums are kept.

If the magnitudes of numbers, recorded while packing, could make the result differ from float32 arithmetic, the product
is computed by multiply-adds (`dot.py`) instead.
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
    """Emit out (+)= x @ y; `otherwise` emits the same by multiply-adds."""
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
    b.spare, e.made = spare, made  # tables written on that path do not exist on the other
    e.begin()


def _place(nests: Nests, x: ir.Tile, right: bool) -> Value | None:
    """Address of a prepacked operand."""
    place = nests.packed.get((x, right))
    return None if place is None else nests.e.of(place, [], 0, uint8)


def whole(
    nests: Nests, out: Memory, turns: Sequence[Turn], finish: Taker | None, otherwise: Callable[[], None]
) -> None:
    """Emit out = the sum of the products of all iterations, from prepacked operands, or its epilogue `finish`.

    The check of magnitudes is made once for all of them.
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
    """Whether low precision gives the result of float32 arithmetic in all iterations."""
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
    """Whether AMX blocks of a result may have an epilogue: none exceeds the result."""
    return target.matrix_unit and shape[0] % (2 * ROWS) == 0 == shape[1] % (2 * WORDS)


def _multiply_all(nests: Nests, out: Memory, turns: Sequence[Turn], finish: Taker | None) -> None:
    """Emit the sum of all iterations without a check of magnitudes."""
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
    """Whether this is the iteration of a product with this number."""
    if not possible or turn.times == 1:
        return constant(possible, I1)
    return b.compare("eq", loop.index, constant(number, I64))


def _open(nests: Nests, turn: Turn, carried: Sequence[tuple[str, Value]] = ()) -> Loop:
    """Open a loop over the iterations of a product, with the kernel's counter."""
    loop = nests.loop("turn", 0, turn.times, 1, carried)
    if turn.loop is not None:
        at = nests.b.op("mul", loop.index, constant(turn.step, I64))
        nests.e.registers[turn.loop.index] = nests.b.convert("trunc", at, "i32")
    return loop


def _packers(nests: Nests, turn: Turn) -> list[Packer]:
    """Packers of the operands of an iteration."""
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
