"""Choose the order in which the instances of stages run, for the caches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from ..costs import CHUNK_NS, MAX_CHUNKS_PER_THREAD
from ..partition import InstanceRange, NativeCall, ParallelSegment
from .bytecode import BlockProgram, BlockStage

STEP_BYTES = 256 << 10
"""Bytes that all stages read before they go on to the next rows: they stay in the second cache."""
MAX_STEPS = 256
"""Steps of a program; each has a few words in its table."""


def reads_across(stage: BlockStage) -> bool:
    """Whether lanes are read at a stride, while the next row reads the elements beside them: a transposition."""
    if not stage.outer or stage.lanes_inside or stage.row_lanes:
        return False
    last = len(stage.outer) - 1
    forms = [i.form for i in stage.body if i.kind == "load" and i.form is not None]
    return any(abs(form.steps[-1]) > 1 and 0 < abs(form.steps[last]) < abs(form.steps[-1]) for form in forms)


def common_rows(program: BlockProgram) -> int:
    """Return the extent of the first axis if all stages can go through it together, else 0.

    A row of each stage then needs no other row of the stages before it: temporaries are written and read at the same
    values of the axis.
    """
    stages = program.stages
    rows = stages[0].outer[0] if len(stages) > 1 and stages[0].outer else 0
    return rows if rows and all(_is_by_row(stage, rows, program) for stage in stages) else 0


def _is_by_row(stage: BlockStage, rows: int, program: BlockProgram) -> bool:
    if not stage.outer or stage.outer[0] != rows or reads_across(stage):
        return False
    if stage.pieces is not None and stage.pieces.axis == 0:
        return False
    first = program.inputs + 1
    for i in (*stage.body, *stage.after):
        if i.memory >= first:
            if i.kind not in ("load", "store") or i.form is None or i.guards or i.form.start:
                return False
            item = stage.dtypes[i.args[0] if i.kind == "store" else i.result].bytes
            if i.form.steps[0] * rows * item != program.temporaries[i.memory - first]:
                return False
    return True


def row_segments(
    program: BlockProgram, calls: Sequence[NativeCall], rows: int, threads: int
) -> list[ParallelSegment] | None:
    """Partition a program so that each chunk takes some rows through all stages; None if all of it fits in a cache."""
    row_bytes = max(_row_bytes(stage) for stage in program.stages)
    if rows * row_bytes <= STEP_BYTES:
        return None
    step = max(1, STEP_BYTES // row_bytes, -(-rows // MAX_STEPS))
    nanoseconds = sum(call.nanoseconds for call in calls)
    each = min(MAX_CHUNKS_PER_THREAD, max(2, round(nanoseconds / threads / CHUNK_NS)))
    pieces = 1 if threads == 1 else min(-(-rows // step), threads * each)
    chunks = []
    for begin, end in itertools.pairwise([rows * n // pieces for n in range(pieces + 1)]):
        steps = [(first, min(first + step, end)) for first in range(begin, end, step)]
        chunks.append([_range(n, call, rows, *some) for some in steps for n, call in enumerate(calls)])
    starts = [-(-pieces * n // threads) for n in range(threads + 1)]
    lanes = [chunks[start:stop] for start, stop in itertools.pairwise(starts) if start < stop]
    return [ParallelSegment(", ".join(call.name for call in calls), lanes)]


def _range(number: int, call: NativeCall, rows: int, begin: int, end: int) -> InstanceRange:
    each = call.instances // rows
    return InstanceRange(number, begin * each, end * each)


def _row_bytes(stage: BlockStage) -> int:
    elements = prod(stage.outer[1:]) * prod(stage.inner) * stage.lanes
    widest = max((stage.dtypes[i.result].bytes for i in stage.body if i.kind == "load"), default=1)
    return elements * widest
