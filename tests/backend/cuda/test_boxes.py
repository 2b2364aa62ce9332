"""Random operands of products: emulated tensor copies must load what the interpreter loads.

Lines may be shorter than the tile (which then wraps to the next ones), begin anywhere, overlap, and be masked by
counters of lines, columns, both or neither. Other schemes load what the copy engine cannot; all must be right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.backend.cuda import emulated
from tilegrad.backend.cuda.code.dot_warpgroup import WarpgroupLoop
from tilegrad.backend.cuda.code.lower import CudaLowering
from tilegrad.backend.reference.tile import run
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

pytestmark = pytest.mark.skipif(not emulated.has_compiler(), reason="no C++ compiler")
CASES, SEED = 48, 1
LENGTH = 1 << 19


class Draw:
    """A kernel with `tiles` tiles of a result, and k in one or two loops."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choice = self.random.choice
        self.dtype, self.depth, self.precision = choice(
            [("bf16", 64, "highest"), ("f16", 64, "highest"), ("f32", 32, "high")]
        )
        self.rows = choice([64, 128, 128, 192])
        self.columns = choice([64, 96, 128]) if self.rows > 128 else choice([16, 64, 80, 128, 192, 256])
        if self.rows > 128:
            self.columns = choice([64, 128])
        self.grid = (choice([1, 2, 3]), choice([1, 2]))
        self.turns = choice([2, 3, 4])
        self.outer = choice([0, 0, 2])
        self.k = self.depth * self.turns - choice([0, 0, 0, 8, 24])

    def kernel(self) -> Kernel:
        x, y = (
            self.operand("i2", self.rows, self.grid[1], "[:, None]", "[None, :]"),
            self.operand("i", self.columns, self.grid[0], "[None, :]", "[:, None]"),
        )
        loops = ["for o in range(2):"] if self.outer else []
        loops.append(f"for k in range(0, {self.depth * self.turns}, {self.depth}):")
        inner = [
            f"ks = k + tl.arange(0, {self.depth})",
            f"x_ = tl.load(x + {x[0]}{x[1]})",
            f"y_ = tl.load(y + {y[0]}{y[1]})",
            f'acc = tl.dot(x_, y_, acc, input_precision="{self.precision}")',
        ]
        lines = [
            f"i = tl.program_id(0) * {self.columns} + tl.arange(0, {self.columns})",
            f"i2 = tl.program_id(1) * {self.rows} + tl.arange(0, {self.rows})",
            f"acc = tl.zeros([{self.rows}, {self.columns}], tl.float32)",
            *["    " * n + line for n, line in enumerate(loops)],
            *["    " * len(loops) + line for line in inner],
            f"tl.store(out + ((i2 * {self.columns * self.grid[0]})[:, None] + i[None, :]), acc)",
        ]
        head = f'def contract(x: "*{self.dtype}", y: "*{self.dtype}", out: "*f32"):'
        return parse("\n".join([head, *[f"    {line}" for line in lines]]))

    def operand(self, position: str, extent: int, instances: int, across: str, along: str) -> tuple[str, str]:
        """Return the offsets and mask of an operand; `across` and `along` broadcast its position and k."""
        choice = self.random.choice
        swapped = choice([False, True])  # neighbours in memory are neighbours along the position
        if swapped and self.dtype == "f32" and position == "i":
            swapped = False
        line, column = ("ks", position) if swapped else (position, "ks")
        lines, columns = (along, across) if swapped else (across, along)
        width = extent * instances if swapped else self.depth * self.turns
        pitch = choice([width, width // 2, width + 64, width + 8, 64, 64, 128, 192, 32, max(8, width // 3 // 8 * 8)])
        offset = [f"({line} * {pitch})", f"{column}"]
        if self.outer and choice([True, False]):
            offset[choice([0, 1])] += f" + o * {choice([8, pitch, 2 * pitch, 3 * pitch, 128])}"
        start = choice([0, 0, 0, 64, 8, pitch, 4])
        text = f"(({offset[0]}){lines} + ({offset[1]}){columns}" + (f" + {start})" if start else ")")
        count = self.k if line == "ks" else extent * instances - choice([0, 5, 40])
        reach = self.k if column == "ks" else extent * instances - choice([0, 5, 40])
        masks = []
        if (line == "ks" and self.k % self.depth) or choice([False, True, True]):
            masks.append(f"({line} < {max(1, count)}){lines}")
        if (column == "ks" and self.k % self.depth) or choice([False, False, True]):
            masks.append(f"({column} < {max(1, reach)}){columns}")
        return text, f", mask={' & '.join(masks)}, other=0.0" if masks else ""


def arrays(kernel: Kernel, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    made = []
    for p in kernel.parameters:
        a = random.standard_normal(LENGTH).astype(np.float32)
        if p.name != "out" and p.dtype.name == "float32":
            a = ((a.view(np.uint32) + np.uint32(0x1000)) & ~np.uint32(0x1FFF)).view(np.float32)
        made.append(a.astype(p.dtype.numpy))
    return made


def drawn(seeds: Sequence[int]) -> list[tuple[Kernel, tuple[int, int]]]:
    draws = [Draw(seed) for seed in seeds]
    return [(draw.kernel(), draw.grid) for draw in draws]


def test_dot_operands_match_the_interpreter() -> None:
    found = drawn(range(SEED * CASES, (SEED + 1) * CASES))
    emulation = emulated.Emulated([kernel for kernel, _ in found], "sm_90a")
    boxes = [CudaLowering(kernel, "sm_90a").products.warpgroup for kernel, _ in found]
    assert sum(isinstance(plan, WarpgroupLoop) for plan in boxes) >= CASES // 2
    assert any(side.map.anywhere for plan in boxes if plan is not None for side in (plan.x, plan.y))
    wrong = []
    for n, (kernel, grid) in enumerate(found):
        given = arrays(kernel, n)
        wanted, got = [a.copy() for a in given], [a.copy() for a in given]
        run(kernel, wanted, grid)
        emulation.run(n, got, grid, n % 2 == 1)
        if not np.allclose(got[2], wanted[2], rtol=1e-3, atol=1e-2):
            wrong.append(str(kernel))
    assert not wrong, f"{len(wrong)} of {CASES}: {min(wrong, key=len)}"
