"""Kernels as the scheduler writes them for GPUs, and some with features that only users use."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

ELEMENTS = parse("""
    @tg.kernel
    def elements(x: "*f32", a: "*f32", b: "*f32", c: "*f32", out: "*f32"):
        i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        x_ = tl.load(x + i)
        a_ = tl.load(a + i)
        b_ = tl.load(b + i)
        c_ = tl.load(c + i)
        tl.store(out + i, tl.maximum(x_ * a_ + b_, 0.0) * tl.sigmoid(x_) + tl.tanh(c_))
""")
HALF = parse("""
    @tg.kernel
    def half(x: "*bf16", y: "*f16", out: "*bf16"):
        i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(out + i, tl.exp(tl.load(x + i)) + tl.load(y + i).to(tl.bfloat16))
""")
ROWS = parse("""
    @tg.kernel
    def rows(x: "*f32", out: "*f32"):
        row = tl.program_id(0)
        k = tl.arange(0, 8192)
        x_ = tl.load(x + (row * 8192 + k))
        v = tl.exp(x_ - tl.max(x_, axis=0))
        sum = tl.sum(v, axis=0)
        tl.store(out + (row * 8192 + k), v * (1.0 / sum))
""")
SUMS = parse("""
    @tg.kernel
    def sums(x: "*f32", out: "*f32"):
        i = tl.program_id(0) * 128 + tl.arange(0, 128)
        acc = tl.zeros([128], tl.float32)
        for k in range(0, 256, 16):
            at = k + tl.arange(0, 16)
            x_ = tl.load(x + ((at * 1024)[:, None] + i[None, :]))
            acc += tl.sum(x_, axis=0)
        tl.store(out + i, acc)
""")
TURNED = parse("""
    @tg.kernel
    def turned(x: "*f32", out: "*f32"):
        i = tl.program_id(0) * 32 + tl.arange(0, 32)
        j = tl.program_id(1) * 32 + tl.arange(0, 32)
        x_ = tl.load(x + ((i * 1024)[None, :] + j[:, None]))
        tl.store(out + ((j * 1024)[:, None] + i[None, :]), x_)
""")
RUNNING = parse("""
    @tg.kernel
    def running(x: "*f32", out: "*f32"):
        row = tl.program_id(0)
        k = tl.arange(0, 4096)
        tl.store(out + (row * 4096 + k), tl.cumsum(tl.load(x + (row * 4096 + k)), axis=0))
""")
SCHEDULED = {
    "elements": ELEMENTS,
    "half": HALF,
    "rows": ROWS,
    "sums": SUMS,
    "turned": TURNED,
    "running": RUNNING,
}


class Run(NamedTuple):
    """A kernel with arguments for the interpreter."""

    kernel: Kernel
    arguments: list[Any]
    grid: tuple[int, ...]


def runs() -> list[Run]:
    """Yield the kernels above on one or two instances; atomics, gathers, and memory that is read and written."""
    rng = np.random.default_rng(3)

    def f32(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Run(ELEMENTS, [*f32(4, 2048), np.zeros(2048, np.float32)], (2,)),
        Run(ROWS, [f32(2, 8192), np.zeros((2, 8192), np.float32)], (2,)),
        Run(SUMS, [f32(256, 1024), np.zeros(1024, np.float32)], (8,)),
        Run(TURNED, [f32(1024, 1024), np.zeros((1024, 1024), np.float32)], (2, 1)),
        Run(RUNNING, [f32(2, 4096), np.zeros((2, 4096), np.float32)], (2,)),
        Run(HISTOGRAM, [rng.integers(0, 7, 200).astype(np.int32), np.zeros(7, np.int32), 200], (4,)),
        Run(EXCHANGED, [rng.integers(-5, 5, 8), rng.integers(-5, 5, 8), np.zeros(16, np.int64)], (1,)),
        Run(GATHERED, [f32(8, 16), rng.integers(0, 16, (8, 16)).astype(np.int32), np.zeros((8, 16), np.float32)], (1,)),
        Run(MIRRORED, [f32(256)], (1,)),
        Run(WINDOWS, [*f32(2, 40 * 64), np.zeros(4096, np.float32)], (1,)),
        Run(SHIFTED, [f32(512), np.zeros(600, np.float32)], (1,)),
        Run(
            GREATEST, [np.array([-1, 0, 3, np.nan, 7, np.nan, -np.inf, 7] * 8, np.float32), np.zeros(2, np.int32)], (1,)
        ),
    ]


HISTOGRAM = parse("""
    def histogram(x: "*i32", out: "*i32", n: "i32"):
        i = tl.program_id(0) * 64 + tl.arange(0, 64)
        v = tl.load(x + i, mask=i < n, other=0)
        tl.atomic_add(out + v, 1, mask=i < n)
""")
EXCHANGED = parse("""
    def exchanged_all(x: "*i64", out: "*i64", more: "*i64"):
        i = tl.arange(0, 8)
        v = tl.load(x + i)
        old = tl.atomic_xchg(out + i, v)
        tl.store(more + i, old * 2 + v)
        other = tl.atomic_cas(out + i, v, old)
        tl.store(more + 8 + i, other)
""")
GATHERED = parse("""
    def gathered(x: "*f32", index: "*i32", out: "*f32"):
        i = tl.arange(0, 8)
        j = tl.arange(0, 16)
        v = tl.load(x + i[:, None] * 16 + j[None, :])
        at = tl.load(index + i[:, None] * 16 + j[None, :])
        tl.store(out + i[:, None] * 16 + j[None, :], tl.gather(v, at, axis=1))
""")
MIRRORED = parse("""
    def mirrored(x: "*f32"):
        i = tl.arange(0, 256)
        v = tl.load(x + (255 - i))
        tl.store(x + i, v)
        tl.store(x + i, tl.load(x + (i + 1) % 256) + 1.0)
""")
WINDOWS = parse("""
    def windows(x: "*f32", y: "*f32", out: "*f32"):
        i = tl.arange(0, 256)
        j = tl.arange(0, 16)
        row = i // 2 % 2
        column = j[:, None] * 2 + (i % 2)[None, :]
        inside = (row < 1)[None, :] & (column < 30)
        x_ = tl.load(x + (i // 4 * 40 + row * 10)[None, :] + column, mask=inside)
        y_ = tl.load(y + i // 4)
        v = tl.where(inside, x_ + y_[None, :], 0.0)
        tl.store(out + (j * 256)[:, None] + i[None, :], v)
""")
SHIFTED = parse("""
    def shifted(x: "*f32", out: "*f32"):
        for k in range(0, 64, 1):
            i = tl.arange(0, 512)
            tl.store(out + k + i, tl.load(x + i) + k.to(tl.float32))
""")
GREATEST = parse("""
    def greatest(x: "*f32", out: "*i32"):
        i = tl.arange(0, 64)
        tl.store(out, tl.argmax(tl.load(x + i), axis=0))
        tl.store(out + 1, tl.argmin(tl.where(i > 7, tl.load(x + i), 7.0), axis=0))
""")


def together(texts: list[str]) -> str:
    """Join kernels into one source, which compiles faster than many."""
    plain = [text.replace('extern "C" ', "") for text in texts]
    return "\n".join(f"namespace kernel_{n} {{\n{text}\n}}" for n, text in enumerate(plain))
