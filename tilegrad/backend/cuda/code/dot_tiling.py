"""Distribute the accumulators of a matrix product over a block of threads.

    group    a warpgroup of four warps: 64 rows, 8 to 256 columns (wgmma, sm_90a)
    warp     one warp: blocks of 16 rows and 8 columns (mma.sync, sm_80 on)
    thread   one thread: its own rows and columns, any dtype

Accumulators are registers, distributed by a layout like that of any other tile. Suitable tiles of the scheduler:

    operands                 rows x columns x k
    bfloat16, float16        128 x 256 x 64 on sm_90a where that gives tiles enough, else 128 x 128 x 64;
                             128 x 128 x 64 on others, 64 x 64 x 64 where that gives too few
    int8, uint8, float8      128 x 128 x 128; float8 before sm_89 as float16, which represents all of its numbers
    float32 at `medium`      as bfloat16
    float32 at `high`        128 x 128 x 32, as tf32: 11 significant bits
    float32, others          128 x 128 x 16; 64 x 64 x 16 where that gives too few
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir.dtype import FLOAT8, DType, bfloat16, float16, float32, int8, uint8
from ....ir.precision import Precision
from .hardware import FLOAT8_CAPABILITY, TENSOR_CORE_CAPABILITY
from .layout import Digit, RegisterLayout

MAX_ACCUMULATORS = 128
"""Largest number of accumulators of a thread on tensor cores; half as many where threads multiply without them."""
MIN_WARP_TILE = {"warp": (16, 16), "thread": (4, 8)}
"""Smallest rows and columns of a warp."""


class Tiling(NamedTuple):
    """A grid of `down` x `across` warps (or warpgroups), each with `rows` x `columns` accumulators."""

    kind: str
    m: int
    n: int
    down: int
    across: int
    rows: int
    columns: int
    swapped: bool = False
    """Whether rows and columns are swapped: y.T @ x.T is multiplied."""

    @property
    def threads(self) -> int:
        return self.down * self.across * (128 if self.kind == "group" else 32)

    @property
    def layout(self) -> RegisterLayout:
        """The layout of the accumulators."""
        if self.kind == "thread":
            return self._thread_layout()
        stride = 128 if self.kind == "group" else 32
        high = [Digit(4, 32)] if self.kind == "group" else _register(self.rows // 16)
        rows = (Digit(8, 4), Digit(2), *high, *_threads(self.down, stride * self.across))
        columns = (Digit(2), Digit(4, 1), *_register(self.columns // 8), *_threads(self.across, stride))
        if self.swapped:
            return RegisterLayout((self.m, self.n), (columns, rows), 0)
        return RegisterLayout((self.m, self.n), (rows, columns), 1 if self.n % 2 == 0 else -1)

    def _thread_layout(self) -> RegisterLayout:
        """Arrange eight by four threads as a warp; a thread has groups of four neighbours, far from each other."""
        axes = []
        for each, lanes, lane, warps, warp in (
            (self.rows // 4, 4, 8, self.down, 32 * self.across),
            (self.columns // 8, 8, 1, self.across, 32),
        ):
            near = 4 if each % 4 == 0 else 2 if each % 2 == 0 else 1
            axes.append((*_register(near), Digit(lanes, lane), *_threads(warps, warp), *_register(each // near)))
        return RegisterLayout((self.m, self.n), tuple(axes), 1 if near > 1 and self.n % near == 0 else -1)

    @property
    def pieces(self) -> tuple[int, int]:
        """Contiguous accumulators of a thread, down and across."""
        return tuple(4 if e % 4 == 0 else 2 if e % 2 == 0 else 1 for e in (self.rows // 4, self.columns // 8))  # type: ignore[return-value]


def _register(extent: int) -> tuple[Digit, ...]:
    return (Digit(extent),) if extent > 1 else ()


def _threads(extent: int, stride: int) -> tuple[Digit, ...]:
    return (Digit(extent, stride),) if extent > 1 else ()


def operand_dtype(dtype: DType, precision: Precision, capability: int) -> DType | None:
    """Return the dtype in which tensor cores multiply operands of a dtype; None if they cannot.

    >>> from ....ir.dtype import float8_e5m2
    >>> operand_dtype(float32, "medium", 90), operand_dtype(float8_e5m2, "highest", 80)
    (tilegrad.bfloat16, tilegrad.float16)
    """
    if capability < TENSOR_CORE_CAPABILITY:
        return None
    if dtype is float32:
        return {"medium": bfloat16, "high": float32}.get(precision)
    if dtype in FLOAT8:
        return dtype if capability >= FLOAT8_CAPABILITY else float16
    return dtype if dtype in (bfloat16, float16, int8, uint8) else None


def fewest_warps(kind: str, m: int, n: int) -> int:
    """Return the fewest warps, at least four, whose registers hold a tile of accumulators.

    >>> fewest_warps("warp", 128, 128), fewest_warps("thread", 128, 128), fewest_warps("thread", 16, 16)
    (4, 8, 4)
    """
    return next((count for count in (4, 8, 16) if _choices(kind, m, n, count)), 16)


def choose_tiling(kind: str, m: int, n: int, count: int) -> Tiling:
    """Return the tiling with this many warps that computes and reads least.

    >>> choose_tiling("warp", 128, 128, 4)[3:7], choose_tiling("thread", 128, 128, 8)[3:7]
    ((2, 2, 64, 64), (4, 2, 32, 64))
    """
    unit_m, unit_n = MIN_WARP_TILE[kind]
    found = _choices(kind, m, n, count) or _choices(kind, m, n, count, 1 << 30)
    return min(found, key=lambda t: (t.rows * t.columns, t.rows // unit_m + t.columns // unit_n))


def _choices(kind: str, m: int, n: int, count: int, most: int = 0) -> list[Tiling]:
    unit_m, unit_n = MIN_WARP_TILE[kind]
    most = most or 32 * (MAX_ACCUMULATORS if kind == "warp" else MAX_ACCUMULATORS // 2)
    made = []
    for down in (1 << p for p in range(count.bit_length())):
        across = count // down
        rows, columns = -(-m // (down * unit_m)) * unit_m, -(-n // (across * unit_n)) * unit_n
        if rows * columns <= most:
            made.append(Tiling(kind, m, n, down, across, rows, columns))
    return made
