"""Count steps with one counter for all parameters that are always updated together.

PyTorch keeps one for each parameter. Here one is enough for a group: it is added to once, in one small kernel, and what
follows from it alone (Adam's corrections) is computed once. A parameter that gets no gradient in some step counts
differently from then on, and gets a counter of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import TraceError
from ..functions.creation import full
from ..functions.promotion import get_default_dtype
from ..ir.dtype import float32, float64
from ..lazy.handle import state
from ..tensor import Tensor

State = dict[Tensor, dict[str, Tensor]]


def start(params: Sequence[Tensor], first: Mapping[str, float]) -> dict[Tensor, dict[str, Tensor]]:
    """Return counters with initial values, shared by all parameters on one device."""
    made: dict[str, dict[str, Tensor]] = {}
    for p in params:
        place = str(p.device)
        if place not in made:
            made[place] = {name: counter(value, p) for name, value in first.items()}
    return {p: made[str(p.device)] for p in params}


def counter(value: float, like: Tensor) -> Tensor:
    """Return a counter as a tensor, so that a compiled step counts; float32 unless the default dtype is float64, as in
    PyTorch.
    """
    dtype = float64 if get_default_dtype() is float64 else float32
    return full((), value, dtype=dtype, device=like.device)


def separate(params: Sequence[Tensor], states: State, names: Sequence[str]) -> bool:
    """Give parameters without a gradient counters of their own; return whether there are any."""
    companies: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    for p in params:
        if names[0] in states[p]:
            companies.setdefault(id(states[p][names[0]]), ([], []))[p.grad is None].append(p)
    split = [waiting for moving, waiting in companies.values() if moving and waiting]
    for waiting in split:
        own = {name: counter(_now(states[waiting[0]][name]), waiting[0]) for name in names}
        for p in waiting:
            states[p].update(own)
    return bool(split)


def _now(count: Tensor) -> float:
    with untraced():
        try:
            return float(count.item())
        except TraceError:
            raise TraceError(
                "an optimizer's step found parameters without a gradient that had one in an earlier step of the same "
                "jitted function: take one step without jit first, or give these parameters an optimizer of their own"
            ) from None


@contextmanager
def untraced() -> Iterator[None]:
    """Return a context in which tensors are made outside of the function that is being traced."""
    trace, state.trace = state.trace, None
    try:
        yield
    finally:
        state.trace = trace


def load(params: Sequence[Tensor], states: State, values: Sequence[Mapping[str, float]]) -> bool:
    """Set counters, shared where they are equal; return whether the sharing has changed."""
    made: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    taken: set[int] = set()
    changed = False
    for p, value in zip(params, values, strict=True):
        key = (str(p.device), *value.items())
        if key not in made:
            own = {name: states[p][name] for name in value}
            if any(id(x) in taken for x in own.values()):
                own = {name: counter(number, p) for name, number in value.items()}
            for name, number in value.items():
                own[name].fill_(number)
            made[key] = own
            taken |= {id(x) for x in own.values()}
        changed = changed or any(states[p][name] is not x for name, x in made[key].items())
        states[p].update(made[key])
    return changed
