"""Multiply computed operands: stored to shared memory, then multiplied by warps on tensor cores or by threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import DType
from . import dot_helpers as helpers
from .dot_fill import fill_lines, fill_rows, shared_bytes, zero_fill
from .dot_text import Operand, thread_products, warp_products
from .dot_tiling import Tiling
from .functions import TYPES

if TYPE_CHECKING:
    from .lower import CudaLowering

MIN_SHARED_BYTES = 8192
"""Smallest request for shared memory, in bytes: it gets its own place, aligned to 1024."""
MAX_SLICE_DEPTH = 16
"""Depth (along k) of the slice of operands that threads multiply without tensor cores."""


class WarpProduct:
    """A product of operands of one dtype on tensor cores."""

    def __init__(self, low: CudaLowering, tiling: Tiling, dot: ir.Dot, dtype: DType) -> None:
        self.low, self.tiling, self.dot, self.dtype = low, tiling, dot, dtype
        step, depth = 32 // dtype.bytes, low.types.of(dot.x).shape[1]
        padded = -(-depth // step) * step
        self.pads = padded > depth
        extents = (tiling.down * tiling.rows, tiling.across * tiling.columns)
        self.x, self.y = (
            Operand(f"{name}_place", self._is_transposed(x, axis), dtype.bytes, padded, extents[axis])
            for axis, (name, x) in enumerate((("x", dot.x), ("y", dot.y)))
        )
        self.bytes = shared_bytes((self.x, self.y))

    def _is_transposed(self, x: ir.Tile, axis: int) -> bool:
        """Return whether an operand's lines run along its rows: as its vectors do, if tensor cores can transpose it."""
        return self.dtype.bytes > 1 and self.low.plan.of_operand(x).vector == axis

    def fill(self, place: str, prepare: Callable[[], None] = lambda: None) -> None:
        """Store the operands to shared memory."""
        self.low.out.add(f"unsigned char *x_at = {place}, *y_at = x_at + {self.x.size};")
        prepare()
        fill_lines(self.low, "x_at", self.x, self.dot.x, self.dtype, (0, 1))
        fill_lines(self.low, "y_at", self.y, self.dot.y, self.dtype, (1, 0))

    def multiply(self, sums: str, places: str) -> None:
        """Multiply operands at the `places` that a line declares."""
        dtype = self.dtype.name
        self.low.products.use(helpers.SHARED_MEMORY, helpers.fragments(dtype), helpers.warp_product(dtype))
        self.low.out.extend([places, *warp_products(sums, self.tiling, self.x, self.y)])

    def multiply_at(self, sums: str, place: str) -> None:
        """Multiply operands at an offset of the shared memory that a loop holds."""
        self.multiply(
            sums, f"const uint32 x_place = shared_address(held) + {place}, y_place = x_place + {self.x.size};"
        )

    def write(self, sums: str) -> None:
        """Write the product by itself."""
        shared = self.low.take_shared(max(self.bytes, MIN_SHARED_BYTES))
        self.fill(shared, lambda: zero_fill(self.low, shared, self.bytes) if self.pads else None)
        self.low.barrier()
        self.multiply(sums, "uint32 x_place = shared_address(x_at), y_place = shared_address(y_at);")


class ThreadProduct:
    """A product without tensor cores."""

    pads = False

    def __init__(self, low: CudaLowering, tiling: Tiling, dot: ir.Dot) -> None:
        self.low, self.tiling, self.dot, self.dtype = low, tiling, dot, low.types.of(dot).dtype
        self.kind, self.depth = TYPES[self.dtype.name], low.types.of(dot.x).shape[1]
        self.pitches = (tiling.down * tiling.rows, tiling.across * tiling.columns)
        self.bytes = self.depth * sum(self.pitches) * self.dtype.bytes

    def _declare(self, place: str, depth: int, const: str = "") -> None:
        x_tile = f"{const}{self.kind} *x_tile = reinterpret_cast<{self.kind}*>({place})"
        self.low.out.add(f"{x_tile}, *y_tile = x_tile + {depth * self.pitches[0]};")

    def fill(self, place: str) -> None:
        """Store the operands to shared memory."""
        self._declare(place, self.depth)
        self._fill(range(self.depth))

    def _fill(self, part: range) -> None:
        fill_rows(self.low, "x_tile", self.pitches[0], self.dot.x, self.dtype, (0, 1), part)
        fill_rows(self.low, "y_tile", self.pitches[1], self.dot.y, self.dtype, (1, 0), part)

    def _multiply(self, sums: str, depth: int) -> None:
        self.low.out.extend(thread_products(sums, self.tiling, depth, self.pitches, self.kind))

    def multiply_at(self, sums: str, place: str) -> None:
        """Multiply operands at an offset of the shared memory that a loop holds."""
        self._declare(f"held + {place}", self.depth, "const ")
        self._multiply(sums, self.depth)

    def write(self, sums: str) -> None:
        """Write the product by itself, slice by slice along k."""
        low, depth = self.low, min(self.depth, MAX_SLICE_DEPTH)
        for first in range(0, self.depth, depth):
            part = range(first, min(self.depth, first + depth))
            shared = low.take_shared(max(depth * sum(self.pitches) * self.dtype.bytes, MIN_SHARED_BYTES))
            with low.out.block(""):
                self._declare(shared, depth)
                self._fill(part)
                low.barrier()
                self._multiply(sums, len(part))
