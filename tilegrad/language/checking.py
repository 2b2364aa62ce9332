"""Two more ways to run a kernel, without a GPU: every access checked, and programs raced against each other.

`race` interprets the tile kernel, one program after the other. `check` does so where there are few programs;
otherwise it compiles the kernel with its accesses looked at (`instrumented.py`), and interprets the programs that found
something. What is wrong is told at the user's line, and the tensors stay as they were; otherwise they hold the results.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.reference.tile import Misstep, run
from ..errors import KernelFault
from ..ir.dtype import int64, uint8
from ..ir.tile import Atomic
from ..ir.tile_access import statements
from ..runtime.device import device
from .instrumented import NOBODY
from .tensors import Memory

if TYPE_CHECKING:
    from .kernel import Specialised

ORDERS = 8
"""In how many orders `race` runs the programs, besides their own."""
FEW = 64
"""Up to so many programs are interpreted when they are checked: that finds races too."""
CLOSE = 1e-4
"""Sums of floats by atomics may differ so much (of the largest) from order to order."""


def check(found: Specialised, arguments: Sequence[Any], grid: tuple[int, ...], unwritten: frozenset[str]) -> None:
    """Runs a kernel with every access checked; what it stores is stored."""
    arrays = [_array(a, found, n) for n, a in enumerate(arguments)]
    if prod(grid) > FEW and _checked_fast(found, arguments, arrays, grid, unwritten):
        return
    copies = _copied(arrays)
    _run(found, copies, grid, unwritten=unwritten, complete=True, nan=False)
    _put_back(arrays, copies)


def _checked_fast(
    found: Specialised,
    arguments: Sequence[Any],
    arrays: Sequence[Any],
    grid: tuple[int, ...],
    unwritten: frozenset[str],
) -> bool:
    """Runs the kernel that looks at its accesses; whether there is one. What it finds is looked at again."""
    cpu = device("cpu")
    if any(isinstance(a, Memory) and a.buffer.device is not cpu for a in arguments):
        return False
    made = found.checked(unwritten)
    if made is None:
        return False
    kernel, compiled = made
    before = _copied(arrays)
    extents = {p.name: a.extent for p, a in zip(found.ir.parameters, arguments, strict=True) if isinstance(a, Memory)}
    shadows = {n: cpu.from_host(np.zeros(extents[n], np.uint8)) for n in kernel.shadowed}
    faults = cpu.from_host(np.full(max(1, len(kernel.sites)), NOBODY, np.int64))
    memory = [a.window() if isinstance(a, Memory) else a for a in arguments]
    compiled([*memory, *(extents[n] for n in kernel.extents), *(shadows[n] for n in kernel.shadowed), faults], grid)
    noted = cpu.to_host(faults, int64, (max(1, len(kernel.sites)),))
    try:
        for site in np.argsort(noted, kind="stable"):
            if noted[site] != NOBODY:
                _run(found, _copied(before), grid, unwritten=unwritten, order=[int(noted[site])], nan=False)
        for name, shadow in shadows.items():
            _refuse_gaps(found, name, cpu.to_host(shadow, uint8, (extents[name],)))
    except KernelFault:
        _put_back(arrays, before)
        raise
    return True


def _refuse_gaps(found: Specialised, name: str, seen: Any) -> None:
    """A tensor that nobody had written must have been written whole, if at all."""
    if seen.any() and not seen.all():
        place, missing = int(np.argmin(seen)), int((seen == 0).sum())
        raise KernelFault(
            f"kernel {found.ir.name} ({found.ir.origin}): {missing} of the {seen.size} elements of {name} were never "
            f"written, the first is {name}[{place}]: a mask is too narrow, or the grid too small"
        )


def _copied(arrays: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]


def _put_back(arrays: Sequence[Any], kept: Sequence[Any]) -> None:
    for old, new in zip(arrays, kept, strict=True):
        if isinstance(old, np.ndarray):
            old[...] = new


def race(found: Specialised, arguments: Sequence[Any], grid: tuple[int, ...], orders: int = ORDERS) -> None:
    """Runs the programs of a kernel in several orders, and compares; what they store in their own order is stored."""
    arrays = [_array(a, found, n) for n, a in enumerate(arguments)]
    count = prod(grid)
    chance = random.Random(count)
    expected = _in_order(found, arrays, grid, range(count))
    for turn in range(orders if count > 1 else 0):
        order = list(range(count))[::-1]
        if turn:
            chance.shuffle(order)
        got = _in_order(found, arrays, grid, order)
        for p, x, y in zip(found.ir.parameters, expected, got, strict=True):
            if p.pointer:
                _compare(found, p.name, x, y, order)
    _put_back(arrays, expected)


def _in_order(found: Specialised, arrays: Sequence[Any], grid: tuple[int, ...], order: Sequence[int]) -> list[Any]:
    copies = _copied(arrays)
    _run(found, copies, grid, order=order, strict=True)
    return copies


def _compare(found: Specialised, name: str, x: Any, y: Any, order: Sequence[int]) -> None:
    adds = any(isinstance(s, Atomic) and s.fn == "add" for s in statements(found.ir.body))
    wide, other = x.astype(np.float64), y.astype(np.float64)
    allowed = CLOSE * float(np.nanmax(np.abs(wide), initial=0.0)) if adds and x.dtype.kind in "fV" else 0.0
    wrong = ~((np.abs(wide - other) <= allowed) | (wide == other) | (np.isnan(wide) & np.isnan(other)))
    if wrong.any():
        place = int(np.argmax(wrong))
        shown = ", ".join(map(str, order[:6])) + (", ..." if len(order) > 6 else "")
        raise KernelFault(
            f"kernel {found.ir.name} ({found.ir.origin}): {name}[{place}] depends on the order of the programs: it is "
            f"{x[place]} if they run one after the other, and {y[place]} in the order {shown}"
        )


def _array(argument: Any, found: Specialised, n: int) -> Any:
    """The memory of an argument as an array, of as many elements as its tensor has."""
    if not isinstance(argument, Memory):
        return argument
    dtype = found.ir.parameters[n].dtype
    buffer = argument.buffer
    count = buffer.bytes // dtype.bytes
    whole = buffer.device.view(buffer, dtype, (count,))
    if whole is None:
        raise KernelFault(
            f"kernel {found.ir.name}: check and race look at memory, and that of {buffer.device.name} cannot be "
            "reached from here: give them tensors of the CPU"
        )
    return whole[argument.offset : argument.offset + argument.extent]


def _run(found: Specialised, arguments: Sequence[Any], grid: tuple[int, ...], **options: Any) -> None:
    try:
        run(found.ir, list(arguments), grid, checked=True, types=found.read.types, **options)
    except Misstep as misstep:
        raise KernelFault(told(found, misstep)) from None


def told(found: Specialised, misstep: Misstep) -> str:
    """What went wrong, at the user's line."""
    name = found.ir.name
    program = f", program ({', '.join(map(str, misstep.program))})" if misstep.program else ""
    lane = f", lane ({', '.join(map(str, misstep.lane))})" if misstep.lane else ""
    place: Any = found.read.parts.get(id(misstep.tile)) or found.read.places.get(id(misstep.statement))
    if place is None:
        return f"kernel {name} ({found.ir.origin}){program}{lane}: {misstep.reason}"
    return f"kernel {name}, {place[1]}{program}{lane}: {misstep.reason}\n{place[1].marked()}"
