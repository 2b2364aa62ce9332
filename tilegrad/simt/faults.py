"""Format the faults that a simulation finds: file and line, block, thread, index, array, extent."""

from __future__ import annotations

import numpy as np

from ..errors import KernelFault
from ..tiles.read.source import KernelLocation
from .builtin import WARP
from .lanes import Chunk, LaunchShape, coordinates
from .memory import ArrayStorage
from .races import WORDS, DataRace


def fault_error(kernel: str, place: KernelLocation, chunk: Chunk, thread: int, reason: str) -> KernelFault:
    """Return the error for a fault of a thread, numbered within the chunk."""
    return KernelFault(f"kernel {kernel}, {place}, {who(chunk, thread)}: {reason}\n{place.marked()}")


def who(chunk: Chunk, thread: int) -> str:
    block = coordinates(int(chunk.blocks[chunk.block[thread]]), chunk.shape.grid)
    return f"block {block}, thread {coordinates(int(chunk.within[thread]), chunk.shape.block)}"


def describe_thread(unique: int, shape: LaunchShape, block: int) -> str:
    """Describe another thread, by its number in the launch, relative to a block."""
    other, within = divmod(unique, shape.threads)
    thread = f"thread {coordinates(within, shape.block)}"
    return thread if other == block else f"{thread} of block {coordinates(other, shape.grid)}"


def race_error(
    race: DataRace, storage: ArrayStorage, shape: LaunchShape, unique: int, other_place: KernelLocation
) -> str:
    """Describe a race from the view of the second thread."""
    block, within = divmod(unique, shape.threads)
    other_block, other_within = divmod(race.other, shape.threads)
    if storage.shadow is not None and storage.shadow.follows:
        why = "neither a barrier nor an atomic operation orders the two"
    elif block != other_block:
        why = "blocks run in any order, and only atomics may change what another block uses"
    elif within // WARP == other_within // WARP:
        why = "no syncthreads() or syncwarp() is between them"
    else:
        why = "no syncthreads() is between them"
    where = f" ({shape_words(storage)})"
    return (
        f"race: {WORDS[race.how]} {storage.element(race.element)}{where}, which "
        f"{describe_thread(race.other, shape, block)} {WORDS[race.other_how]} at {other_place}: {why}"
    )


def shape_words(storage: ArrayStorage) -> str:
    extents = " x ".join(map(str, storage.shape))
    return f"{storage.space} memory, {extents} element{'s' * (storage.size != 1)} of {storage.array.dtype.name}"


def describe_threads(numbers: np.ndarray) -> str:
    """Describe a set of threads briefly.

    >>> describe_threads(np.arange(20)), describe_threads(np.array([3]))
    ('20 threads', '1 thread')
    """
    return f"{len(numbers)} thread{'s' * (len(numbers) != 1)}"
