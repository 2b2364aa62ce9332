"""Control flow: nodes with graphs in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as tg
from ...control import cond as chosen
from ...lazy.handle import is_tracing
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..values import Number, as_number, as_tensor

Body = Callable[..., list[Any]]
MAX_TURNS = 10_000_000
"""Iterations of a loop that has no bound of its own."""


def if_else(cond: Any, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    """Run one of two graphs; in a jitted function both run, if the condition depends on its arguments."""
    if isinstance(cond, Tensor) and is_tracing():
        return tuple(chosen(cond, lambda: [*map(as_tensor, then_branch())], lambda: [*map(as_tensor, else_branch())]))
    return tuple(then_branch() if as_number(cond) else else_branch())


def loop(count: Number | None = None, cond: Any = None, *initial: Any, body: Body, outputs: int = 0) -> tuple[Any, ...]:
    """Run a graph again and again while its condition holds; what it scans is stacked."""
    state, going = list(initial), cond is None or bool(as_number(cond))
    scanned: list[list[Tensor]] = []
    turns = MAX_TURNS if count is None else int(count)
    number = 0
    while going and number < turns:
        holds, *made = body(as_tensor(tg.tensor(number)), tg.tensor(True), *state)
        state, scans = made[: len(state)], made[len(state) :]
        scanned = scanned or [[] for _ in scans]
        for parts, part in zip(scanned, scans, strict=True):
            parts.append(as_tensor(part))
        number += 1
        going = number < turns and bool(as_number(holds))
    if not number and outputs > len(state):
        raise OnnxError("the loop has no iterations, so the shapes of what it scans are unknown")
    return (*state, *(tg.stack(parts) for parts in scanned))


def scan(
    *inputs: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    version: int = 9,
) -> tuple[Any, ...]:
    """Run a graph for each slice of the inputs, and stack what it scans."""
    if version < 9:
        raise OnnxError("Scan of version 8 is not supported: convert the model to version 9 of the operators")
    split = len(inputs) - num_scan_inputs
    state, given = list(inputs[:split]), [as_tensor(x) for x in inputs[split:]]
    axes = scan_input_axes or [0] * num_scan_inputs
    backward = scan_input_directions or [0] * num_scan_inputs
    length = int(given[0].shape[axes[0]])
    scanned: list[list[Tensor]] = []
    for n in range(length):
        slices = [
            x.select(axis, length - 1 - n if back else n) for x, axis, back in zip(given, axes, backward, strict=True)
        ]
        made = body(*state, *slices)
        state, scans = made[:split], made[split:]
        scanned = scanned or [[] for _ in scans]
        for parts, part in zip(scanned, scans, strict=True):
            parts.append(as_tensor(part))
    out_axes = scan_output_axes or [0] * len(scanned)
    out_backward = scan_output_directions or [0] * len(scanned)
    ends = [
        tg.stack(parts[::-1] if back else parts, axis)
        for parts, axis, back in zip(scanned, out_axes, out_backward, strict=True)
    ]
    return (*state, *ends)


RULES: dict[str, Function] = {"If": if_else, "Loop": loop, "Scan": scan}
