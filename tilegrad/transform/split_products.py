"""Matrix products with few results and long sums are cut along the sum, so that every core has some."""

from __future__ import annotations

from math import prod

from ..ir.graph import Value
from ..ir.location import working_for
from ..ops.broadcasting import accumulator, reduce_sum, reshape
from ..ops.cast import cast
from ..ops.contraction import Contract, letters
from ..runtime.grain import Grain

SIDE = 64
"""About the smallest tile that a core computes at its rate."""


def pieces_of(value: Contract, grain: Grain) -> int:
    """Into how many pieces the sum of a product is cut.

    >>> from ..ir.dtype import bfloat16
    >>> from ..ir.graph import Input, TensorType
    >>> from ..runtime.grain import many_small
    >>> x, y = (Input(TensorType(bfloat16, shape)) for shape in ((128, 8192), (8192, 256)))
    >>> pieces_of(Contract(x, y, "ik,kj->ij"), many_small(132)), pieces_of(Contract(x, y, "ik,kj->ij"), Grain())
    (16, 1)
    """
    limits = grain.products
    extents = _extents(value)
    longest = _longest(value)
    if not limits.fill or extents is None or not longest:
        return 1
    of_x, of_y, out = letters(value.equation)
    tiles = prod(extents[a] for a in out if a in of_x and a in of_y)
    for operand, other in ((of_x, of_y), (of_y, of_x)):
        tiles *= -(-prod(extents[a] for a in operand if a not in other) // SIDE)
    extent = extents[longest]
    wanted = min(limits.fill // max(1, tiles), extent // limits.least_depth)
    pieces = 1 << max(0, wanted.bit_length() - 1)
    while extent % pieces:
        pieces //= 2
    return pieces


def in_pieces(value: Contract, count: int) -> Value:
    """The same product, over pieces of its longest sum first; those are added up in their order."""
    of_x, of_y, out = letters(value.equation)
    longest = _longest(value)
    new = next(c for c in "PQRSTUVWXYZ" if c not in value.equation)
    wide = accumulator(value.dtype)
    with working_for(value.location):
        operands, words = [], []
        for x, word in ((value.x, of_x), (value.y, of_y)):
            axis = word.index(longest)
            extent = x.shape[axis]
            assert type(extent) is int
            cut = reshape(x, (*x.shape[:axis], count, extent // count, *x.shape[axis + 1 :]))
            operands.append(cast(cut, wide))
            words.append(word.replace(longest, new + longest))
        equation = f"{words[0]},{words[1]}->{new}{out}"
        pieces = value.replaced(x=operands[0], y=operands[1], equation=equation)
        return cast(reduce_sum(pieces, (0,)), value.dtype)


def _extents(value: Contract) -> dict[str, int] | None:
    """How long the axis of each letter is; None if one varies."""
    of_x, of_y, _ = letters(value.equation)
    extents: dict[str, int] = {}
    for letter, extent in [*zip(of_x, value.x.shape, strict=True), *zip(of_y, value.y.shape, strict=True)]:
        if type(extent) is not int:
            return None
        extents[letter] = max(extent, extents.get(letter, 1))
    return extents


def _longest(value: Contract) -> str:
    """The letter of the longest sum; empty if nothing is summed."""
    of_x, _, out = letters(value.equation)
    extents = _extents(value) or {}
    return max((a for a in of_x if a not in out), key=lambda a: extents.get(a, 0), default="")
