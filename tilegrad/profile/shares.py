"""Divide each launch among the user's lines and modules that it computes for.

A fused kernel computes something for several lines. It is divided among them by the operations that each line asked
for, an estimate: inside a kernel the time of one line cannot be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..ir.graph import Value
from ..ir.size import known
from ..schedule.group import Group
from .count import operations_of
from .lines import FileLine, values_of

if TYPE_CHECKING:
    from .explanation import Explanation


class Share(NamedTuple):
    """A user's line with its share of a launch, from 0 to 1."""

    place: FileLine
    share: float
    module: str = ""
    """The path of the module that the line ran in, as `layer2.0.conv1`."""

    def __str__(self) -> str:
        return str(self.place)


def shares_of(explained: Explanation, sizes: Mapping[str, int]) -> list[tuple[Share, ...]]:
    """Return the lines of each group with their shares; the shares of a group add up to 1."""
    found = []
    for group, values in zip(explained.groups, values_of(explained.simplified, explained.groups), strict=True):
        found.append(_shares(group, values, sizes))
    return found


def _shares(group: Group, values: Sequence[Value], sizes: Mapping[str, int]) -> tuple[Share, ...]:
    members = {m.value: m for m in group.members}
    weights: dict[tuple[FileLine, str], float] = {}
    for value in values:
        at = value.location
        if at is None or not value.inputs:
            continue
        count = max(1, known(value.type.count, sizes))
        member = members.get(value)
        weight = float(count if member is None else max(count, operations_of([member.expr], sizes)))
        key = FileLine(at.file, at.line), at.module
        weights[key] = weights.get(key, 0.0) + weight
    whole = sum(weights.values())
    shares = [Share(place, weight / whole, module) for (place, module), weight in weights.items()]
    return tuple(sorted(shares, key=lambda s: (-s.share, s.place)))
