"""Simulate warp shuffles and votes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .builtin import VOTES, WARP
from .evaluate import EvaluationFault
from .instructions import ExchangeInstruction
from .lanes import LaneGroup


def warp_result(swap: ExchangeInstruction, lanes: LaneGroup) -> Any:
    """Return the result for each lane. All lanes named in the mask are present in the group."""
    warps, row = np.unique(lanes.of(lanes.chunk.warp), return_inverse=True)
    lane = lanes.of(lanes.chunk.lane)
    present = np.zeros((len(warps), WARP), bool)
    present[row, lane] = True
    if swap.how in VOTES:
        return vote(swap, lanes, len(warps), row, lane, present)
    value, argument = (lanes.wide(f(lanes)) for f in swap.operands)
    source = source_lane(swap.how, lane, argument.astype(np.int64), swap.width)
    missing = ~present[row, source]
    if missing.any():
        raise EvaluationFault(
            swap.place,
            missing,
            f"{swap.how} takes the value of lane {int(source[np.argmax(missing)])}, which does not take part: the "
            f"block has no "
            "such thread, or the mask does not name it",
        )
    rows = np.zeros((len(warps), WARP), value.dtype)
    rows[row, lane] = value
    return rows[row, source]


def source_lane(how: str, lane: np.ndarray, argument: np.ndarray, width: int) -> np.ndarray:
    """Return the source lane of each lane; its own, if the source would be in another segment.

    >>> source_lane("shfl_down_sync", np.arange(4), np.full(4, 1), 4)
    array([1, 2, 3, 3])
    """
    begin = lane // width * width
    match how:
        case "shfl_sync":
            return np.asarray(begin + argument % width)
        case "shfl_up_sync":
            source = lane - argument
            return np.where(source < begin, lane, source)
        case "shfl_down_sync":
            source = lane + argument
            return np.where(source >= begin + width, lane, source)
        case _:
            source = lane ^ argument
            return np.where((source >= begin + width) | (source < 0), lane, source)


def vote(
    swap: ExchangeInstruction, lanes: LaneGroup, warps: int, row: np.ndarray, lane: np.ndarray, present: np.ndarray
) -> Any:
    holds = np.zeros((warps, WARP), bool)
    holds[row, lane] = lanes.wide(swap.operands[0](lanes))
    match swap.how:
        case "any_sync":
            some: Any = holds.any(1)
            return some[row]
        case "all_sync":
            every: Any = (holds | ~present).all(1)
            return every[row]
        case _:
            bits = (holds.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(1)
            return bits.astype(np.uint32)[row]
