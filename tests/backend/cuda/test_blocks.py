"""Compile blocks of common networks with all gradients to CUDA C++, at even and odd extents; all of them with EVERY=1
(ten minutes).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

import tilegrad as tg
from tests.target_models import GPU, scheduled_for
from tilegrad import Tensor, nn
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.config import changed
from tilegrad.ir.program import Launch
from tilegrad.nn import functional as F


class Block(nn.Module):
    """A function of (batch, tokens, channels) and layers, created on demand."""

    def __init__(self, tokens: int, channels: int, hidden: int) -> None:
        super().__init__()
        t, c, h = tokens, channels, hidden
        self.sizes = t, c, h
        self.norm, self.place = nn.LayerNorm(c), nn.Parameter(tg.randn(1, t, c))
        self.mix, self.back = nn.Linear(t, h), nn.Linear(h, t)
        self.up, self.gate, self.down = nn.Linear(c, h), nn.Linear(c, h), nn.Linear(h, c)
        self.wide, self.narrow = nn.Conv2d(c, h, 1), nn.Conv2d(h, c, 1)
        self.depth, self.around = nn.Conv2d(h, h, 3, padding=1, groups=h), nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.many, self.few = nn.BatchNorm2d(h), nn.BatchNorm2d(c)
        self.heads = nn.Linear(c, 3 * c)

    def image(self, x: Tensor) -> Tensor:
        side = int(self.sizes[0] ** 0.5)
        return x.transpose(1, 2)[:, :, : side * side].reshape(len(x), self.sizes[1], side, side)


def attention(m: Block, x: Tensor) -> Tensor:
    b, t, c = x.shape
    heads = 4 if c % 4 == 0 else 1
    q, k, v = m.heads(m.norm(x)).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4).unbind(0)
    scores = (q @ k.transpose(-1, -2) / (c // heads) ** 0.5).softmax(-1)
    return x + (scores @ v).transpose(1, 2).reshape(b, t, c)


def linear_attention(m: Block, x: Tensor) -> Tensor:
    q, k, v = F.elu(m.up(x)) + 1, F.elu(m.gate(x)) + 1, m.up(x)
    return (q @ (k.transpose(1, 2) @ v)) / (q @ k.sum(1)[:, :, None] + 1e-6)


def squeezed(m: Block, x: Tensor) -> Tensor:
    y = F.silu(m.few(m.image(x)))
    return y * tg.sigmoid(m.narrow(F.relu(m.wide(y.mean((2, 3), keepdim=True)))))


BLOCKS: dict[str, Callable[[Block, Tensor], Tensor]] = {
    "mixer of tokens": lambda m, x: x + m.back(F.gelu(m.mix(m.norm(x).transpose(1, 2)))).transpose(1, 2),
    "mixer of channels": lambda m, x: x + m.down(F.relu(m.up(m.norm(x))) * 0.5),
    "relu of a convolution times a number": lambda m, x: F.relu(m.wide(m.image(x))) * 3.0,
    "its mean": lambda m, x: (F.relu(m.wide(m.image(x))) * 3.0).mean((2, 3)),
    "convnext": lambda m, x: m.down(F.gelu(m.up(m.norm(m.around(m.image(x)).permute(0, 2, 3, 1))))),
    "squeeze and excite": squeezed,
    "head": lambda m, x: m.up(m.norm(x + m.place).mean(1)),
    "head of a class token": lambda m, x: m.up(m.norm(x + m.place)[:, 0]),
    "ghost": lambda m, x: tg.cat([y := F.relu(m.many(m.wide(m.image(x)))), F.relu(m.depth(y))], 1),
    "inverted": lambda m, x: m.few(m.narrow(F.hardswish(m.depth(F.relu6(m.many(m.wide(m.image(x)))))))),
    "attention": attention,
    "linear attention": linear_attention,
    "gated": lambda m, x: x + m.down(F.silu(m.up(m.norm(x))) * m.gate(m.norm(x))),
}
SIZES = [(4, 16, 16, 16), (64, 49, 64, 64), (3, 37, 53, 29), (32, 32, 32, 32), (8, 196, 128, 256), (16, 64, 64, 128)]
"""Batch, tokens, channels, hidden."""
PRECISIONS = ["float32", "high", "bfloat16"]
ALL = list(itertools.product(BLOCKS, SIZES, PRECISIONS))
CHOSEN = ALL if os.environ.get("EVERY") else ALL[2::37]


@pytest.mark.parametrize(("block", "sizes", "precision"), CHOSEN)
def test_block(block: str, sizes: tuple[int, int, int, int], precision: str) -> None:
    batch, *rest = sizes
    module, x = Block(*rest), tg.randn(batch, *rest[:2])
    x.requires_grad = True

    def step(x: Tensor) -> tuple[Tensor | None, ...]:
        with tg.autocast("cpu", dtype=tg.bfloat16, enabled=precision == "bfloat16"):
            y = BLOCKS[block](module, x)
        loss = (y.float() * 0.7).square().mean()
        return (loss, *tg.autograd.grad(loss, (x, *module.parameters()), allow_unused=True))

    before = tg.get_float32_matmul_precision()
    tg.set_float32_matmul_precision("high" if precision == "high" else "highest")
    try:
        with scheduled_for(GPU), changed(cache="off"):
            program = tg.jit(step).prepared(x).program.compiled.program
    finally:
        tg.set_float32_matmul_precision(before)
    kernels = [s.kernel for s in program.steps if isinstance(s, Launch)]
    assert kernels
    for kernel in kernels:
        assert lower(kernel, "sm_90a").text
