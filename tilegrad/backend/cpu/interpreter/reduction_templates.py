"""Bind reductions of pointwise expressions to sizes and strides, as `templates.py` binds the pointwise ones.

Either the lanes of blocks are elements of the result, or those that are reduced. What decides is a few extents and
steps; a template is for one decision. Long reductions are cut into pieces: they are translated for their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from ....ir.dtype import DType
from ....ir.scalar import Expr, Index
from .bytecode import BlockStage
from .loading import link_opcodes, opcodes_of
from .reductions import MAX_ROW, MAX_STEPS, MIN_ROW_LANES
from .stages import MAX_ROW_LANES, MIN_LANES, StridedMemory
from .templates import MAX_SHORT_ROWS, PROTOTYPE_LANES, MergedAxis, bind_stage, is_plain, merged_axes
from .translate import translate

ReducedElement: TypeAlias = "Callable[[Sequence[Index], Sequence[Index]], Expr]"
"""Makes the element of a reduction for indices of the result and of what is reduced."""


class ReductionLoops(NamedTuple):
    """The merged axes of a reduction; the last memory is the result."""

    outer: list[MergedAxis]
    inner: list[MergedAxis]
    lane: int
    """The axis that has the lanes, of the outer ones; -1: the last of the inner ones has."""

    @property
    def in_order(self) -> list[MergedAxis]:
        """The axes as loops: outer, inner, lanes."""
        if self.lane < 0:
            return [*self.outer, *self.inner]
        return [*self.outer[: self.lane], *self.outer[self.lane + 1 :], *self.inner, self.outer[self.lane]]


def reduction_loops(
    shape: Sequence[int], reduced: Sequence[int], strides: Sequence[tuple[int, ...]]
) -> ReductionLoops | None:
    """Choose the loops of a reduction over some axes; None if it is translated for its sizes.

    >>> reduction_loops((4, 5, 60), (2,), [(300, 60, 1)])
    ReductionLoops(outer=[(20, (60, 1))], inner=[(60, (1, 0))], lane=-1)
    >>> reduction_loops((4, 60), (0,), [(60, 1)])
    ReductionLoops(outer=[(60, (1, 1))], inner=[(4, (60, 0))], lane=0)
    """
    kept = [n for n in range(len(shape)) if n not in reduced]
    outer = merged_axes([shape[n] for n in kept], [tuple([s[n] for n in kept]) for s in strides])
    found = merged_axes([shape[n] for n in reduced], [tuple([s[n] for n in reduced]) for s in strides])
    inner = [(extent, (*steps[:-1], 0)) for extent, steps in found]
    if outer[0][0] == 1:
        outer = []
    if inner[-1][0] == 1:
        return None
    lane = _lane(outer, inner)
    rows = prod([extent for extent, _ in outer])
    steps = prod([extent for extent, _ in inner])
    if lane < 0:
        return ReductionLoops(outer, inner, lane) if inner[-1][0] <= MAX_ROW else None
    is_short = len(outer) > 1 and MIN_LANES <= outer[lane][0] < MAX_ROW_LANES and rows > MAX_SHORT_ROWS
    return None if steps > MAX_STEPS or is_short else ReductionLoops(outer, inner, lane)


def _lane(outer: Sequence[MergedAxis], inner: Sequence[MergedAxis]) -> int:
    """Choose the axis of the lanes as the translation does."""
    if not outer:
        return -1
    last = len(outer) - 1
    lane = last if outer[last][0] >= MIN_LANES else max(range(last, -1, -1), key=lambda n: outer[n][0])
    (extent, steps), (row, along) = outer[lane], inner[-1]
    if extent < MIN_ROW_LANES:
        return -1 if row > extent else lane
    both = [(a, b) for a, b in zip(along[:-1], steps, strict=False) if a and b]
    is_along = sum([a == 1 for a, _ in both]) > sum([b == 1 for _, b in both])
    return -1 if row >= MIN_ROW_LANES and is_along else lane


def bind_reduction(
    kind: object, dtype: DType, element: ReducedElement, loops: ReductionLoops
) -> Callable[..., None] | None:
    """Return a function that computes a reduction of a pointwise expression of strided memories; None if its stage has
    no template.
    """
    axes = loops.in_order
    steps = tuple([step if step in (0, 1) else 2 for step in axes[-1][1]])
    present = tuple([tuple([step != 0 for step in own]) for _, own in axes[:-1]])
    outer = loops.outer[: len(loops.outer) - (loops.lane >= 0)]
    across = bool(outer) and any(
        abs(s) > 1 and 0 < abs(o) < abs(s) for o, s in zip(axes[len(outer) - 1][1], axes[-1][1], strict=True)
    )
    known = (kind, "reduction", len(loops.outer), len(loops.inner), loops.lane, steps, present, across)
    return bind_stage(known, lambda: _prototype(dtype, element, loops), axes)


def _prototype(dtype: DType, element: ReducedElement, loops: ReductionLoops) -> BlockStage | None:
    """Translate a reduction for many lanes and few steps; None if its stage has other loops than these."""
    outer, inner = ([2 + n % 5 for n in range(len(axes))] for axes in (loops.outer, loops.inner))
    if loops.lane < 0:
        inner[-1] = MAX_ROW
    else:
        outer[loops.lane] = PROTOTYPE_LANES
    own = [Index(f"i{n}", extent) for n, extent in enumerate(outer)]
    over = [Index(f"k{n}", extent) for n, extent in enumerate(inner)]
    count, shape = len(loops.inner[0][1]) - 1, (*outer, *inner)
    memories = {
        n: StridedMemory(n, shape, tuple([steps[n] for _, steps in (*loops.outer, *loops.inner)])) for n in range(count)
    }
    program = translate(dtype, outer, element(own, over), own, memories)
    if program is None or len(program.stages) != 1 or program.temporaries or program.inputs != count:
        return None
    stage = program.stages[0]
    lanes = inner.pop() if loops.lane < 0 else outer.pop(loops.lane)
    wanted = (tuple(outer), tuple(inner), lanes, loops.lane < 0)
    if not is_plain(stage) or (stage.outer, stage.inner, stage.lanes, stage.lanes_inside) != wanted:
        return None
    link_opcodes(opcodes_of(stage))
    return stage
