"""Count a launch: bytes moved, floating-point operations, and the least time that they need (roofline).

The counts come from the tile kernel, with every mask taken as true: each element loaded or stored counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..ir import tile as ir
from ..ir.functions import FUNCTIONS
from ..ir.tile_access import roots, walk
from ..ir.tile_types import Types
from ..runtime.bounds import Limit
from .generated_code import gpu_resources

FREE_FUNCTIONS = frozenset({"where", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "neg", "abs", "copysign"})


class KernelReport(NamedTuple):
    """The counts of a launch; `exact` if all trip counts were known."""

    name: str
    programs: int
    loaded: int
    stored: int
    operations: int
    exact: bool
    least: Limit | None = None
    """Lower bound of the time on this machine, in seconds: each tensor is read and written once."""
    compiled: ir.Kernel | None = None
    """The kernel as backends compile it."""
    seconds: float | None = None
    """Measured time of a launch in seconds, or None."""

    @property
    def gpu(self) -> str:
        """Registers, spills, shared memory and occupancy on an H200, compiled on demand."""
        return "" if self.compiled is None else gpu_resources(self.compiled)

    @property
    def bytes(self) -> int:
        """Bytes loaded and stored."""
        return self.loaded + self.stored

    def __str__(self) -> str:
        gpu = self.gpu
        about = "" if self.exact else " (at least: a loop's length depends on data)"
        per = f", {self.operations / self.bytes:.3g} for each byte" if self.bytes else ""
        return (
            f"{self.name}: {self.programs} programs{about}\n"
            f"  loaded {self.loaded:,} bytes, stored {self.stored:,} bytes\n"
            f"  {self.operations:,} operations on floats{per}{self._limit()}" + (f"\n  {gpu}" if gpu else "")
        )

    def _limit(self) -> str:
        if self.least is None or not self.least.bound:
            return ""
        least = f"\n  at least {1e6 * self.least.seconds:,.1f} us on this machine, by its {self.least.bound}"
        if self.seconds is None:
            return least
        return f"{least}; took {1e6 * self.seconds:,.1f} us: {100 * self.least.share(self.seconds):.0f} % of the limit"


def report(kernel: ir.Kernel, types: Types, grid: tuple[int, ...], numbers: Mapping[str, Any]) -> KernelReport:
    """Count the work of the programs of a grid.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", n: "i32"):
    ...     i = tl.arange(0, 8)
    ...     for k in range(n):
    ...         tl.store(x + i, tl.load(x + i) * 2)
    ... ''')
    >>> print(report(kernel, check(kernel), (3,), {"n": 2}))
    f: 3 programs
      loaded 192 bytes, stored 192 bytes
      48 operations on floats, 0.125 for each byte
    """
    counter = _Counter(types, grid, numbers)
    counter.block(kernel.body, 1.0)
    programs = prod(grid)
    whole = [round(x * programs) for x in (counter.loaded, counter.stored, counter.operations)]
    return KernelReport(kernel.name, programs, whole[0], whole[1], whole[2], counter.exact)


class _Counter:
    def __init__(self, types: Types, grid: Sequence[int], numbers: Mapping[str, Any]) -> None:
        self.types, self.grid = types, (*grid, 1, 1)[:3]
        self.known: dict[str, float] = {n: v for n, v in numbers.items() if isinstance(v, int | float)}
        self.loaded = self.stored = self.operations = 0.0
        self.exact = True

    def block(self, body: tuple[ir.Statement, ...], times: float) -> None:
        for statement in body:
            for x in walk(*roots(statement)):
                self.expression(x, times)
            self.statement(statement, times)

    def statement(self, statement: ir.Statement, times: float) -> None:
        match statement:
            case ir.Assign(name, value):
                found = self.number(value)
                if found is None or times != 1:
                    self.known.pop(name, None)
                else:
                    self.known[name] = found
            case ir.Store(pointer) | ir.Atomic(_, pointer):
                self.stored += times * self.bytes(pointer)
            case ir.For(_, start, stop, step, body):
                bounds = [self.number(x) for x in (start, stop, step)]
                iterations = 1.0
                if None in bounds:
                    self.exact = False
                else:
                    low, high, width = (float(b) for b in bounds if b is not None)
                    iterations = max(0.0, -(-(high - low) // width))
                self.block(body, times * iterations)
            case ir.While(_, body):
                self.exact = False
                self.block(body, times)
            case ir.If(_, then, otherwise):
                self.exact = self.exact and not then and not otherwise
                self.block(then, times)
                self.block(otherwise, times)

    def bytes(self, pointer: ir.Tile) -> int:
        found = self.types.of(pointer)
        return prod(found.shape) * found.dtype.bytes

    def expression(self, x: ir.Tile, times: float) -> None:
        match x:
            case ir.Load(pointer):
                self.loaded += times * self.bytes(pointer)
            case ir.Apply(fn) if fn not in FREE_FUNCTIONS and fn in FUNCTIONS:
                found = self.types.of(x)
                if found.dtype.is_float and not found.pointer:
                    self.operations += times * prod(found.shape) * (2 if fn == "fma" else 1)
            case ir.Reduce(_, y) | ir.Scan(_, y):
                self.operations += times * prod(self.types.of(y).shape) * self.types.of(y).dtype.is_float
            case ir.Dot(y, z):
                m, k = self.types.of(y).shape
                self.operations += times * 2 * m * k * self.types.of(z).shape[1]

    def number(self, x: ir.Tile) -> float | None:
        """Evaluate an expression from the launch's arguments, with program 0 standing for all programs."""
        match x:
            case ir.Literal(value):
                return value
            case ir.Name(name):
                return self.known.get(name)
            case ir.ProgramId():
                return 0
            case ir.NumPrograms(axis):
                return self.grid[axis]
            case ir.Apply(fn, args):
                given = [self.number(a) for a in args]
                function = FUNCTIONS[fn].evaluate
                if None in given or function is None:
                    return None
                return float(function(*given)) if self.types.of(x).dtype.is_float else int(function(*given))
        return None
