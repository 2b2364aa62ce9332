"""Launch configurations of CUDA kernels: grid, block and shared memory, checked against a GPU's limits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

from ..backend.cuda.properties import GpuProperties, blocks_at_once
from ..errors import ArgumentError, LaunchError
from ..ir.program import MAX_INSTANCES

Extents: TypeAlias = "int | tuple[int, ...]"
Configured: TypeAlias = "Extents | Callable[..., Extents] | None"

MAX_BLOCK_EXTENTS = (1024, 1024, 64)
"""Largest block extents along x, y and z, the same for all GPUs since 2012."""
DEFAULT_BLOCK_THREADS = 256


class LaunchConfiguration(NamedTuple):
    """A launch configuration, and the GPU that it was checked against."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    registers: int
    static_shared: int
    machine: str
    at_once: int
    """Resident blocks per multiprocessor."""

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def threads(self) -> int:
        return prod(self.block)

    def __str__(self) -> str:
        return (
            f"{self.name}: {_times(self.grid)} blocks of {_times(self.block)} threads, {self.registers} registers a "
            f"thread, {self.static_shared + self.shared} bytes of shared memory a block; {self.at_once} blocks at once "
            f"on a multiprocessor of {self.machine}"
        )


def _times(extents: tuple[int, ...]) -> str:
    shown = list(extents)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(map(str, shown))


def evaluate_extents(what: str, given: Configured, names: Mapping[str, Any], kernel: str) -> tuple[int, int, int]:
    """Evaluate a grid or block: a number, a tuple, or a function of a call's names.

    >>> evaluate_extents("grid", lambda n, m: (n // 16, m // 16), {"n": 32, "m": 64, "x": (32, 64)}, "square")
    (2, 4, 1)
    """
    value: Any = given
    if callable(value):
        wanted = list(inspect.signature(value).parameters)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ArgumentError(
                f"{kernel}: {what} asks for `{unknown[0]}`; a call has {', '.join(names)} (extents, numbers, and "
                "tensors as their shapes)"
            )
        value = value(*[names[name] for name in wanted])
    extents = (value,) if isinstance(value, int) else value
    fits = isinstance(extents, tuple) and 1 <= len(extents) <= 3 and all(type(e) is int for e in extents)
    if not fits:
        raise ArgumentError(
            f"{kernel}: {what} is {value!r}: one to three whole numbers are wanted, or a function of them"
        )
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def checked_launch(
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    registers: int,
    static_shared: int,
    limits: GpuProperties,
) -> LaunchConfiguration:
    """Return a checked launch configuration; LaunchError names request and limit."""
    wrong = ""
    threads = prod(block)
    if not all(1 <= extent <= most for extent, most in zip(block, MAX_BLOCK_EXTENTS, strict=True)):
        wrong = f"a block of {block} threads: {{}} allows 1 to {MAX_BLOCK_EXTENTS} along x, y and z"
    elif threads > limits.max_threads_per_block:
        wrong = f"{threads} threads in a block of {block}: {{}} allows {limits.max_threads_per_block}"
    elif not all(1 <= extent <= most for extent, most in zip(grid, MAX_INSTANCES, strict=True)):
        wrong = f"a grid of {grid} blocks: {{}} allows 1 to {MAX_INSTANCES} along x, y and z"
    elif shared < 0 or shared + static_shared > limits.shared_memory_per_block_optin:
        most = limits.shared_memory_per_block_optin
        own = f" ({static_shared} of them its own)" if static_shared else ""
        wrong = f"{shared + static_shared} bytes of shared memory{own}: {{}} allows {most} a block"
    elif registers * threads > limits.regs_per_block:
        wrong = f"{threads} threads of {registers} registers: {{}} has {limits.regs_per_block} registers for a block"
    if wrong:
        raise LaunchError(f"{name} wants {wrong.format(limits.name)}")
    at_once = blocks_at_once(limits, threads, shared + static_shared, registers)
    return LaunchConfiguration(name, grid, block, shared, registers, static_shared, limits.name, at_once)
