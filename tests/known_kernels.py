"""Kernels that everybody writes, each with arguments and with what numpy says they compute."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse


class Known(NamedTuple):
    kernel: Kernel
    arguments: list[Any]
    grid: tuple[int, ...]
    expected: dict[str, Any]
    """Expected contents by name of the parameter."""


def vector_add(rng: np.random.Generator) -> Known:
    kernel = parse("""
        @tg.kernel
        def vector_add(x: "*f32", y: "*f32", out: "*f32", n: "i64"):
            offsets = tl.program_id(0) * 128 + tl.arange(0, 128)
            mask = offsets < n
            tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)
    """)
    x, y = rng.standard_normal((2, 1000)).astype(np.float32)
    return Known(kernel, [x, y, np.zeros_like(x), 1000], (8,), {"out": x + y})


def softmax(rng: np.random.Generator) -> Known:
    kernel = parse("""
        @tg.kernel
        def softmax(x: "*f32", out: "*f32", n: "i64"):
            row = tl.program_id(0) * n
            column = tl.arange(0, 64)
            mask = column < n
            v = tl.load(x + row + column, mask=mask, other=-float("inf"))
            e = tl.exp(v - tl.max(v, axis=0))
            tl.store(out + row + column, e / tl.sum(e, axis=0), mask=mask)
    """)
    x = rng.standard_normal((5, 50)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    return Known(kernel, [x, np.zeros_like(x), 50], (5,), {"out": e / e.sum(1, keepdims=True)})


def layer_norm(rng: np.random.Generator) -> Known:
    """A row longer than its tile: three loops over it."""
    kernel = parse("""
        @tg.kernel
        def layer_norm(x: "*f32", weight: "*f32", bias: "*f32", out: "*f32", n: "i32", eps: "f32"):
            row = tl.program_id(0) * n
            total = tl.zeros([16], tl.float32)
            for start in range(0, n, 16):
                i = start + tl.arange(0, 16)
                total += tl.load(x + row + i, mask=i < n, other=0.0)
            mean = tl.sum(total, axis=0) / n.to(tl.float32)
            squares = tl.zeros([16], tl.float32)
            for start in range(0, n, 16):
                i = start + tl.arange(0, 16)
                d = tl.where(i < n, tl.load(x + row + i, mask=i < n, other=0.0) - mean, 0.0)
                squares += d * d
            scale = tl.rsqrt(tl.sum(squares, axis=0) / n.to(tl.float32) + eps)
            for start in range(0, n, 16):
                i = start + tl.arange(0, 16)
                v = (tl.load(x + row + i, mask=i < n, other=0.0) - mean) * scale
                w = tl.load(weight + i, mask=i < n, other=0.0)
                tl.store(out + row + i, v * w + tl.load(bias + i, mask=i < n, other=0.0), mask=i < n)
    """)
    x, weight, bias = (rng.standard_normal(s).astype(np.float32) for s in ((3, 77), 77, 77))
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return Known(kernel, [x, weight, bias, np.zeros_like(x), 77, 1e-5], (3,), {"out": normal * weight + bias})


def matmul(rng: np.random.Generator) -> Known:
    """No extent is a multiple of its tile."""
    kernel = parse("""
        @tg.kernel
        def matmul(a: "*f32", b: "*f32", c: "*f32", m: "i64", n: "i64", k: "i64"):
            i = tl.program_id(0) * 16 + tl.arange(0, 16)
            j = tl.program_id(1) * 8 + tl.arange(0, 8)
            acc = tl.zeros([16, 8], tl.float32)
            for start in range(0, k, 4):
                l = start + tl.arange(0, 4)
                x = tl.load(a + i[:, None] * k + l[None, :], mask=(i < m)[:, None] & (l < k)[None, :], other=0.0)
                y = tl.load(b + l[:, None] * n + j[None, :], mask=(l < k)[:, None] & (j < n)[None, :], other=0.0)
                acc = tl.dot(x, y, acc)
            tl.store(c + i[:, None] * n + j[None, :], acc, mask=(i < m)[:, None] & (j < n)[None, :])
    """)
    a, b = rng.standard_normal((37, 23)).astype(np.float32), rng.standard_normal((23, 19)).astype(np.float32)
    return Known(kernel, [a, b, np.zeros((37, 19), np.float32), 37, 19, 23], (3, 3), {"c": a @ b})


def matmul_half(rng: np.random.Generator) -> Known:
    """float16 operands, accumulated in float32, written as float16."""
    kernel = parse("""
        @tg.kernel
        def matmul_half(a: "*f16", b: "*f16", c: "*f16"):
            i = tl.arange(0, 8)
            x = tl.load(a + i[:, None] * 8 + i[None, :])
            y = tl.load(b + i[:, None] * 8 + i[None, :])
            tl.store(c + i[:, None] * 8 + i[None, :], tl.dot(x, tl.trans(y)).to(tl.float16))
    """)
    a, b = rng.standard_normal((2, 8, 8)).astype(np.float16)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16)
    return Known(kernel, [a, b, np.zeros((8, 8), np.float16)], (1,), {"c": expected})


def cumsum(rng: np.random.Generator) -> Known:
    """Tile after tile, with what came before carried on."""
    kernel = parse("""
        @tg.kernel
        def cumsum(x: "*i32", out: "*i32", n: "i32"):
            before = 0
            for start in range(0, n, 8):
                i = start + tl.arange(0, 8)
                v = tl.load(x + i, mask=i < n, other=0)
                tl.store(out + i, tl.cumsum(v, axis=0) + before, mask=i < n)
                before += tl.sum(v, axis=0)
    """)
    x = rng.integers(-9, 9, 29).astype(np.int32)
    return Known(kernel, [x, np.zeros_like(x), 29], (1,), {"out": np.cumsum(x, dtype=np.int32)})


def transpose(rng: np.random.Generator) -> Known:
    kernel = parse("""
        @tg.kernel
        def transpose(x: "*u8", out: "*u8", m: "i64", n: "i64"):
            i = tl.program_id(0) * 8 + tl.arange(0, 8)
            j = tl.program_id(1) * 8 + tl.arange(0, 8)
            inside = (i < m)[:, None] & (j < n)[None, :]
            v = tl.load(x + i[:, None] * n + j[None, :], mask=inside, other=0)
            tl.store(out + j[:, None] * m + i[None, :], tl.trans(v), mask=tl.trans(inside))
    """)
    x = rng.integers(0, 255, (13, 21)).astype(np.uint8)
    return Known(kernel, [x, np.zeros((21, 13), np.uint8), 13, 21], (2, 3), {"out": np.ascontiguousarray(x.T)})


def gather(rng: np.random.Generator) -> Known:
    """Negative indices count from the end; those that are still outside give 0."""
    kernel = parse("""
        @tg.kernel
        def gather(x: "*f64", index: "*i64", out: "*f64", n: "i64", extent: "i64"):
            i = tl.program_id(0) * 16 + tl.arange(0, 16)
            at = tl.load(index + i, mask=i < n, other=0)
            at = tl.where(at < 0, at + extent, at)
            tl.store(out + i, tl.load(x + at, mask=(at >= 0) & (at < extent), other=0.0), mask=i < n)
    """)
    x, index = rng.standard_normal(10), rng.integers(-14, 14, 40)
    at = np.where(index < 0, index + 10, index)
    expected = np.where((at >= 0) & (at < 10), x[np.clip(at, 0, 9)], 0.0)
    return Known(kernel, [x, index, np.zeros(40), 40, 10], (3,), {"out": expected})


def argmax(rng: np.random.Generator) -> Known:
    kernel = parse("""
        @tg.kernel
        def argmax(x: "*f32", out: "*i64", n: "i64"):
            i = tl.arange(0, 4)
            j = tl.arange(0, 32)
            v = tl.load(x + i[:, None] * n + j[None, :], mask=(j < n)[None, :], other=-float("inf"))
            tl.store(out + i, tl.argmax(v, axis=1).to(tl.int64))
    """)
    x = rng.integers(0, 9, (4, 20)).astype(np.float32)
    return Known(kernel, [x, np.zeros(4, np.int64), 20], (1,), {"out": x.argmax(1)})


def collatz(rng: np.random.Generator) -> Known:
    """A loop of unknown length and a branch, on scalars."""
    kernel = parse("""
        @tg.kernel
        def collatz(x: "*i32", out: "*i32"):
            p = tl.program_id(0)
            v = tl.load(x + p)
            steps = 0
            while v > 1:
                if v % 2 == 0:
                    v = v // 2
                else:
                    v = 3 * v + 1
                steps += 1
            tl.store(out + p, steps)
    """)
    x = np.arange(1, 9, dtype=np.int32)
    return Known(kernel, [x, np.zeros(8, np.int32)], (8,), {"out": np.array([0, 1, 7, 2, 5, 8, 16, 3], np.int32)})


KNOWN = (vector_add, softmax, layer_norm, matmul, matmul_half, cumsum, transpose, gather, argmax, collatz)
