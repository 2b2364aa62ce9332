"""Push ranges to NVIDIA's tools (Nsight) through NVTX, if the library is installed; without it nothing happens."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backend.cuda.libraries import LibraryKind, candidates
from ..runtime.singletons import once

NAMES = ("libnvtx3interop", "libnvToolsExt")
"""The library of CUDA 13, and that of older toolkits."""


@once
def library() -> Any:
    """Open the library; None if there is none."""
    for name in NAMES:
        for path in candidates(LibraryKind("NVTX", name, (1,), "nvtxRangePushA", (1, 1), 0, 0)):
            try:
                found = ctypes.CDLL(path)
                found.nvtxRangePushA.argtypes = found.nvtxMarkA.argtypes = (ctypes.c_char_p,)
                return found
            except (OSError, AttributeError):
                continue
    return None


def range_push(msg: str) -> int:
    """Open a range on this thread; return its depth, counted from 0, or -1 without the library."""
    found = library()
    return -1 if found is None else int(found.nvtxRangePushA(msg.encode()))


def range_pop() -> int:
    """Close the innermost range of this thread; return its depth, or -1 without the library."""
    found = library()
    return -1 if found is None else int(found.nvtxRangePop())


def mark(msg: str) -> None:
    """Mark a point in time."""
    found = library()
    if found is not None:
        found.nvtxMarkA(msg.encode())


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Open a range for the block; also decorates a function. `msg` is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
