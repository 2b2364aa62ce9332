"""Copy strided parts of memory into slices of one result, whatever their number and sizes: no code is made for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...ir.dtype import uint8
from ...runtime.buffer import DeviceBuffer
from .elements import elements

MAX_STRIDED_BYTES = 1 << 16
"""Bytes of a part with gaps up to which this thread copies it; the interpreter copies more on all threads."""
MAX_CONTIGUOUS_BYTES = 1 << 22
"""The same for parts without gaps."""
Copy = Callable[[Sequence[DeviceBuffer], int], None]
"""Copies the parts from buffers to the result at an address."""


class SourceLayout(Protocol):
    """The elements of a source at strides (`first_tier/strided_sources.py`)."""

    source: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    item_bytes: int


class ContiguousCopy(NamedTuple):
    """Bytes without gaps: their source, their place in it and in the result, their number."""

    source: int
    first: int
    target: int
    bytes: int


class StridedCopy(NamedTuple):
    """Elements at strides, all in bytes."""

    source: int
    first: int
    target: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]


def copies(parts: Sequence[tuple[SourceLayout, int]], steps: Sequence[int]) -> Copy | None:
    """Return the function that copies parts to a result with strides `steps`, each to a first element; None if one is
    worth all threads.
    """
    contiguous: list[ContiguousCopy] = []
    strided: list[StridedCopy] = []
    for part, target in parts:
        item, shape = part.item_bytes, part.shape
        bytes = prod(shape) * item
        place = part.source, part.offset * item, target * item
        if not bytes:
            continue
        if _is_contiguous(shape, part.strides) and _is_contiguous(shape, steps):
            if bytes > MAX_CONTIGUOUS_BYTES:
                return None
            contiguous.append(ContiguousCopy(*place, bytes))
        elif bytes > MAX_STRIDED_BYTES:
            return None
        else:
            strided.append(StridedCopy(*place, shape, _times(part.strides, item), _times(steps, item)))
    return _function(contiguous, strided, f"V{parts[0][0].item_bytes}" if parts else "V1")


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _times(strides: Sequence[int], bytes: int) -> tuple[int, ...]:
    return tuple([stride * bytes for stride in strides])


def _function(contiguous: Sequence[ContiguousCopy], strided: Sequence[StridedCopy], item: str) -> Copy:
    space: Any = elements(uint8)
    beyond = space[1:]  # numpy takes no buffer at address 0

    def copy(buffers: Sequence[DeviceBuffer], out: int) -> None:
        for source, first, target, bytes in contiguous:
            start, at = buffers[source].address + first, out + target
            space[at : at + bytes] = space[start : start + bytes]
        for source, first, target, shape, strides, steps in strided:
            given = np.ndarray(shape, item, beyond, buffers[source].address + first - 1, strides)
            np.ndarray(shape, item, beyond, out + target - 1, steps)[...] = given

    return copy
