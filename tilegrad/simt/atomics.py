"""Simulate atomic operations of many threads on an array, serialised where they collide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

UNORDERED_UPDATES: dict[str, Callable[..., Any]] = {
    "atomicAdd": np.add, "atomicSub": np.subtract, "atomicMin": np.minimum, "atomicMax": np.maximum,
    "atomicAnd": np.bitwise_and, "atomicOr": np.bitwise_or, "atomicXor": np.bitwise_xor,
}  # fmt: skip
WRAPPING_COUNTERS: dict[str, Callable[..., Any]] = {
    "atomicInc": lambda old, most: np.where(old >= most, 0, old + 1),
    "atomicDec": lambda old, most: np.where((old == 0) | (old > most), most, old - 1),
}
"""Counters that wrap at a bound."""
MIN_PREFIX_SUM_THREADS = 64
"""Number of threads on one element from which integer additions use a prefix sum."""


def apply_atomic(how: str, data: np.ndarray, places: np.ndarray, operands: list[np.ndarray], wanted: bool) -> Any:
    """Apply an atomic operation in thread order; return the old elements if they are used.

    >>> numbers = np.zeros(2, np.int32)
    >>> apply_atomic("atomicAdd", numbers, np.array([0, 1, 0]), [np.array([5, 6, 7], np.int32)], True), numbers
    (array([0, 0, 5], dtype=int32), array([12,  6], dtype=int32))
    """
    if not wanted and how in UNORDERED_UPDATES:
        UNORDERED_UPDATES[how].at(data, places, operands[0])  # type: ignore[attr-defined]
        return None
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
    rank = np.arange(len(ordered)) - begin
    if how in ("atomicAdd", "atomicSub") and data.dtype.kind in "iu" and rank.max(initial=0) >= MIN_PREFIX_SUM_THREADS:
        return _running(how, data, places, operands[0], order, begin)
    old = np.empty(len(places), data.dtype)
    for n in range(int(rank.max(initial=-1)) + 1):
        now = order[rank == n]
        at = places[now]
        old[now] = data[at]
        given = [x[now] for x in operands]
        match how:
            case "atomicExch":
                data[at] = given[0]
            case "atomicCAS":
                data[at] = np.where(old[now] == given[0], given[1], old[now])
            case "atomicInc" | "atomicDec":
                data[at] = WRAPPING_COUNTERS[how](old[now], given[0])
            case _:
                data[at] = UNORDERED_UPDATES[how](old[now], given[0])
    return old


def modified_elements(how: str, old: np.ndarray, operands: list[np.ndarray]) -> np.ndarray:
    """Mark the elements that an atomic operation modified: not those of a failed lock, nor those to which 0 was added.

    >>> modified_elements("atomicCAS", np.array([0, 1]), [np.array([0, 0]), np.array([1, 1])])
    array([ True, False])
    """
    match how:
        case "atomicExch":
            return np.asarray(old != operands[0])
        case "atomicCAS":
            return np.asarray(old == operands[0])
        case _:
            return np.asarray((UNORDERED_UPDATES.get(how) or WRAPPING_COUNTERS[how])(old, operands[0]) != old)


def _running(
    how: str, data: np.ndarray, places: np.ndarray, values: np.ndarray, order: np.ndarray, begin: np.ndarray
) -> np.ndarray:
    ordered = values[order] if how == "atomicAdd" else np.negative(values[order])
    before = np.cumsum(ordered, dtype=data.dtype) - ordered
    old = np.empty(len(places), data.dtype)
    old[order] = before - before[begin] + data[places[order]]
    np.add.at(data, places, values if how == "atomicAdd" else np.negative(values))
    return old
