"""Checks what fusion made before anything is compiled of it: every element that is read was written.

An index is an axis of its group: two axes of equal extents are different indices, and one index is one axis. If fusion
took one for the other, a store would miss elements, or depend on more than its position. The checks follow from the
expressions alone, and are quick; which positions are in range is proved by `ranges.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import CompileError
from ..ir.graph import Value
from ..ir.position import digits
from ..ir.scalar import Expr, Index, Position, Reduce, Scan, facts, free, loops_in, size
from ..ir.size import Shape, product
from .group import Group, GroupMember, Schedule


def check_schedule(schedule: Schedule) -> Schedule:
    """Return the schedule; raise CompileError, naming the group, if something is read that nobody has written."""
    there = set(schedule.inputs)
    for number, group in enumerate(schedule.groups):
        reason = _missing(group, there) or wrong_in(group)
        if reason:
            raise CompileError(f"group {number} is wrong: {reason}\n{_shown(schedule, group)}")
        there.update(group.stored)
    left = [v for v in schedule.outputs if v not in there]
    if left:
        raise CompileError(f"the output {left[0]} is never written")
    return schedule


def _shown(schedule: Schedule, group: Group) -> str:
    return group.text(schedule.names()) if group.kind != "opaque" else str(group.stored[0])


def _missing(group: Group, there: set[Value]) -> str:
    """Describe a value that a group reads and no earlier group stores."""
    for value in group.needs():
        if value not in there and 0 not in value.shape:
            return f"{value}: {value.type} is read before it is written"
    return ""


def wrong_in(group: Group) -> str:
    """Describe the first fault of a group; empty if there is none.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ir.scalar import Read
    >>> x, y = (Input(TensorType(float32, (3, 3)), name) for name in "xy")
    >>> i, j = Index("i", 3), Index("j", 3)
    >>> member = GroupMember(y, (i, j), Read(x, (j, i), float32))
    >>> wrong_in(Group("map", (i, j), (), (member,), (y,)))
    ''
    >>> wrong_in(Group("map", (i, i), (), (member,), (y,)))
    'the index i is two axes'
    >>> wrong_in(Group("map", (i, j), (), (member.replaced(position=(i, i)),), (y,)))
    'y is computed from j, which its position does not have'
    """
    if group.kind == "opaque":
        return ""
    axes = (*group.rows, *group.columns)
    if len(set(axes)) < len(axes):
        return f"the index {next(i for i in axes if axes.count(i) > 1)} is two axes"
    made: dict[Value, Position] = {}
    for member in group.members:
        reason = _wrong_in_member(group, member, made)
        if reason:
            return reason
        made[member.value] = member.position
    return ""


def _wrong_in_member(group: Group, member: GroupMember, made: dict[Value, Position]) -> str:
    value, position, expr = member.value, member.position, member.expr
    own = _indices(position)
    unknown = own - {*group.rows, *group.columns}
    if unknown:
        return f"the index {_first(unknown)} in the position of {value} is no axis of the group"
    more = free(expr) - own
    if more:
        return f"{value} is computed from {_first(more)}, which its position does not have"
    twice = {e.index for e in loops_in(expr) if isinstance(e, Reduce | Scan)} & {*group.rows}
    if twice:
        return f"{value} goes over the index {_first(twice)}, which is a row of the group"
    if value in group.stored and not covers(position, value.shape):
        return f"the position of {value} does not reach each of its elements once"
    for read in facts(expr).reads:
        if read.source in made and read.position != made[read.source]:
            return f"{read.source} is read elsewhere than where it is computed"
    return ""


def covers(position: Position, shape: Shape) -> bool:
    """Whether a position goes through each element of a shape once: as digits do, each axis by indices of its own.

    >>> i, j = Index("i", 3), Index("j", 5)
    >>> covers((i, j), (3, 5)), covers((i * 5 + j,), (15,)), covers((i, i), (3, 3)), covers((j * 5 + i,), (15,))
    (True, True, False, False)
    """
    seen: set[Index] = set()
    for p, extent in zip(position, shape, strict=True):
        indices = [(p, size(1))] if isinstance(p, Index) else digits(p)
        if indices is None or seen & {i for i, _ in indices}:
            return False
        seen.update(i for i, _ in indices)
        if product(i.extent for i, _ in indices) != extent:
            return False
    return True


def _indices(position: Iterable[Expr]) -> set[Index]:
    return {i for p in position for i in facts(p).indices}


def _first(indices: Iterable[Index]) -> str:
    return min(i.name for i in indices)
