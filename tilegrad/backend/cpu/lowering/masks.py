"""Masks that compare an index with a bound: up to where along an axis they hold.

A mask is a conjunction. A conjunct that is linear in the index of an axis holds up to a limit that can be computed
before the loop over that axis; below it nothing has to be masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .. import linear
from ..emit import I1, I64, Builder, Value, constant
from ..linear import LANE, ZERO, Linear, number
from .elements import TRUE, Elements, Frame, Position
from .nodes import TileNode
from .roots import Pattern, Root, identity_pattern, project_pattern

Conjunct = tuple[TileNode, Pattern]
"""A part of a mask, and which axes of the domain it is read along."""


def conjuncts(frame: Frame, roots: Iterable[Root]) -> list[Conjunct]:
    """The parts of the masks of all that some roots load and store, in an order that does not change."""
    found: dict[Conjunct, None] = {}
    for root in roots:
        for node, pattern in root.ordered_visits:
            if node.kind == "load" and len(node.args) > 1 and node not in frame.results:
                mask = node.args[1]
                found |= dict.fromkeys(parts(mask, project_pattern(pattern, mask.shape, node.shape)))
        found |= dict.fromkeys(of_store(root))
    return list(found)


def of_store(root: Root) -> list[Conjunct]:
    """The parts of the mask of a store."""
    if root.mask is None:
        return []
    whole = identity_pattern(len(root.domain))
    return list(parts(root.mask, project_pattern(whole, root.mask.shape, root.domain)))


def parts(mask: TileNode, pattern: Pattern) -> Iterator[Conjunct]:
    if mask.kind == "apply" and mask.data == "bitand":
        for a in mask.args:
            yield from parts(a, project_pattern(pattern, a.shape, mask.shape))
    elif mask.kind != "literal":
        yield mask, pattern


def placed(pattern: Pattern, whole: Position) -> Position:
    """The position of an expression where the loops are at `whole`."""
    return tuple([ZERO if p < 0 else whole[p] for p in pattern])


def limit(frame: Frame, conjunct: Conjunct, whole: Position, axis: int, extent: int) -> Value | None:
    """Up to where along an axis a mask holds, if there is such a place; 0 if it holds nowhere, the extent if everywhere."""
    node, pattern = conjunct
    if any(p < -1 for p in pattern):
        return None
    b = frame.builder
    if axis not in pattern:
        return _all_or_nothing(frame, node, placed(pattern, whole), extent)
    along = (*whole[:axis], LANE, *whole[axis + 1 :])
    found = Elements(frame, extent).difference(node, placed(pattern, along))
    if found is None or found[1].lane != 1:
        return None
    fn, difference = found
    bound = linear.add(b, number(int(fn == "le")), difference.base, -1)
    if bound.is_number:
        return constant(max(0, bound.number), I64)
    made = b.intrinsic("smax", linear.scalar(b, bound, "limit"), constant(0, I64))
    made.negative = False
    return made


def _all_or_nothing(frame: Frame, node: TileNode, at: Position, extent: int) -> Value | None:
    """The limit of a mask that does not vary along the axis."""
    if any(p.lane != 0 for p in at):
        return None
    holds = Elements(frame, 0).value(node, at)
    if holds.type != I1:
        return None
    if holds.is_constant:
        return constant(extent if holds.text == "true" else 0, I64)
    return frame.builder.select(holds, constant(extent, I64), constant(0, I64), "limit")


def assume(elements: Elements, known: Sequence[Conjunct], whole: Position) -> None:
    """Lets masks that are known to hold at a position be true there."""
    for node, pattern in known:
        elements.known[node, placed(pattern, whole)] = TRUE


def least(b: Builder, limits: Iterable[Value], extent: Value) -> Value:
    for found in limits:
        extent = extreme(b, "smin", extent, found)
    return extent


def extreme(b: Builder, name: str, x: Value, y: Value) -> Value:
    if x.is_constant and y.is_constant:
        choose = min if name == "smin" else max
        return constant(choose(int(x.text), int(y.text)), I64)
    made = b.intrinsic(name, x, y, hint="end")
    made.negative = False
    return made


def all_hold(frame: Frame, found: Sequence[Conjunct], whole: Position, reach: Sequence[tuple[int, int, Value]]) -> Value | None:
    """Whether all masks hold in a whole block, if that can be computed before it.

    `reach` has, for each axis that the block runs along, its extent and where the block ends.
    """
    b, holds = frame.builder, TRUE
    for conjunct in found:
        axes = [(axis, extent, end) for axis, extent, end in reach if axis in conjunct[1]]
        if len(axes) > 1:
            return None
        axis, extent, end = axes[0] if axes else reach[0]
        bound = limit(frame, conjunct, whole, axis, extent)
        if bound is None:
            return None
        one = b.compare("sge", bound, end if axes else constant(1, I64), "holds")
        holds = one if holds is TRUE else b.op("and", holds, one, "holds")
    return holds


def moved(x: Linear, by: int) -> Linear:
    return x._replace(number=x.number + by)
