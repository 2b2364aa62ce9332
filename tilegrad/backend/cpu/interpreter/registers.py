"""Assign the registers of a stage, and tell whether a thread has room for them."""

from __future__ import annotations

from typing import NamedTuple

from .bytecode import BlockStage
from .opcodes import GROUP_LANES

MAX_AXES = 16
"""Axes that the counters of a state have room for."""
MIN_BLOCK_LANES = 128
"""Lanes that a block has however many registers it needs: below, calls cost more than the caches that are missed."""
MIN_FRAME_BYTES, MAX_FRAME_BYTES = 64, 1 << 20
"""Bytes of the registers of a block, on the stack of a thread: a cache line, and the most for `MIN_BLOCK_LANES`."""
MIN_COUNTED_VALUES = 256
"""Values below which their registers fit in any case."""


class RegisterFile(NamedTuple):
    """Where the register of each value begins, and the bytes of all of them."""

    offsets: list[int]
    bytes: int


def _live_values(stage: BlockStage) -> dict[int, int]:
    """Return the number of the instruction of the body that uses each value last, for values of the body alone."""
    kept = {n for i in (*stage.once, *stage.before, *stage.after) for n in (i.result, *i.args)}
    last: dict[int, int] = {}
    for k, i in enumerate(stage.body):
        for n in (i.result, *i.args):
            if n >= 0 and n not in kept:
                last[n] = k
    return last


def allocate_registers(stage: BlockStage, lanes: int) -> RegisterFile:
    """Assign registers; those of values that are no longer used serve others."""
    last, offsets, free, top = _live_values(stage), [0] * len(stage.dtypes), dict[int, list[int]](), 0
    room = -(-lanes // GROUP_LANES) * GROUP_LANES

    def take(value: int) -> None:
        nonlocal top
        size = stage.dtypes[value].bytes
        waiting = free.get(size)
        if waiting:
            offsets[value] = waiting.pop()
        else:
            offsets[value] = top
            top += size * room

    for value in range(len(stage.dtypes)):
        if value not in last:
            take(value)
    taken: set[int] = set()
    for k, i in enumerate(stage.body):
        if i.result in last and i.kind != "store" and i.result not in taken:
            taken.add(i.result)
            take(i.result)
        for n in dict.fromkeys((*i.args, i.result)):
            if last.get(n) == k:
                free.setdefault(stage.dtypes[n].bytes, []).append(offsets[n])
    return RegisterFile(offsets, max(MIN_FRAME_BYTES, top))


def fits(stage: BlockStage) -> bool:
    """Whether a state has room for the axes of a stage, and a stack for its registers."""
    if len(stage.outer) + len(stage.inner) >= MAX_AXES:
        return False
    many = len(stage.dtypes) > MIN_COUNTED_VALUES
    return not many or allocate_registers(stage, MIN_BLOCK_LANES).bytes <= MAX_FRAME_BYTES
