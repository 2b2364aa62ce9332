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
from ..emit import I1, I64, Builder, LlvmValue, OpenLoop, Type, constant
from ..summed_products import SummedProduct
from ..target import Target
from .amx_blocks import AmxBlocks, BlockSums, configured_tiles
from .amx_packing import ROWS, WORDS, AmxPacker, AmxTiles, MagnitudeRange, bits_of, matches_float32
from .bf16_dot import Bf16Blocks
from .low_precision_forms import LowPrecisionForm
from .memory import StackTile
from .nests import EmitVector, LoopNests
from .position import position


def dot(
    nests: LoopNests,
    out: StackTile,
    operands: tuple[ir.Tile, ir.Tile],
    form: LowPrecisionForm,
    accumulates: bool,
    fallback: Callable[[], None],
) -> None:
    """Emit out (+)= x @ y; `fallback` emits the same by multiply-adds."""
    e, b = nests.e, nests.b
    packers = _packers(nests, operands, form, dict(nests.reusable))
    nests.reusable |= {p.to.address.text: b.allocated[p.to.address.text] for p in packers if not p.is_prepacked}
    left, right = (p.found() if p.is_prepacked else p.pack() for p in packers)

    def multiply() -> None:
        with _configured_unit(nests):
            _multiply(nests, out, (left.tiles, right.tiles), form, BlockSums(constant(not accumulates, I1)))
        e.begin_nest()

    if not form.checks_magnitudes:
        return multiply()
    chosen = matches_float32(b, left.magnitudes, right.magnitudes)
    b.open_branch("unit")
    multiply()
    then = b.close_branch()
    b.open_branch("odd", dict(nests.reusable))
    allocated, computed = set(b.allocated), set(e.computed)
    fallback()
    b.close_branches(chosen, then, b.close_branch())
    nests.reusable |= {name: size for name, size in b.allocated.items() if name not in allocated}
    for key in e.computed.keys() - computed:  # tables written on that path do not exist on the other
        del e.computed[key]
    e.begin_nest()


def _prepacked_address(nests: LoopNests, x: ir.Tile, right: bool) -> LlvmValue | None:
    """Address of a prepacked operand."""
    place = nests.prepacked_tiles.get((x, right))
    return None if place is None else nests.e.evaluate(place, position(), uint8)


def dot_prepacked(
    nests: LoopNests,
    out: StackTile,
    products: Sequence[SummedProduct],
    finish: EmitVector | None,
    fallback: Callable[[], None],
) -> None:
    """Emit out = the sum of the products of all iterations, from prepacked operands, or its epilogue `finish`.

    The check of magnitudes is made once for all of them.
    """
    b = nests.b
    if not products[0].form.checks_magnitudes:
        return _multiply_all(nests, out, products, finish)
    chosen = _all_match_float32(nests, products)
    b.open_branch("unit")
    _multiply_all(nests, out, products, finish)
    then = b.close_branch()
    b.open_branch("odd")
    fallback()
    b.close_branches(chosen, then, b.close_branch())
    nests.e.begin_nest()


def _all_match_float32(nests: LoopNests, products: Sequence[SummedProduct]) -> LlvmValue:
    """Whether low precision gives the result of float32 arithmetic in all iterations."""
    b = nests.b
    ranges = [MagnitudeRange(constant(0, bits), constant(-1, bits)) for bits in [_range_type(nests, products[0])] * 2]
    for product in products:
        loop = _open_loop(
            nests,
            product,
            [(f"{name}{side}", x) for side in (0, 1) for name, x in zip("ml", ranges[side], strict=True)],
        )
        carried = [MagnitudeRange(*loop.carried[:2]), MagnitudeRange(*loop.carried[2:])]
        seen = [
            magnitudes.union(b, p.found().magnitudes)
            for magnitudes, p in zip(carried, _packers_of(nests, product), strict=True)
        ]
        ends = b.close_loop(loop, [x for magnitudes in seen for x in magnitudes])
        ranges = [MagnitudeRange(*ends[:2]), MagnitudeRange(*ends[2:])]
    return matches_float32(b, *ranges)


def has_whole_blocks(target: Target, shape: tuple[int, ...]) -> bool:
    """Whether AMX blocks of a result may have an epilogue: none exceeds the result."""
    return target.matrix_unit and shape[0] % (2 * ROWS) == 0 == shape[1] % (2 * WORDS)


def _multiply_all(
    nests: LoopNests, out: StackTile, products: Sequence[SummedProduct], finish: EmitVector | None
) -> None:
    """Emit the sum of all iterations without a check of magnitudes."""
    b = nests.b
    with _configured_unit(nests):
        for product in products:
            loop = _open_loop(nests, product)
            left, right = (p.to for p in _packers_of(nests, product))
            sums = BlockSums(_is_iteration(b, product, loop, 0, product.first == 0), prefetches=True)
            if product is products[-1] and finish is not None:
                sums = sums._replace(ends=_is_iteration(b, product, loop, product.iterations - 1, True), finish=finish)
            _multiply(nests, out, (left, right), product.form, sums)
            b.close_loop(loop)
    nests.e.begin_nest()


def _is_iteration(b: Builder, product: SummedProduct, loop: OpenLoop, number: int, possible: bool) -> LlvmValue:
    """Whether this is the iteration of a product with this number."""
    if not possible or product.iterations == 1:
        return constant(possible, I1)
    return b.compare("eq", loop.index, constant(number, I64))


def _open_loop(nests: LoopNests, product: SummedProduct, carried: Sequence[tuple[str, LlvmValue]] = ()) -> OpenLoop:
    """Open a loop over the iterations of a product, with the kernel's counter."""
    loop = nests.loop("turn", 0, product.iterations, 1, carried)
    if product.loop is not None:
        at = nests.b.op("mul", loop.index, constant(product.step, I64))
        nests.e.registers[product.loop.index] = nests.b.convert("trunc", at, "i32")
    return loop


def _packers(
    nests: LoopNests,
    operands: Sequence[ir.Tile],
    form: LowPrecisionForm,
    reusable: dict[str, int] | None = None,
) -> list[AmxPacker]:
    """Packers of the left and the right operand, in `reusable` memory unless they were prepacked."""
    return [
        AmxPacker(nests, x, form.parts, bool(side), _prepacked_address(nests, x, bool(side)), reusable)
        for side, x in enumerate(operands)
    ]


def _packers_of(nests: LoopNests, product: SummedProduct) -> list[AmxPacker]:
    """Packers of the operands of an iteration."""
    nests.e.begin_nest()
    return _packers(nests, [product.operand(right) for right in (False, True)], product.form)


def _range_type(nests: LoopNests, product: SummedProduct) -> Type:
    return bits_of(nests.e.types.of(product.dot.x).dtype)


def _configured_unit(nests: LoopNests) -> AbstractContextManager[None]:
    return configured_tiles(nests.b) if nests.target.matrix_unit else nullcontext()


def _multiply(
    nests: LoopNests, out: StackTile, tiles: tuple[AmxTiles, AmxTiles], form: LowPrecisionForm, sums: BlockSums
) -> None:
    if nests.target.matrix_unit:
        AmxBlocks(nests, out, tiles, form, sums).write()
    else:
        Bf16Blocks(nests, out, tiles, sums.begins).write()
