"""How long a launch takes. What it writes is put back; where nothing has elements yet, other tensors stand in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..functional import ones, zeros
from ..lazy.handle import Handle, mode, state, view
from ..runtime.device import device
from .several import tensors_in

RUNS = 5
"""How often a launch is measured; the best run counts."""


def seconds_of(launch: Callable[[], None], given: Sequence[Any]) -> float:
    """The best of some runs, after one that does not count."""
    tensors = tensors_in(given)
    kept = [(x, x.clone()) for x in tensors if not x._value.tracked]  # type: ignore[attr-defined]
    places = {x._value.type.device for x in tensors}
    try:
        launch()
        best = float("inf")
        for _ in range(RUNS):
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
    """Within the block launches run, though a function is being traced."""
    before = state.trace, mode.enabled
    state.trace, mode.enabled = None, False
    try:
        yield
    finally:
        state.trace, mode.enabled = before


def can_stand_in(x: Handle) -> bool:
    """Whether all is known of a tensor but its elements: its extents, and that it is no number."""
    whole = x._value if x._base is None else x._base.value
    return bool(x._value.shape) and all(isinstance(extent, int) for extent in (*whole.shape, *x._value.shape))


def stand_in(x: Handle) -> Any:
    """A tensor as large, and laid out, as another one: ones, or zeros for whole numbers, which may be indices."""
    whole = (x._value if x._base is None else x._base.value).type
    shape: Any = whole.shape
    made: Any = (ones if whole.dtype.is_float else zeros)(*shape, dtype=whole.dtype, device=whole.device).realize()
    for move in x._moves:
        made = view(made, move)
    return made
