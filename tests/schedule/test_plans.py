"""Recorded schedules of common programs for three kinds of targets: read the diff when they change.

A bad schedule computes the same, only slower, so that no comparison of results shows it. Nothing runs here; the sizes
are those of real networks, where thresholds matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.verifier.net import not_watching
from tilegrad.backend.cpu.costs import BF16_VECTORS, MATRIX_UNIT, cpu_model
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.null.device import NullDevice
from tilegrad.ir.program import Launch, Program
from tilegrad.ir.size import Size
from tilegrad.runtime.device import register
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.group import Group
from tilegrad.schedule.matmul_tiles import Extents
from tilegrad.schedule.matmul_tiles import candidates as candidates_of
from tilegrad.schedule.options import candidates, default

TARGETS = {
    "cpu": cpu_model(2, 1 << 20, 48 << 10, 16, 32),
    "amx": cpu_model(8, 2 << 20, 48 << 10, 16, 32)._replace(matrix_unit=MATRIX_UNIT),
    "gpu": gpu_model(132, 227 << 10),
}
"""Two cores with AVX-512, eight with a matrix unit, and an H200."""
PRODUCTS = [(64, 784, 128), (512, 512, 512), (4096, 1024, 4096), (16, 65536, 16), (1, 4096, 4096), (33, 100, 7)]
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str, bool]] = {}


class Planned(NullDevice):
    """A machine that plans and runs nothing."""

    def __init__(self, name: str, target: TargetModel) -> None:
        super().__init__(name)
        self.__dict__["target"] = target


def case(
    name: str, fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32", gradient: bool = False
) -> None:
    CASES[name] = (fn, shapes, dtype, gradient)


def program_of(name: str, target: str) -> tuple[Program, list[str]]:
    """The program of a case, and what is chosen for each of its kernels."""
    fn, shapes, dtype, gradient = CASES[name]
    place = register(Planned(f"plan-{target}", TARGETS[target])).name
    given = [tg.zeros(*s, device=place, dtype=getattr(tg, dtype), requires_grad=gradient) for s in shapes]

    def both(*xs: tg.Tensor) -> Any:
        y = fn(*xs)
        return (y, tg.autograd.grad(y, xs, tg.ones_like(y))) if gradient else y

    jitted = tg.jit(both)
    with not_watching():  # kernels of such sizes are too large to be interpreted where they cannot be proved
        jitted(*given)
    (made,) = jitted.programs
    schedule = made.compiled.stages["order"].artifact
    return made.compiled.program, [_choices(g, TARGETS[target]) for g in schedule.groups]  # type: ignore[attr-defined]


def _choices(group: Group, target: TargetModel) -> str:
    """The usual choice, and how much others that may be tried differ from it."""
    if group.kind == "opaque":
        return f"opaque {group.stored[0].op}"
    found = candidates(group, target)
    tried = sum(n * sum(size for _, size in choice.sizes) for n, choice in enumerate(found))
    stored = " ".join(f"{x.op}{list(x.shape)}" for x in group.stored)
    return f"{group.kind} {default(group, target)} of {len(found)} ({tried}): {stored}"


def _launches(program: Program) -> str:
    steps = [s for s in program.steps if isinstance(s, Launch)]
    instances = " ".join(str(prod(t.count({}) for t in s.grid)) for s in steps)
    loops = sum(str(s.kernel).count(" for ") for s in steps)
    work = sum(s.work * prod(t.count({}) for t in s.grid) for s in steps)
    return f"instances {instances}; {loops} loops; {work:.3g} operations; {program.arena} bytes"


def _weighted(x: tg.Tensor, sums: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
    return sums, (x * sums[:, None, None]).sum((1, 2))


def _turned(x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor, tg.Tensor]:
    turned = x.T.contiguous()
    return turned, turned.sum(0), turned.sum(1)


def _places(x: tg.Tensor) -> tg.Tensor:
    return (x.reshape(len(x), -1)[:, 0] * 7).long()


@pytest.mark.parametrize("target", TARGETS)
def test_plans(golden: Callable[[object], None], target: str) -> None:
    lines = []
    for name in CASES:
        program, choices = program_of(name, target)
        lines += [f"{name}: {_launches(program)}", *(f"  {line}" for line in choices)]
    golden("\n".join(lines))


for n, shape in enumerate([(7,), (300, 1000), (4096, 4096), (64, 3, 224, 224)]):
    case(f"map {shape}", lambda x: x.exp() * 2.0, shape)
    if n:
        case(f"turned {shape}", lambda x: (x + 1.0).transpose(-1, -2).contiguous(), shape)
case("turned in the middle", lambda x: x.permute(0, 2, 1, 3).contiguous(), (8, 512, 12, 64))
case("channels last", lambda x: x.permute(0, 2, 3, 1).contiguous(), (16, 64, 56, 56))
case("every second", lambda x: x[:, ::2] * 3.0, (512, 1024))
case("with a row and a column", lambda x, y, z: x * y + z, (512, 768), (768,), (512, 1))
for shape in [(50,), (100000,), (16, 50257), (4096, 512), (131072, 16), (64, 32, 28, 28)]:
    case(f"sum {shape}", lambda x: x.sum(), shape)
    case(f"softmax {shape}", lambda x: x.softmax(-1), shape)
    if len(shape) > 1:
        case(f"sum down {shape}", lambda x: x.sum(0), shape)
        case(f"sum along {shape}", lambda x: x.exp().sum(-1), shape)
case("sums around", lambda x: x.sum((0, 2, 3)), (64, 32, 28, 28))
case("sums in the middle", lambda x: x.sum(1), (64, 197, 768))
case("sums of pairs", lambda x: (x.view(1024, 64, 32) * 2.0).sum((1, 2)), (1024, 2048))
case("cumulative", lambda x: x.cumsum(1), (512, 1000))
case("cumulative down", lambda x: x.cumsum(0), (512, 1000))
case("the place of the largest", lambda x: x.argmax(-1), (512, 1000))
case("layer norm", lambda x, w, b: F.layer_norm(x, (768,), w, b), (3152, 768), (768,), (768,), gradient=True)
case(
    "layer norm of odd rows", lambda x, w, b: F.layer_norm(x, (768,), w, b), (3163, 768), (768,), (768,), gradient=True
)
case("batch norm", lambda x: F.batch_norm(x, None, None, training=True), (32, 64, 56, 56), gradient=True)
case("pooled", lambda x: F.max_pool2d(x, 3, 2, 1), (32, 64, 112, 112), gradient=True)
case("averaged", lambda x: F.avg_pool2d(x, 2), (32, 64, 56, 56), gradient=True)
for dtype in ("float32", "bfloat16"):
    for m, k, n in [
        (64, 784, 128),
        (512, 512, 512),
        (4096, 1024, 4096),
        (16, 65536, 16),
        (1, 4096, 4096),
        (33, 100, 7),
    ]:
        case(f"{dtype} product {m} {k} {n}", lambda x, y: x @ y, (m, k), (k, n), dtype=dtype)
    case(f"{dtype} products", lambda x, y: (x @ y).relu(), (96, 197, 64), (96, 64, 197), dtype=dtype)
    case(f"{dtype} layer", lambda x, w, b: F.gelu(F.linear(x, w, b)), (128, 512), (1024, 512), (1024,), dtype=dtype)
    case(
        f"{dtype} layer and gradients",
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        (128, 512),
        (384, 512),
        (384,),
        dtype=dtype,
        gradient=True,
    )
    for batch, channels, side, outputs, taps, stride, padding in [
        (1, 3, 224, 64, 7, 2, 3),
        (8, 64, 56, 64, 3, 1, 1),
        (32, 256, 14, 512, 1, 2, 0),
        (4, 512, 7, 512, 3, 1, 1),
    ]:
        case(
            f"{dtype} convolution {channels} {side} {outputs} {taps} {stride}",
            lambda x, w, stride=stride, padding=padding: F.conv2d(x, w, None, stride, padding),
            (batch, channels, side, side),
            (outputs, channels, taps, taps),
            dtype=dtype,
            gradient=True,
        )
case("convolution of lines", F.conv1d, (8, 64, 1024), (64, 64, 3), dtype="bfloat16", gradient=True)
case("attention", lambda q, k, v: (q @ k.mT * 0.125).softmax(-1) @ v, *[(8, 12, 197, 64)] * 3, gradient=True)
case("rows of a table", lambda t, w: t[tg.arange(512, device=t.device) % 100] @ w, (1000, 64), (64, 32), gradient=True)
case("renewed", lambda w, x, y: w - 0.1 * (x.T @ y), (4096, 6400), (32, 4096), (32, 6400))
case("a loss over rows", lambda x, y: (x.softmax(-1) * y).sum(), (16, 1000), (16, 1000))
case("sums of sums of short rows", lambda x: _weighted(x, x.exp().sum((1, 2))), (40000, 4, 32))
case("sums over short axes", lambda x, y: tg.einsum("kim,jkm->ij", x, y), (64, 256, 16), (128, 64, 16))
case("by the number of the column", lambda x: x * tg.arange(1000, device=x.device), (300, 1000))
case("by the number of the row", lambda x: x * tg.arange(300, device=x.device)[:, None], (300, 1000))
for rows, width in [(100, 1), (100, 64), (50000, 64)]:
    case(
        f"added to {rows} rows of {width}", lambda x, y: x.index_add(0, _places(y), y), (rows, width), (1 << 16, width)
    )
case("counted", lambda x, y: x.index_add(0, _places(y), tg.ones(1 << 16, device=x.device)), (300,), (1 << 16,))
for shape in [(1 << 20,), (64, 5000)]:
    case(f"running sums {shape}", lambda x: x.cumsum(-1), shape)
    case(f"sorted {shape}", lambda x: x.sort(-1).values, shape)
    case(f"largest {shape}", lambda x: x.topk(5).values, shape)
    case(f"place of the largest {shape}", lambda x: x.argmax(-1), shape)
case("a row with each number twice", lambda x, y: y + x.repeat_interleave(2), (500,), (300, 1000))
case("turned and summed", lambda x: _turned(x[:, 1:] * 2.0), (1024, 1025))
case("renewed by a turned sum", lambda w, x, y: w - (x.T @ y).T * 0.1, (16, 24), (65536, 24), (65536, 16))
case("normalised columns", lambda x: (x.exp() / x.exp().sum(0), x.exp().sum(0).log()), (512, 512))


def drawn(count: int) -> list[Extents]:
    """Products of all kinds, of sizes around those at which decisions change."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        bits = draw.choice((32, 32, 16, 16, 8, 64))
        small = bits < 32
        sums = draw.choice((1, 1, 1, 2, 3))
        m, n, k = (draw.choice((16, 32, 64, 100, 128, 192, 256, 384, 512, 1000, 2048, 4096, 7)) for _ in "mnk")
        parts = 1 if small else draw.choice((0, 0, 2, 3))
        across = draw.choice((None, (False, False), (False, True), (True, False), (True, True))) if small else None
        found.append(
            Extents(
                *(m, n, k, draw.choice((1, 1, 1, 12, 96)), bits, sums, parts, (0, 1, 3, 6)[parts], across),
                outer_iterations=draw.choice((1, 1, 1, 9)),
                nested=draw.random() < 0.2,
                epilogue_bytes=draw.choice((0, 0, 4, 8, 16)),
                computed=draw.random() < 0.2,
                gaps=draw.random() < 0.2,
                room=draw.choice((0, 0, 0, 0, 1 << 14)),
            )
        )
    return found


@pytest.mark.parametrize("target", [*TARGETS, "pairs", "low"])
def test_tiles_of_products(golden: Callable[[object], None], target: str) -> None:
    low = TARGETS["gpu"].matmul._replace(max_rows=128)
    cut = (
        TARGETS
        | {"pairs": TARGETS["cpu"]._replace(matrix_unit=BF16_VECTORS), "low": TARGETS["gpu"]._replace(matmul=low)}
    )[target]
    lines = []
    some = drawn(250)
    some += [x._replace(**{axis: Size.named("s")}) for x in some[:12] for axis in "mnk"]
    for extents in some:
        found = candidates_of(extents, cut)
        sizes = " ".join(f"{c.size('m')}x{c.size('n')}x{c.size('k')}" for c in found[:5])
        lines.append(f"{','.join(str(int(x) if isinstance(x, bool) else x) for x in extents)}: {sizes}")
    golden("\n".join(lines))
