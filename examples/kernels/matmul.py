"""Matrix product, n x n by n x n, in six steps on a CPU, and in its own steps on a GPU.

Each step is told by what it loads. A program for each element loads 2 n^3 numbers. What is held closer to where it is
computed is loaded less often:

    register tiles   v1 rows by v2 columns of the result in registers            n^3 / v2 + n^3 / v1
    cache tiles      b1 rows of x and b2 columns of y in the first cache,        n^2 + n^3 / b1
                     (b1 + b2) n numbers of it at the most
    both             tiles b1 x b2 of the result, register tiles inside          n^3 / b2 + n^3 / b1
    packed           both operands laid out beforehand as register tiles read    the same, one after the other
                     them
"""

import numpy as np

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb
from examples.kernels.transpose import tile as transposed
from examples.simt import matmul as threads
from tilegrad.backend.cpu.target import target

climb = Climb(
    "matmul",
    inputs=lambda n: (tg.randn(n, n), tg.randn(n, n)),
    expected=lambda x, y: x @ y,
    size={"n": 1024},
    large={"n": 4096},
    tiny=[{"n": 5}, {"n": 32}, {"n": 70}],
    bytes=lambda n: 12 * n * n,
    operations=lambda n: 2 * n**3,
    tolerance=2e-2,  # of the step in bfloat16; the others are a test's (tests/examples)
    peers={"numpy (OpenBLAS)": lambda x, y: np.matmul(np.from_dlpack(x), np.from_dlpack(y))},
)

V1, V2 = 6, 16
"""A register tile."""


@tg.kernel
def element(x, y, out, n):
    row, column = tl.program_id(1), tl.program_id(0)
    total = 0.0
    for k in range(n):
        total += tl.load(x + row * n + k) * tl.load(y + k * n + column)
    tl.store(out + row * n + column, total)


@tg.kernel
def outer(x, y, out, n, BM: tl.constexpr, BN: tl.constexpr):
    """A tile of the result; each k adds a column of x times a row of y, both from memory."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(n):
        left = tl.load(x + rows * n + k, mask=rows < n, other=0.0)
        right = tl.load(y + k * n + columns, mask=columns < n, other=0.0)
        total += left[:, None] * right[None, :]
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, total, mask=(rows[:, None] < n) & (columns[None, :] < n))


@tg.kernel
def register_tiles(x, y, out, n, K: tl.constexpr, V1: tl.constexpr, V2: tl.constexpr):
    """Strips of x and y from where they lie, all of k at once: the result is stored once."""
    rows = tl.program_id(1) * V1 + tl.arange(0, V1)
    columns = tl.program_id(0) * V2 + tl.arange(0, V2)
    k = tl.arange(0, K)
    left = tl.load(x + rows[:, None] * n + k[None, :], mask=rows[:, None] < n, other=0.0)
    right = tl.load(y + k[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, tl.dot(left, right), mask=(rows[:, None] < n) & (columns[None, :] < n))


@tg.kernel
def cache_tiles(x, turned, out, n, K: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr):
    """B1 rows of x stay in the cache while all of y passes by, B2 columns at a time (`turned` has them as rows)."""
    rows = tl.program_id(0) * B1 + tl.arange(0, B1)
    k = tl.arange(0, K)
    left = tl.load(x + rows[:, None] * n + k[None, :], mask=rows[:, None] < n, other=0.0)
    for first in range(0, n, B2):
        columns = first + tl.arange(0, B2)
        right = tl.load(turned + columns[:, None] * n + k[None, :], mask=columns[:, None] < n, other=0.0)
        total = tl.sum(left[:, None, :] * right[None, :, :], 2)
        to = out + rows[:, None] * n + columns[None, :]
        tl.store(to, total, mask=(rows[:, None] < n) & (columns[None, :] < n))


@tg.kernel
def tiles(
    x, y, out, n, B1: tl.constexpr, B2: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GROUP)
    rows = i * B1 + tl.arange(0, B1)
    columns = j * B2 + tl.arange(0, B2)
    total = tl.zeros((B1, B2), tl.float32)
    for first in range(0, n, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * n + k[None, :], mask=(rows[:, None] < n) & (k[None, :] < n), other=0.0)
        right = tl.load(
            y + k[:, None] * n + columns[None, :], mask=(k[:, None] < n) & (columns[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, total, mask=(rows[:, None] < n) & (columns[None, :] < n))


@tg.kernel
def pack_rows(x, packed, n, K: tl.constexpr, V1: tl.constexpr):
    """Panels of V1 rows, one k after another: x[n, n] becomes packed[n / V1, n, V1]; 0 where there are no rows."""
    k, r = tl.arange(0, K), tl.arange(0, V1)
    rows = tl.program_id(0) * V1 + r
    v = tl.load(x + rows[:, None] * n + k[None, :], mask=rows[:, None] < n, other=0.0)
    tl.store(packed + tl.program_id(0) * K * V1 + k[:, None] * V1 + r[None, :], tl.trans(v))


@tg.kernel
def pack_columns(y, packed, n, K: tl.constexpr, V2: tl.constexpr):
    """Panels of V2 columns: y[n, n] becomes packed[n / V2, n, V2]."""
    k, c = tl.arange(0, K), tl.arange(0, V2)
    columns = tl.program_id(0) * V2 + c
    v = tl.load(y + k[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
    tl.store(packed + tl.program_id(0) * K * V2 + k[:, None] * V2 + c[None, :], v)


@tg.kernel
def packed_tiles(x, y, out, n, K: tl.constexpr, V1: tl.constexpr, V2: tl.constexpr, GROUP: tl.constexpr):
    """A register tile a program; GROUP panels of x stay in the second cache while those of y pass by."""
    j, i = tl.program_id(1), tl.program_id(0)
    i, j = tl.swizzle2d(i, j, tl.num_programs(0), tl.num_programs(1), GROUP)
    k, r, c = tl.arange(0, K), tl.arange(0, V1), tl.arange(0, V2)
    left = tl.load(x + i * K * V1 + k[None, :] * V1 + r[:, None])
    right = tl.load(y + j * K * V2 + k[:, None] * V2 + c[None, :])
    rows, columns = i * V1 + r, j * V2 + c
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, tl.dot(left, right), mask=(rows[:, None] < n) & (columns[None, :] < n))


def fits(configs: list[tg.Config], arguments: dict[str, object], **_: object) -> list[tg.Config]:
    """The tiles with which a strip of x and one of y fit into the first cache; the smallest if none does."""
    n: int = arguments["n"]  # type: ignore[assignment]
    room = target().l1_bytes // 4
    found = [c for c in configs if (c.kwargs["B1"] + c.kwargs["B2"]) * n < room]
    return found or [min(configs, key=lambda c: c.kwargs["B1"] + c.kwargs["B2"])]


TILES = [tg.Config({"B1": b1, "B2": b2}) for b1 in (1, 2, 4, 8) for b2 in (1, 2, 4)]
tuned_cache_tiles = tg.autotune(TILES, key=["n"], prune_configs_by={"early_config_prune": fits})(cache_tiles)


def result(x: tg.Tensor) -> tuple[int, tg.Tensor]:
    return len(x), tg.empty_like(x)


def by_tiles(
    x: tg.Tensor, y: tg.Tensor, b1: int, b2: int, bk: int, group: int = 4, precision: str = "highest"
) -> tg.Tensor:
    n, out = result(x)
    grid = (tg.cdiv(n, b1), tg.cdiv(n, b2))
    tiles[grid](x, y, out, n, B1=b1, B2=b2, BK=bk, GROUP=group, PRECISION=precision)
    return out


@climb.step(on="cpu")
def naive(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """a program for each element"""
    n, out = result(x)
    element[(n, n)](x, y, out, n)
    return out


@climb.step(on="cuda")
def by_threads(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """a thread for each element (examples/simt)"""
    return threads.product("naive", x, y)


@climb.step(on="cuda")
def by_threads_shared(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """threads with strips of 16 in shared memory"""
    return threads.product("tiled", x, y)


@climb.step(on="cuda")
def double_buffered(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """threads, double-buffered: the next strip comes while one is used"""
    return threads.product("double_buffered", x, y)


@climb.step(on="cuda")
def outer_products(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 32 x 32, operands from memory for each k"""
    n, out = result(x)
    outer[(tg.cdiv(n, 32), tg.cdiv(n, 32))](x, y, out, n, BM=32, BN=32)
    return out


@climb.step(on="cuda")
def sums_in_registers(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """threads, double-buffered, 8 x 8 sums in registers each"""
    return threads.product("in_registers", x, y, S=8, R=8)


@climb.step(on="cpu")
def in_registers(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """register tiles, 6 x 16"""
    n, out = result(x)
    register_tiles[(tg.cdiv(n, V2), tg.cdiv(n, V1))](x, y, out, n, K=n, V1=V1, V2=V2)
    return out


@climb.step(on="cpu")
def in_the_cache(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """cache tiles that a tuner chooses from those that fit"""
    n, out = result(x)
    turned = tg.empty_like(y)
    transposed[(tg.cdiv(n, 32), tg.cdiv(n, 32))](y, turned, n, n, HEIGHT=32, WIDTH=32)
    tuned_cache_tiles[lambda given: (tg.cdiv(n, given["B1"]),)](x, turned, out, n, K=n)
    return out


@climb.step(on="cpu")
def in_both(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """both: tiles of 48 x 64, 64 deep"""
    return by_tiles(x, y, 48, 64, 64)


@climb.step(on="cpu")
def packed(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """register tiles of operands that were packed before"""
    n, out = result(x)
    high, wide = tg.cdiv(n, V1), tg.cdiv(n, V2)
    left, right = tg.empty(high * V1, n), tg.empty(wide * V2, n)
    pack_rows[(high,)](x, left, n, K=n, V1=V1)
    pack_columns[(wide,)](y, right, n, K=n, V2=V2)
    packed_tiles[(high, wide)](left, right, out, n, K=n, V1=V1, V2=V2, GROUP=16)
    return out


@climb.step(on="cpu")
def large_tiles(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 256 x 256, packed as they are loaded (`tl.dot`)"""
    return by_tiles(x, y, 256, 256, 256)


@climb.step(on="cuda")
def shared(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 64 x 64 through shared memory"""
    return by_tiles(x, y, 64, 64, 32)


@climb.step(on="cuda")
def large_shared(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 128 x 128: each operand is loaded half as often"""
    return by_tiles(x, y, 128, 128, 32, 8)


@climb.step(on="cuda")
def tensor_cores(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tensor cores: operands in two parts of bfloat16"""
    return by_tiles(x, y, 128, 128, 64, 8, "high")


@climb.step(on="cuda")
def rounded(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tensor cores: operands rounded to bfloat16"""
    return by_tiles(x, y, 128, 128, 64, 8, "medium")


if __name__ == "__main__":
    climb.main()
