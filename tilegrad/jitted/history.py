"""Attach gradient histories to the results of a program: they are those of the traced graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..functions.creation import tensor
from ..ir.graph import Input, TensorType, Value
from ..ir.node import amend
from ..lazy.handle import Handle, wrap
from ..lazy.layout import lay
from ..lazy.storage import detached, replaced
from ..ops.batched import BatchedValue, rebuilt
from ..ops.joint import joint_outputs
from ..transform.autodiff import gradient_place, gradients

if TYPE_CHECKING:
    from .specialised import Specialised


def given_values(program: Specialised, leaves: Sequence[Any]) -> dict[Value, Value]:
    """Map the inputs of a program to their values before a call, for the gradients of its results."""
    present: dict[Value, Value] = {}
    for x, placeholder in zip(leaves, program.placeholders, strict=True):
        if placeholder is not None:
            present[placeholder] = x.value if isinstance(x, Handle) else tensor(x, dtype=placeholder.dtype).value
    first, updated = len(present), frozenset(program.updated)
    for n, base in enumerate(program.captured):
        forgotten = n in updated and n not in program.read_before_write  # nothing reads its elements
        present[program.given[first + n]] = base.standing() if forgotten else base.current()
    present |= {n.placeholder: tensor(n.read(), dtype=n.placeholder.dtype).value for n in program.host}
    standing = [s for s in [*program.standing, *program.captured_values] if s is not None]
    return present | {s: present[s.inputs[0]] for s in standing if s not in present}


def with_history(
    program: Specialised,
    results: list[Any],
    moved: Sequence[Value],
    present: Mapping[Value, Value],
    sizes: Mapping[str, int],
) -> list[Value]:
    """Attach histories to results and changed arguments: their gradients are those of the traced graph, recorded on
    demand. For a symbolic program the sizes of the call are substituted.
    """
    inputs = [s for s in [*program.standing, *program.captured_values] if s is not None and s.tracked]
    outputs, actual = program.tracked, [present[s] for s in inputs]
    parts = {x: BatchedValue(value, False) for x, value in present.items()}
    leaves = {gradient_place(s): present[s] for s in inputs}
    for later in program.rewritten_leaves:  # gradients go to what stood for the leaf at first, if to any
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

    plain = [*[results[n]._value for n in program.differentiable], *moved]
    made = joint_outputs(plain, actual, rule)
    for value, without in zip(made, plain, strict=True):
        value.hold(without.buffer)
    for n, value in zip(program.differentiable, made, strict=False):
        results[n] = lay(wrap(value), results[n]._strides)
    return made[len(program.differentiable) :]


def _standing_for(upstream: Value, type: TensorType) -> Value:
    """Make a placeholder for a gradient, whose type may have symbolic sizes."""
    made = Input(type)
    amend(made, tracked=upstream.tracked)
    return made
