"""Explain deadlocks: a barrier that some threads do not reach, or threads that wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import KernelFault
from .faults import fault, listed
from .instructions import Code, Swap, Wait
from .lanes import Chunk, Lanes, Shape, places

if TYPE_CHECKING:
    from .machine import Arrivals


def stuck(
    code: Code,
    chunk: Chunk,
    parked: list[tuple[Lanes, int]],
    arrivals: dict[int, Arrivals],
    ended: np.ndarray,
    shape: Shape,
) -> KernelFault:
    """Return the error that describes where all threads are blocked."""
    waiting = {pc: np.concatenate(a.index) for pc, a in arrivals.items() if a.counts.any()}
    if parked:
        return deadlock(code, chunk, parked, waiting, shape)
    pc, index = min(waiting.items())
    one = code.instructions[pc]
    thread = int(index.min())
    whole = isinstance(one, Wait) and one.kind == "syncthreads"
    unit = chunk.block if whole else chunk.warp
    members = np.flatnonzero(unit == unit[thread])
    if isinstance(one, Swap):
        members = members[((one.mask >> chunk.lane[members]) & 1).astype(bool)]
    here = np.intersect1d(index, members)
    missing = np.setdiff1d(members, here)
    name = f"{one.kind}()" if isinstance(one, Wait) else one.how
    other = int(missing[0])
    at = next((p for p, those in waiting.items() if other in those), None)
    if at is not None:
        what = f"waits at {code.instructions[at].place}"
    else:
        what = f"has ended ({code.instructions[int(ended[other])].place})"
    reason = (
        f"{name} in divergent code: {len(here)} of the {listed(members)} of this {'block' if whole else 'warp'} "
        f"wait here, "
        f"and thread {places(int(chunk.within[other]), shape.block)} {what}; all must come here, or none"
    )
    return fault(code.routine.name, one.place, chunk, thread, reason)


def deadlock(
    code: Code, chunk: Chunk, parked: list[tuple[Lanes, int]], waiting: dict[int, np.ndarray], shape: Shape
) -> KernelFault:
    """Report loops that wait for a memory change that no thread is left to make."""
    threads = np.sort(np.concatenate([lanes.numbers() for lanes, _ in parked]))
    lanes = parked[0][0]
    one = code.instructions[lanes.pc]
    are = "is" if len(threads) == 1 else "are"
    reason = f"deadlock: this loop waits for a change that no thread makes; {listed(threads)} {are} in such loops"
    for pc, index in sorted(waiting.items()):
        reason += f", {listed(index)} wait at {code.instructions[pc].place}"
    if len(chunk.blocks) < shape.blocks:
        reason += (
            f". {len(chunk.blocks)} of {shape.blocks} blocks are resident at a time: the others start when these "
            f"have ended, and "
            "a block must not wait for one of them"
        )
    return fault(code.routine.name, one.place, chunk, int(lanes.numbers()[0]), reason)
