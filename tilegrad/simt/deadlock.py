"""Explain deadlocks: a barrier that some threads do not reach, or threads that wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import KernelFault
from .faults import describe_threads, fault_error
from .instructions import BarrierInstruction, ExchangeInstruction, InstructionList
from .lanes import Chunk, LaneGroup, LaunchShape, coordinates

if TYPE_CHECKING:
    from .machine import BarrierArrivals


def blocked_error(
    code: InstructionList,
    chunk: Chunk,
    parked: list[tuple[LaneGroup, int]],
    arrivals: dict[int, BarrierArrivals],
    ended: np.ndarray,
    shape: LaunchShape,
) -> KernelFault:
    """Return the error that describes where all threads are blocked."""
    waiting = {pc: np.concatenate(a.index) for pc, a in arrivals.items() if a.counts.any()}
    if parked:
        return deadlock_error(code, chunk, parked, waiting, shape)
    pc, index = min(waiting.items())
    one = code.instructions[pc]
    thread = int(index.min())
    whole = isinstance(one, BarrierInstruction) and one.kind == "syncthreads"
    unit = chunk.block if whole else chunk.warp
    members = np.flatnonzero(unit == unit[thread])
    if isinstance(one, ExchangeInstruction):
        members = members[((one.mask >> chunk.lane[members]) & 1).astype(bool)]
    here = np.intersect1d(index, members)
    missing = np.setdiff1d(members, here)
    name = f"{one.kind}()" if isinstance(one, BarrierInstruction) else one.how
    other = int(missing[0])
    at = next((p for p, those in waiting.items() if other in those), None)
    if at is not None:
        what = f"waits at {code.instructions[at].place}"
    else:
        what = f"has ended ({code.instructions[int(ended[other])].place})"
    reason = (
        f"{name} in divergent code: {len(here)} of the {describe_threads(members)} of this "
        f"{'block' if whole else 'warp'} wait here, "
        f"and thread {coordinates(int(chunk.within[other]), shape.block)} {what}; all must come here, or none"
    )
    return fault_error(code.routine.name, one.place, chunk, thread, reason)


def deadlock_error(
    code: InstructionList,
    chunk: Chunk,
    parked: list[tuple[LaneGroup, int]],
    waiting: dict[int, np.ndarray],
    shape: LaunchShape,
) -> KernelFault:
    """Report loops that wait for a memory change that no thread is left to make."""
    threads = np.sort(np.concatenate([lanes.numbers() for lanes, _ in parked]))
    lanes = parked[0][0]
    one = code.instructions[lanes.pc]
    are = "is" if len(threads) == 1 else "are"
    reason = (
        f"deadlock: this loop waits for a change that no thread makes; {describe_threads(threads)} {are} in such loops"
    )
    for pc, index in sorted(waiting.items()):
        reason += f", {describe_threads(index)} wait at {code.instructions[pc].place}"
    if len(chunk.blocks) < shape.blocks:
        reason += (
            f". {len(chunk.blocks)} of {shape.blocks} blocks are resident at a time: the others start when these "
            f"have ended, and "
            "a block must not wait for one of them"
        )
    return fault_error(code.routine.name, one.place, chunk, int(lanes.numbers()[0]), reason)
