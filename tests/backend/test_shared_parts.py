"""Shared subexpressions are visited once: compile time grows with the size of expressions, not with their paths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.target_models import GPU, scheduled_for
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.config import changed
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse
from tilegrad.runtime.target_model import TargetModel

DEPTH = 40
"""Each value is used three times by the next: 3 ** 40 ways."""
MAX_CALLS = 8_000_000


@contextmanager
def few_calls(most: int) -> Iterator[None]:
    """Fails as soon as more Python functions were called within the block."""
    count = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"
        assert count <= most, f"more than {most:,} calls"

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def deep(x: tg.Tensor) -> tg.Tensor:
    for _ in range(DEPTH):
        x = x * x + x
    return x


def pooled(x: tg.Tensor) -> tuple[tg.Tensor, ...]:
    """Windows that overlap, and their gradient: each element is looked for in each of them."""
    y = F.max_pool2d(x, [4, 3], [1, 1], [2, 1], ceil_mode=True)
    return (y, *tg.autograd.grad(y.square().sum(), (x,)))


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]] = {
    "elements": (deep, [(64, 512)], "float32"),
    "sum of bfloat16": (lambda x: deep(x.float()).sum(1), [(64, 512)], "bfloat16"),
    "sum across": (lambda x: deep(x).sum(0), [(512, 64)], "float32"),
    "turned": (lambda x: deep(x).T.contiguous(), [(512, 64)], "float32"),
    "product": (lambda x, w: deep(x) @ w, [(64, 512), (512, 64)], "float32"),
    "turned product": (lambda x, w: deep(x).T @ w, [(512, 64), (512, 64)], "float32"),
    "gradient": (lambda x: tg.autograd.grad(deep(x).sum(), (x,)), [(64, 512)], "float32"),
    "pool": (pooled, [(5, 1, 6, 10)], "float32"),
}


@pytest.mark.parametrize("target", [TargetModel(), GPU], ids=["few", "many"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_shared_is_looked_at_once(name: str, target: TargetModel) -> None:
    program, shapes, dtype = PROGRAMS[name]
    given = [tg.zeros(*shape).to(getattr(tg, dtype)) for shape in shapes]
    given[0].requires_grad = name in ("gradient", "pool")
    with scheduled_for(target), changed(cache="off"), few_calls(MAX_CALLS):
        made = tg.jit(program).prepared(*given)
        if target is GPU:
            for step in made.program.compiled.program.steps:
                assert isinstance(step, Launch)
                assert lower(step.kernel, "sm_90a").text


def doubled(name: str, levels: int = DEPTH) -> list[str]:
    """Lines after which a position with another name is that of the first, though twice 40 ways lead there."""
    lines = []
    for n in range(levels):
        before = f"{name}{n}" if n else name
        lines += [f"{name}{n + 1} = ({before} + {before}) // 2"]
    return lines


def kernel_of(loop: list[str], pointer: str, mask: str) -> Kernel:
    """A product whose first operand is where `pointer` says, where `mask` does."""
    body = [
        "r = tl.arange(0, 64)",
        "k = tl.arange(0, 64)",
        "c = tl.arange(0, 128)",
        *doubled("r"),
        "total = tl.zeros((64, 128), tl.float32)",
        "for s in range(0, 256, 64):",
        *[f"    {line}" for line in loop],
        f"    a = tl.load(x + ({pointer}), mask={mask}, other=0.0)",
        "    b = tl.load(y + ((s + k)[:, None] * 128 + c[None, :]))",
        "    total += tl.dot(a, b)",
        "tl.store(z + (r40[:, None] * 128 + c[None, :]), total)",
    ]
    head = 'def product(x: "*bf16", y: "*bf16", z: "*f32"):'
    return parse("\n".join([head, *[f"    {line}" for line in body]]))


ALL = "(r[:, None] < 64) & (k[None, :] < 64)"
CHAINS: dict[str, Kernel] = {
    "lines": kernel_of([], "r40[:, None] * 256 + (s + k)[None, :]", ALL),
    "columns": kernel_of(
        ["k0 = s + k", *(line.replace("k =", "k0 =") for line in doubled("k0"))],
        "r[:, None] * 256 + k040[None, :]",
        ALL,
    ),
    "sums": kernel_of(
        ["a0 = r[:, None] * 0 + (s + k)[None, :]", *[f"a{n + 1} = a{n} + a{n}" for n in range(DEPTH)]],
        "r[:, None] * 256 + (s + k)[None, :] + a40 % 2",
        ALL,
    ),
    "masks": kernel_of(
        ["m0 = r[:, None] < 60", *[f"m{n + 1} = m{n} & m{n}" for n in range(DEPTH)]],
        "r[:, None] * 256 + (s + k)[None, :]",
        "m40 & (k[None, :] < 64)",
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_positions_are_looked_at_once(chain: str, architecture: str) -> None:
    with few_calls(MAX_CALLS // 10):
        assert lower(CHAINS[chain], architecture).text
