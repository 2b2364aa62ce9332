"""Library functions of the tile language, written in the tile language."""

# mypy: ignore-errors
# (In kernels a constexpr is the number that it stands for.)

from __future__ import annotations

from typing import Any

from . import core as tl
from .scope import TileFunction


@TileFunction
def softmax(
    x: Any, dim: tl.constexpr = None, keep_dims: tl.constexpr = False, ieee_rounding: tl.constexpr = False
) -> Any:
    """Compute the softmax along an axis (the first by default)."""
    axis: tl.constexpr = 0 if dim is None else dim
    z = tl.exp(x - tl.max(x, axis, keep_dims=True))
    return z / tl.sum(z, axis, keep_dims=True)


@TileFunction
def swap_across(x: Any, distance: tl.constexpr, run: tl.constexpr, descending: tl.constexpr) -> Any:
    """Perform one compare-and-exchange step of a bitonic sort along the last axis, at this distance."""
    count: tl.constexpr = x.shape[len(x.shape) - 1]
    at = tl.broadcast_to(tl.arange(0, count), x.shape)
    partner = tl.gather(x, at ^ distance, len(x.shape) - 1)
    lower = (at & distance) == 0
    first = tl.where(lower, x, partner)
    second = tl.where(lower, partner, x)
    wrong = first > second
    other = second > first
    if x.dtype.is_floating():  # a NaN is the greatest
        wrong = wrong | ((first != first) & (second == second))
        other = other | ((second != second) & (first == first))
    upwards = ((at & run) == 0) ^ descending
    return tl.where(tl.where(upwards, wrong, other), partner, x)


@TileFunction
def sort(x: Any, dim: tl.constexpr = None, descending: tl.constexpr = False) -> Any:
    """Sort along the last axis, whose extent is a power of two; NaN sorts as the greatest."""
    count: tl.constexpr = x.shape[len(x.shape) - 1]
    tl.static_assert(dim is None or dim == len(x.shape) - 1 or dim == -1, "tl.sort sorts along the last axis")
    tl.static_assert((count & (count - 1)) == 0, "tl.sort sorts axes whose extent is a power of two: pad with tl.where")
    for run in tl.static_range(1, count.bit_length()):
        for step in tl.static_range(run):
            x = swap_across(x, (1 << run) >> (step + 1), (1 << run) & (count - 1), descending)
    return x


@TileFunction
def topk(x: Any, k: tl.constexpr, dim: tl.constexpr = None) -> Any:
    """Return the k largest elements along the last axis, largest first; both extents are powers of two."""
    count: tl.constexpr = x.shape[len(x.shape) - 1]
    tl.static_assert(0 < k and k <= count, "tl.topk gives at most as many elements as there are")
    tl.static_assert((k & (k - 1)) == 0, "the k of tl.topk is a power of two")
    inside = tl.broadcast_to(tl.arange(0, k), x.shape[: len(x.shape) - 1] + (k,))
    return tl.gather(sort(x, dim, True), inside, len(x.shape) - 1)


@TileFunction
def histogram(input: Any, num_bins: tl.constexpr, mask: Any = None) -> Any:
    """Count the occurrences of the numbers 0 to num_bins - 1."""
    same = input[None, :] == tl.arange(0, num_bins)[:, None]
    if mask is not None:
        same = same & mask[None, :]
    return tl.sum(same.to(tl.int32), 1)


@TileFunction
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> Any:
    """Map row-major block coordinates to coordinates grouped by `size_g` rows, for cache reuse."""
    ij = i * size_j + j
    size_gj = size_g * size_j
    group = ij // size_gj
    first = group * size_g
    size_g = tl.minimum(size_i - first, size_g)
    ij = ij % size_gj
    return first + ij % size_g, ij // size_g


# --- random numbers: Philox, a counter and a key ------------------------------------------------


@TileFunction
def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Compute Philox: four 32-bit words from a 4-word counter and a 2-word key."""
    for _ in tl.static_range(n_rounds):
        before0 = c0
        before2 = c2
        c0 = tl.umulhi(before2, 0xCD9E8D57) ^ c1 ^ k0
        c2 = tl.umulhi(before0, 0xD2511F53) ^ c3 ^ k1
        c1 = before2 * 0xCD9E8D57
        c3 = before0 * 0xD2511F53
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@TileFunction
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Compute Philox: four 32-bit words from a 64-bit seed and a counter."""
    wide = tl.seed_of(seed)
    low = (wide & 0xFFFFFFFF).to(tl.uint32)
    high = (wide >> 32).to(tl.uint32)
    zero = c0 * 0
    return philox_impl(
        c0.to(tl.uint32, bitcast=True), (zero + c1).to(tl.uint32, bitcast=True),
        (zero + c2).to(tl.uint32, bitcast=True), (zero + c3).to(tl.uint32, bitcast=True), low, high, n_rounds,
    )  # fmt: skip


@TileFunction
def randint4x(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate four tiles of random 32-bit integers from a seed and a tile of counters."""
    counter = offset.to(tl.uint32).to(tl.int32, bitcast=True)
    upper = counter * 0
    if offset.dtype.primitive_bitwidth > 32:
        upper = (offset >> 32).to(tl.uint32).to(tl.int32, bitcast=True)
    return philox(seed, counter, upper, 0, 0, n_rounds)


@TileFunction
def randint(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate a tile of random 32-bit integers from a seed and a tile of counters."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@TileFunction
def uint_to_uniform_float(x: Any) -> Any:
    """Convert random 32-bit integers to floats in [0, 1)."""
    signed = x.to(tl.int32, bitcast=True)
    return tl.where(signed < 0, -signed - 1, signed).to(tl.float32) * 4.6566127342e-10


@TileFunction
def rand(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate uniform random numbers in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@TileFunction
def rand4x(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate four tiles of uniform random numbers in [0, 1)."""
    a, b, c, d = randint4x(seed, offset, n_rounds)
    return uint_to_uniform_float(a), uint_to_uniform_float(b), uint_to_uniform_float(c), uint_to_uniform_float(d)


@TileFunction
def pair_uniform_to_normal(u1: Any, u2: Any) -> Any:
    """Transform two uniform tiles into two normally distributed ones (Box-Muller)."""
    radius = tl.sqrt(-2.0 * tl.log(tl.maximum(u1, 1.0e-7)))
    angle = 6.283185307179586 * u2
    return radius * tl.cos(angle), radius * tl.sin(angle)


@TileFunction
def randn(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate normally distributed random numbers."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))
    return first


@TileFunction
def randn4x(seed: Any, offset: Any, n_rounds: tl.constexpr = 10) -> Any:
    """Generate four tiles of normally distributed random numbers."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    first, second = pair_uniform_to_normal(a, b)
    third, fourth = pair_uniform_to_normal(c, d)
    return first, second, third, fourth


__all__ = [
    "histogram", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn",
    "randn4x", "softmax", "sort", "swizzle2d", "topk",
]  # fmt: skip
