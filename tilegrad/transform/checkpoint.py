"""Checkpointing: recompute intermediate values for the gradient instead of storing them.

This trades work for memory: between the forward and the backward pass only the inputs stay alive. Random numbers are
the same in both passes, because their state is an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.graph import Input, Value, topological
from ..ops.joint import Recompute, joint_outputs
from .autodiff import gradients, is_leaf
from .batch import substitute


def checkpointed(outputs: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    """Return the outputs, with gradients that recompute everything between the inputs and the outputs."""
    given = set(inputs)
    reached = topological(outputs, lambda v: v in given or is_leaf(v))
    captured = [v for v in reached if is_leaf(v) and v not in given and (type(v) is Input or v.inputs)]
    arguments = [*inputs, *captured]

    def rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
        flowing = [(y, u) for y, u in zip(outputs, upstreams, strict=True) if u is not None]
        return recomputed_gradients(flowing, {x: Recompute(x, flowing[0][1]) for x in arguments})

    return joint_outputs(outputs, arguments, rule)


def recomputed_gradients(flowing: Sequence[tuple[Value, Value]], again: Mapping[Value, Value]) -> list[Value | None]:
    """Return the gradients with respect to `again`, the inputs that the differentiated values are recomputed from."""
    anew = substitute([y for y, _ in flowing], again)
    for copy in again.values():
        copy.note().is_leaf = True  # the gradient reaches the producers of x through x
    found = gradients(anew, [u for _, u in flowing], list(again.values()))
    for copy in again.values():
        copy.note().is_leaf = False
    return found
