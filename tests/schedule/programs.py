"""Programs for the null device: compiled and checked, never run. Counting them never flakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilegrad as tg
from tilegrad.ir.program import Copy, Launch, Program


def given(*shape: int, grad: bool = False) -> tg.Tensor:
    return tg.zeros(*shape, device="null", requires_grad=grad)


def labels(count: int) -> tg.Tensor:
    return tg.zeros(count, dtype=tg.int64, device="null")


def program(fn: Callable[..., Any], *args: Any) -> Program:
    """The program of a jitted function for these arguments."""
    jitted = tg.jit(fn)
    jitted(*args)
    (made,) = jitted.programs
    return made.compiled.program


def with_gradients(fn: Callable[..., tg.Tensor], *args: tg.Tensor) -> Program:
    """The program of a function's result and of its gradients, for any gradient from above."""
    tracked = [n for n, x in enumerate(args) if x.requires_grad]
    upstream = tg.zeros_like(fn(*args).detach())

    def both(*args: tg.Tensor) -> Any:
        *xs, dy = args
        y = fn(*xs)
        return y, tg.autograd.grad(y, [xs[n] for n in tracked], dy)

    return program(both, *args, upstream)


def kernels(made: Program) -> int:
    return sum(isinstance(step, Launch) for step in made.steps)


def copies(made: Program) -> int:
    return sum(isinstance(step, Copy) for step in made.steps)


def least_arena(made: Program) -> int:
    """The bytes of temporaries that are needed at the same time: less no plan can do with, in this order."""
    temporaries = {b.name: int(b.type.bytes) for b in made.buffers if b.role == "temporary"}
    used = [
        {a for a in (s.arguments if isinstance(s, Launch) else (s.source, s.target)) if a in temporaries}
        for s in made.steps
        if isinstance(s, (Launch, Copy))
    ]
    most = 0
    for n in range(len(used)):
        before, after = set().union(*used[: n + 1]), set().union(*used[n:])
        most = max(most, sum(temporaries[name] for name in before & after))  # type: ignore[index]
    return most
