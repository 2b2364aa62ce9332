"""Print a launch: its counters line by line, and its occupancy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .counters import Counters
from .lanes import LaunchShape
from .limits import Gpu, Occupancy, occupancy

if TYPE_CHECKING:
    from .kernel import SpecialisedThreadKernel

UNITS = {"global": "transactions", "shared": "turns of the banks"}


class LaunchReport:
    """The report of a launch; `counters` is None after a launch on a GPU."""

    def __init__(
        self, found: SpecialisedThreadKernel, shape: LaunchShape, limits: Gpu, counters: Counters | None
    ) -> None:
        self.kernel, self.shape, self.gpu, self.counters = found, shape, limits, counters

    @property
    def registers(self) -> int:
        """Registers per thread if the kernel was compiled, else 0."""
        built: Any = self.kernel.built.get(self.gpu.architecture)
        return built.registers if built is not None else 0

    @property
    def shared(self) -> int:
        """Shared memory per block in bytes."""
        return self.kernel.static_shared + self.shape.shared

    @property
    def occupancy(self) -> Occupancy:
        return occupancy(self.gpu, self.shape.threads, self.registers, self.shared)

    def __str__(self) -> str:
        grid, block = (" x ".join(str(n) for n in x) for x in (self.shape.grid, self.shape.block))
        lines = [f"{self.kernel.routine.name}: {grid} blocks of {block} threads, {self.shared} bytes of shared memory"]
        if self.counters is not None:
            lines += [f"  {line}" for line in str(self.counters).split("\n")]
            for line in sorted(self.counters.lines.values(), key=lambda x: (x.place.source.file, x.place.line)):
                unit = UNITS[line.space]
                lines.append(
                    f"  {line.place}: {line.how} {line.array}, {line.threads:,} by {line.requests:,} warps, "
                    f"{line.per_request:.3g} "
                    f"{unit} each"
                )
        registers = f" with {self.registers} registers" if self.registers else ""
        lines.append(f"  on {self.gpu.name}{registers}: {self.occupancy}")
        return "\n".join(lines)

    __repr__ = __str__
