"""Attention: with the matrix of all scores in memory, and without it (flash attention)."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb
from examples.kernels.softmax import whole_row

climb = Climb(
    "attention",
    inputs=lambda heads, length, width: tuple(tg.randn(heads, length, width) for _ in range(3)),
    expected=lambda q, k, v: tg.nn.functional.scaled_dot_product_attention(q, k, v),
    size={"heads": 8, "length": 512, "width": 64},
    large={"heads": 64, "length": 2048, "width": 64},
    tiny=[{"heads": 1, "length": 5, "width": 16}, {"heads": 2, "length": 70, "width": 16}],
    bytes=lambda heads, length, width: 16 * heads * length * width,
    operations=lambda heads, length, width: 4 * heads * length * length * width,
)


@tg.kernel
def scores_of(q, k, scores, length, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(2)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = tl.program_id(1) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    left = tl.load(q + head * length * D + row[:, None] * D + d[None, :], mask=row[:, None] < length, other=0.0)
    right = tl.load(k + head * length * D + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
    to = scores + head * length * length + row[:, None] * length + at[None, :]
    tl.store(to, tl.dot(left, tl.trans(right)) * scale, mask=(row[:, None] < length) & (at[None, :] < length))


@tg.kernel
def weighted(p, v, out, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    total = tl.zeros([BM, D], tl.float32)
    for start in range(0, length, BN):
        at = start + tl.arange(0, BN)
        known = (row[:, None] < length) & (at[None, :] < length)
        left = tl.load(p + head * length * length + row[:, None] * length + at[None, :], mask=known, other=0.0)
        right = tl.load(v + head * length * D + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + head * length * D + row[:, None] * D + d[None, :], total, mask=row[:, None] < length)


@tg.kernel
def flash(q, k, v, out, length, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Compute scores of BM queries with BN keys at a time; rescale sums whenever the running maximum grows."""
    head = tl.program_id(1) * length * D
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    left = tl.load(q + head + row[:, None] * D + d[None, :], mask=row[:, None] < length, other=0.0)
    greatest = tl.full([BM], -float("inf"), tl.float32)
    weights = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    for start in range(0, length, BN):
        at = start + tl.arange(0, BN)
        inside = at[:, None] < length
        keys = tl.load(k + head + at[:, None] * D + d[None, :], mask=inside, other=0.0)
        values = tl.load(v + head + at[:, None] * D + d[None, :], mask=inside, other=0.0)
        scores = tl.where(at[None, :] < length, tl.dot(left, tl.trans(keys)) * scale, -float("inf"))
        new = tl.maximum(greatest, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        kept = tl.exp(greatest - new)
        total = tl.dot(p, values, total * kept[:, None])
        weights = weights * kept + tl.sum(p, 1)
        greatest = new
    tl.store(out + head + row[:, None] * D + d[None, :], total / weights[:, None], mask=row[:, None] < length)


def without_scores(q: tg.Tensor, k: tg.Tensor, v: tg.Tensor, bm: int, bn: int) -> tg.Tensor:
    heads, length, width = q.shape
    out = tg.empty_like(q)
    flash[(tg.cdiv(length, bm), heads)](q, k, v, out, length, width**-0.5, D=width, BM=bm, BN=bn)
    return out


@climb.step
def three_kernels(q: tg.Tensor, k: tg.Tensor, v: tg.Tensor) -> tg.Tensor:
    """three kernels: scores, softmax, weighted sum"""
    heads, length, width = q.shape
    scores, out = tg.empty(heads, length, length, device=q.device), tg.empty_like(q)
    p = tg.empty_like(scores)
    blocks = tg.cdiv(length, 64)
    scores_of[(blocks, blocks, heads)](q, k, scores, length, width**-0.5, D=width, BM=64, BN=64)
    whole_row[(heads * length,)](scores, p, length, BLOCK=tg.next_power_of_2(length))
    weighted[(blocks, heads)](p, v, out, length, D=width, BM=64, BN=64)
    return out


@climb.step
def small_blocks(q: tg.Tensor, k: tg.Tensor, v: tg.Tensor) -> tg.Tensor:
    """one kernel, 16 queries by 16 keys: no matrix of scores"""
    return without_scores(q, k, v, 16, 16)


@climb.step
def blocks(q: tg.Tensor, k: tg.Tensor, v: tg.Tensor) -> tg.Tensor:
    """64 queries by 64 keys"""
    return without_scores(q, k, v, 64, 64)


@climb.step(on="cpu")
def long_blocks(q: tg.Tensor, k: tg.Tensor, v: tg.Tensor) -> tg.Tensor:
    """64 queries by 256 keys: sums are corrected seldom"""
    return without_scores(q, k, v, 64, 256)


if __name__ == "__main__":
    climb.main()
