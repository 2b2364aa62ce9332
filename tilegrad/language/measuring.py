"""Measure the time of a launch; restore the tensors that it writes, and use stand-ins for traced ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..functional import ones, zeros
from ..lazy.handle import Handle, mode, state, view
from ..runtime.device import device
from .flatten_arguments import tensors_in

TIMED_RUNS = 5
"""Number of timed runs; the fastest counts."""


def seconds_of(launch: Callable[[], None], given: Sequence[Any]) -> float:
    """Return the fastest of several runs after one warm-up run."""
    tensors = tensors_in(given)
    kept = [(x, x.clone()) for x in tensors if not x._value.tracked]  # type: ignore[attr-defined]
    places = {x._value.type.device for x in tensors}
    try:
        launch()
        best = float("inf")
        for _ in range(TIMED_RUNS):
            start = time.perf_counter()
            launch()
            for place in places:
                device(place).synchronize()
            best = min(best, time.perf_counter() - start)
        return best
    finally:
        for x, old in kept:
            x.copy_(old)  # type: ignore[attr-defined]


@contextmanager
def untraced() -> Iterator[None]:
    """Suspend tracing within the block, so that launches run."""
    before = state.trace, mode.enabled
    state.trace, mode.enabled = None, False
    try:
        yield
    finally:
        state.trace, mode.enabled = before


def can_stand_in(x: Handle) -> bool:
    """Whether everything but the elements of a tensor is known: fixed extents, and not a traced number."""
    whole = x._value if x._base is None else x._base.value
    return bool(x._value.shape) and all(isinstance(extent, int) for extent in (*whole.shape, *x._value.shape))


def stand_in(x: Handle) -> Any:
    """Return a tensor of the same shape and layout, filled with ones, or with zeros if integer (possible indices)."""
    whole = (x._value if x._base is None else x._base.value).type
    shape: Any = whole.shape
    made: Any = (ones if whole.dtype.is_float else zeros)(*shape, dtype=whole.dtype, device=whole.device).realize()
    for move in x._moves:
        made = view(made, move)
    return made
