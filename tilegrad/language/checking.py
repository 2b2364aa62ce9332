"""Check kernels on the CPU: every memory access (`check`), and data races between programs (`race`).

`check` compiles the kernel with instrumented accesses (`instrument.py`), then interprets the programs that reported a
fault to find its exact cause; kernels whose pointers cannot be instrumented are interpreted entirely. `race` interprets
the tile kernel one program after the other. Faults are reported at the user's source line and leave the tensors
unchanged; a run without faults stores the results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.reference.interleave import used_atomics
from ..backend.reference.memory import View
from ..backend.reference.tile import Misstep, program_of, run
from ..errors import KernelFault
from ..ir.dtype import int32, int64, uint8
from ..ir.tile import Atomic
from ..ir.tile_access import statements
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from .instrument import NO_FAULT, CheckedAccess, CheckOptions, decode_fault
from .tensors import TensorMemory

if TYPE_CHECKING:
    from .kernel import SpecialisedKernel

RACE_ORDERS = 8
"""Number of random program orders that `race` tries besides the natural one."""
MAX_INTERPRETED_PROGRAMS = 256
"""Largest number of programs interpreted to reproduce a fault."""
ATOMIC_SUM_TOLERANCE = 1e-4
"""Tolerance between program orders for float sums by atomics, relative to the largest element."""


class CheckedLaunch:
    """A checked launch: copies of its arguments as arrays, as they were before it."""

    def __init__(self, found: SpecialisedKernel, arguments: Sequence[Any], grid: tuple[int, ...]) -> None:
        self.found, self.arguments, self.grid = found, arguments, grid
        self.names = [p.name for p in found.ir.parameters]
        self.arrays = [_array(a, found, n) for n, a in enumerate(arguments)]
        self.memories = {n: a for n, a in zip(self.names, arguments, strict=True) if isinstance(a, TensorMemory)}
        self.views = {n: v for n, a in self.memories.items() if (v := view_offsets(a)) is not None}
        self.before = self.copies()
        self.refuse_shared_places()

    @property
    def on_cpu(self) -> bool:
        return all(m.buffer.device is device("cpu") for m in self.memories.values())

    def copies(self) -> list[Any]:
        """Return the arguments, with copies of those that the kernel writes."""
        stored = self.found.accesses.stored
        given = zip(self.names, self.arrays, strict=True)
        return [a.copy() if n in stored and isinstance(a, np.ndarray) else a for n, a in given]

    def put_back(self, kept: Sequence[Any]) -> None:
        for old, new in zip(self.arrays, kept, strict=True):
            if isinstance(old, np.ndarray) and old is not new:
                old[...] = new

    def again(self) -> list[Any]:
        """Return fresh writable copies of the original arguments."""
        return [a.copy() if a is not b else a for a, b in zip(self.before, self.arrays, strict=True)]

    def interpreted(self, **options: Any) -> list[Any]:
        """Interpret some programs and return the arguments afterwards."""
        arrays = self.again()
        found = self.found
        try:
            run(found.ir, arrays, self.grid, checked=True, types=found.read.types, views=self.views, **options)
        except Misstep as misstep:
            raise KernelFault(located_error(found, misstep)) from None
        return arrays

    def refuse_shared_places(self) -> None:
        """Refuse to write a view in which several elements share one memory address."""
        found = self.found
        for name in sorted(found.accesses.stored & self.views.keys()):
            memory, view = self.memories[name], self.views[name]
            if view.shared:
                raise KernelFault(
                    f"kernel {found.ir.name} ({found.ir.origin}) stores in {name}, {view.text}: several of its "
                    f"{prod(memory.shape)} elements are one place in memory; give the kernel a tensor of its own "
                    "(x.contiguous())"
                )


def check(found: SpecialisedKernel, arguments: Sequence[Any], grid: tuple[int, ...], unwritten: frozenset[str]) -> None:
    """Run a kernel with every access checked, and store its results."""
    with _on_host(found, arguments) as given:
        launch = CheckedLaunch(found, given, grid)
        if not _check_compiled(launch, unwritten):
            launch.put_back(launch.interpreted(unwritten=unwritten, complete=True, nan=False))


@contextmanager
def _on_host(found: SpecialisedKernel, arguments: Sequence[Any]) -> Iterator[list[Any]]:
    """Return the arguments in host memory; GPU memory is copied here and its results are copied back."""
    cpu, copies, given = device("cpu"), dict[int, DeviceBuffer](), list(arguments)
    for n, a in enumerate(arguments):
        if isinstance(a, TensorMemory) and a.buffer.device.view(a.buffer, uint8, (a.buffer.bytes,)) is None:
            if id(a.buffer) not in copies:
                copies[id(a.buffer)] = cpu.copy(a.buffer)
            given[n] = a._replace(buffer=copies[id(a.buffer)])
    yield given
    stored = {n for n, p in enumerate(found.ir.parameters) if p.name in found.accesses.stored}
    for whole in {id(arguments[n].buffer): arguments[n].buffer for n in sorted(stored)}.values():
        if id(whole) in copies:
            whole.device.overwrite(whole, whole.device.copy(copies[id(whole)]))


def _check_compiled(launch: CheckedLaunch, unwritten: frozenset[str]) -> bool:
    """Run the instrumented kernel and explain any fault; False if the kernel cannot be instrumented."""
    watch = CheckOptions(unwritten, frozenset(n for n, view in launch.views.items() if not view.inside.all()))
    if not launch.on_cpu or launch.found.checked(watch) is None:
        return False
    try:
        noted, written = _reported_faults(launch, watch)
        if any(site.nan for _, site in noted):
            launch.put_back(launch.before)
            noted, written = _reported_faults(launch, watch._replace(loaded=True))
        for word, site in noted:
            _explain(launch, site, word, _programs_to_interpret(*decode_fault(word)), unwritten=unwritten, nan=False)
        for name, seen in written.items():
            _refuse_gaps(launch, name, seen)
    except KernelFault:
        launch.put_back(launch.before)
        raise
    return True


ReportedFaults = list[tuple[int, CheckedAccess]]


def _reported_faults(
    launch: CheckedLaunch, watch: CheckOptions, order: Sequence[int] = ()
) -> tuple[ReportedFaults, dict[str, Any]]:
    """Return the faults that programs reported, first program first, and which unwritten elements were written."""
    made = launch.found.checked(watch)
    assert made is not None, "whether a kernel can be followed does not depend on what is looked at"
    cpu, memories, (kernel, compiled) = device("cpu"), launch.memories, made
    shadows = {n: cpu.from_host(np.zeros(memories[n].extent, np.int32)) for n in sorted(watch.unwritten)}
    inside = [cpu.from_host(launch.views[n].inside.view(np.uint8)) for n in sorted(watch.holed)]
    faults = cpu.from_host(np.full(max(1, len(kernel.sites)), NO_FAULT, np.int64))
    given = [a.window() if isinstance(a, TensorMemory) else a for a in launch.arguments]
    grid = (*launch.grid, 1, 1)[:3]
    extra: list[Any] = [*[memories[n].extent for n in kernel.extents], *shadows.values(), *inside, faults]
    if watch.ordered:
        extra += [cpu.from_host(np.array(order, np.int32)), *grid]
    compiled([*given, *extra], (1,) if watch.ordered else launch.grid)
    words = cpu.to_host(faults, int64, (max(1, len(kernel.sites)),))
    found = [(int(words[n]), kernel.sites[n]) for n in np.argsort(words, kind="stable") if words[n] != NO_FAULT]
    return found, {n: cpu.to_host(x, int32, (memories[n].extent,)) != 0 for n, x in shadows.items()}


def _explain(
    launch: CheckedLaunch, site: CheckedAccess, word: int, orders: Iterable[Sequence[int]], **options: Any
) -> None:
    """Reproduce a program's fault in the interpreter, alone or after other programs; always raises."""
    for order in orders:
        launch.interpreted(order=order, **options)
    found, number = launch.found, decode_fault(word)[0]
    where = program_of(number, (*launch.grid, 1, 1)[:3])
    reason = (
        f"{site.wrong} (seen while all programs ran; interpreted alone, this one does not show it: "
        "`race` says whether programs get in each other's way)"
    )
    raise KernelFault(located_error(found, Misstep(found.ir.name, site.statement, where, (), reason)))


def _programs_to_interpret(number: int, other: int) -> Iterator[Sequence[int]]:
    """Choose which programs to interpret, fewest first."""
    yield [number]
    if other != number:
        yield [other, number]
    if 0 < number < MAX_INTERPRETED_PROGRAMS:
        yield range(number + 1)


def _refuse_gaps(launch: CheckedLaunch, name: str, seen: Any) -> None:
    """Refuse a tensor made by `empty` that the kernel wrote only in part."""
    size, some = seen.size, seen.any()
    if name in launch.views:
        inside = launch.views[name].inside
        seen, size = seen | ~inside, int(inside.sum())
    if some and not seen.all():
        found, place, missing = launch.found, int(np.argmin(seen)), int((~seen).sum())
        raise KernelFault(
            f"kernel {found.ir.name} ({found.ir.origin}): {missing} of the {size} elements of {name} were never "
            f"written, the first is {name}[{place}]: a mask is too narrow, or the grid too small"
        )


def view_offsets(memory: TensorMemory) -> View | None:
    """Return the memory offsets of a view's elements, or None if the view is contiguous."""
    if memory.strides is None or memory.extent == 0:
        return None
    inside = np.zeros(memory.extent, np.bool_)
    np.lib.stride_tricks.as_strided(inside, memory.shape, memory.strides)[...] = True
    shared = prod(memory.shape) > int(inside.sum())
    if inside.all() and not shared:
        return None
    text = f"a view of shape {list(memory.shape)} with strides {memory.strides}"
    return View(inside, shared, text)


def race(found: SpecialisedKernel, arguments: Sequence[Any], grid: tuple[int, ...], orders: int = RACE_ORDERS) -> None:
    """Run the programs of a kernel in several orders, compare the results, and store those of the natural order.

    The interpreter runs the natural order and records which programs access the same elements. Other orders run
    compiled where possible, that is unless programs synchronize by atomic operations.
    """
    with _on_host(found, arguments) as given:
        _raced(CheckedLaunch(found, given, grid), prod(grid), orders)


def _raced(launch: CheckedLaunch, count: int, orders: int) -> None:
    found = launch.found
    chance = random.Random(count)
    expected = launch.interpreted(strict=True)
    try:
        if count > 1 and orders:
            ordered = _ordered(launch)
            expected = ordered(range(count))
            for attempt in range(orders):
                order = list(range(count))[::-1]
                if attempt:
                    chance.shuffle(order)
                got = ordered(order)
                for name in sorted(found.accesses.stored):
                    n = launch.names.index(name)
                    _compare(found, name, expected[n], got[n], order)
    except KernelFault:
        launch.put_back(launch.before)
        raise
    launch.put_back(expected)


def _ordered(launch: CheckedLaunch) -> Callable[[Sequence[int]], list[Any]]:
    """Return a function that runs all programs in a given order on fresh arguments and returns these afterwards."""
    holed = frozenset(n for n, view in launch.views.items() if not view.inside.all())
    watch = CheckOptions(holed=holed, ordered=True)
    if not launch.on_cpu or used_atomics(launch.found.ir) or launch.found.checked(watch) is None:
        return lambda order: launch.interpreted(strict=True, order=order)

    def run(order: Sequence[int]) -> list[Any]:
        launch.put_back(launch.before)
        for word, site in _reported_faults(launch, watch, order)[0]:
            if not site.nan:
                _explain(launch, site, word, [order], strict=True)
        return launch.copies()

    return run


def _compare(found: SpecialisedKernel, name: str, x: Any, y: Any, order: Sequence[int]) -> None:
    """Refuse results that differ between two program orders."""
    wrong = x != y
    if x.dtype.kind in "fV":
        adds = any(isinstance(s, Atomic) for s in statements(found.ir.body))
        wide, other = x.astype(np.float64), y.astype(np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        allowed = ATOMIC_SUM_TOLERANCE * float(finite.max(initial=0.0)) if adds else 0.0
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(wide - other) <= allowed) | (wide == other) | (np.isnan(wide) & np.isnan(other)))
    if wrong.any():
        place = int(np.argmax(wrong))
        shown = ", ".join(map(str, order[:6])) + (", ..." if len(order) > 6 else "")
        raise KernelFault(
            f"kernel {found.ir.name} ({found.ir.origin}): {name}[{place}] depends on the order of the programs: it is "
            f"{x[place]} if they run one after the other, and {y[place]} in the order {shown}"
        )


def _array(argument: Any, found: SpecialisedKernel, n: int) -> Any:
    """Return the memory of an argument as a flat array with as many elements as its tensor."""
    if not isinstance(argument, TensorMemory):
        return argument
    dtype = found.ir.parameters[n].dtype
    buffer = argument.buffer
    count = buffer.bytes // dtype.bytes
    whole = buffer.device.view(buffer, dtype, (count,))
    assert whole is not None, "memory of the CPU"
    return whole[argument.offset : argument.offset + argument.extent]


def located_error(found: SpecialisedKernel, misstep: Misstep) -> str:
    """Attach the user's source line to an error."""
    name = found.ir.name
    program = f", program ({', '.join(map(str, misstep.program))})" if misstep.program else ""
    lane = f", lane ({', '.join(map(str, misstep.lane))})" if misstep.lane else ""
    place: Any = found.read.parts.get(id(misstep.tile)) or found.read.places.get(id(misstep.statement))
    if place is None:
        return f"kernel {name} ({found.ir.origin}){program}{lane}: {misstep.reason}"
    return f"kernel {name}, {place[1]}{program}{lane}: {misstep.reason}\n{place[1].marked()}"
