"""Plan a graph before kernels exist: the order of groups, and the memory that they take."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.graph import Graph, Value
from ..runtime.arena import Lifetime, plan_arena
from ..runtime.target_model import TargetModel
from ..transform.rematerialise import MemoryPlan
from .fuse import fuse_ordered
from .group import Schedule
from .inline import estimated_size
from .order import order
from .order_edges import waiting


def planned(graph: Graph, updates: Mapping[int, int] = {}, target: TargetModel = TargetModel()) -> MemoryPlan:
    """Plan a graph; `updates` maps outputs to the inputs whose new values they are.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> from ..ops.exponential import exp
    >>> x = Input(TensorType(float32, (64,)), "x")
    >>> planned(Graph((x,), (reduce_sum(exp(x)),))).bytes
    260
    """
    plain, waits, back = waiting(graph)
    schedule = order(fuse_ordered(plain, waits, target), updates)
    lives = _lifetimes(schedule, updates)
    arena = estimated_size(plan_arena(list(lives.values()))[1])
    use = [
        sum(estimated_size(x.bytes) for x in lives.values() if x.first <= n <= x.last)
        for n in range(len(schedule.groups))
    ]
    peak = max(range(len(use)), key=use.__getitem__, default=0)

    def own(v: Value) -> Value:
        return back.get(v, v)

    return MemoryPlan(
        arena + (rest := _rest(schedule, updates)),
        rest,
        tuple([tuple([own(v) for v in g.values()]) for g in schedule.groups]),
        tuple([tuple([own(v) for v in g.needs()]) for g in schedule.groups]),
        frozenset([own(v) for g in schedule.groups for v in g.stored]),
        peak,
        tuple([own(v) for v, life in lives.items() if life.first <= peak <= life.last]),
    )


def _lifetimes(schedule: Schedule, updates: Mapping[int, int]) -> dict[Value, Lifetime]:
    """Return the lifetime of each temporary, in kernels. New values that cannot overwrite old ones are copied at the
    end.
    """
    results = {v for n, v in enumerate(schedule.outputs) if n not in updates}
    copied = set(schedule.outputs) - results - {new for new, _ in schedule.overwritten}
    kept = {*schedule.inputs, *results, *(new for new, _ in schedule.overwritten)}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for n, group in enumerate(schedule.groups):
        for v in (*group.stored, *group.needs()):
            if v not in kept:
                first.setdefault(v, n)
                last[v] = len(schedule.groups) if v in copied else n
    return {v: Lifetime(str(n), v.type.bytes, first[v], last[v]) for n, v in enumerate(first)}


def _rest(schedule: Schedule, updates: Mapping[int, int]) -> int:
    """Count the bytes of inputs, and of outputs with memory of their own; inputs that are updated and needed at the end
    are saved before.
    """
    own = {v for n, v in enumerate(schedule.outputs) if n not in updates} - set(schedule.inputs)
    renewed = {schedule.inputs[old] for old in updates.values()}
    saved = [v for v in schedule.outputs if v in renewed]
    return sum(estimated_size(v.type.bytes) for v in (*schedule.inputs, *own, *saved))
