"""Attach gradient histories to the results of a program: they are those of the traced graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.graph import Input, TensorType, Value
from ..ir.node import amend
from ..lazy.handle import wrap
from ..lazy.layout import lay
from ..lazy.storage import detached, replaced
from ..ops.batched import BatchedValue, rebuilt
from ..ops.joint import joint_outputs
from ..transform.autodiff import gradient_place, gradients

if TYPE_CHECKING:
    from .outputs import ResultHistory
    from .traced_call import ArgumentInput


def with_history(
    history: ResultHistory,
    results: list[Any],
    modified: Mapping[ArgumentInput, Value],
    present: Mapping[Value, Value],
    sizes: Mapping[str, int],
) -> dict[ArgumentInput, Value]:
    """Attach histories to results, and return the modified arguments with theirs: their gradients are those of the
    traced graph, recorded on demand. For a symbolic program the sizes of the call are substituted.
    """
    inputs = [s for s in history.standing if s.tracked]
    outputs, actual = history.outputs, [present[s] for s in inputs]
    parts = {x: BatchedValue(value, False) for x, value in present.items()}
    leaves = {gradient_place(s): present[s] for s in inputs}
    for later in history.rewritten:  # gradients go to what stood for the leaf at first, if to any
        elements = detached(rebuilt([later.inputs[0]], parts, sizes)[0].value)
        first = leaves.get(gradient_place(later))
        parts[later] = BatchedValue(elements if first is None else replaced(first, elements), False)

    def rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
        pairs = [(v, u) for v, u in zip(outputs, upstreams, strict=True) if u is not None]
        given = [_standing_for(u, v.type) if sizes else u for v, u in pairs]
        found = gradients([v for v, _ in pairs], given, inputs)
        known = parts | {one: BatchedValue(u, False) for one, (_, u) in zip(given, pairs, strict=True)}
        made = iter(rebuilt([g for g in found if g is not None], known if sizes else parts, sizes))
        return [None if g is None else next(made).value for g in found]

    plain = [*[results[n]._value for n in history.results], *[modified[a] for a in history.modified]]
    made = joint_outputs(plain, actual, rule)
    for value, without in zip(made, plain, strict=True):
        value.hold(without.buffer)
    for n, value in zip(history.results, made, strict=False):
        results[n] = lay(wrap(value), results[n]._strides)
    return {**modified, **dict(zip(history.modified, made[len(history.results) :], strict=True))}


def _standing_for(upstream: Value, type: TensorType) -> Value:
    """Make a placeholder for a gradient, whose type may have symbolic sizes."""
    made = Input(type)
    amend(made, tracked=upstream.tracked)
    return made
