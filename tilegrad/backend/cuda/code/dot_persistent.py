"""Blocks that stay (sm_90a): as many as the GPU holds at once, each of which takes tile after tile of a product.

The warp that copies runs ahead: while the others round and store a tile, it brings operands of the next one. Stages
and their phases go on from tile to tile. Results go to memory straight from registers (`dot_exchange.py`): there is no
barrier for those who multiply, and all of shared memory is for operands.

    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)

is right for any number of blocks; who launches takes as many as there is room for (`Source.resident`). A kernel that
needs shared memory or a barrier after its loop, for whatever else it does, has a block for each tile.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .dot_warpgroup import Grouped, beginning

if TYPE_CHECKING:
    from .dot import Products
    from .lower import Lowering

HEAD = "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {"


def stays(plan: Grouped) -> bool:
    """Whether blocks are to stay: those of the largest tiles, of which there is one at a time on a multiprocessor."""
    return plan.blocks == 1 and not plan.tiling.swapped and not plan.by_registers


def write_staying(
    products: Products, low: Lowering, plan: Grouped, place: str, sums: str, roles: tuple[list[str], list[str]]
) -> None:
    """Writes all up to what is done with the sums of a tile, which then is written into the loop over tiles."""
    out = low.out
    before, out.lines = out.lines, []
    for line in (*beginning(plan, place), "const int tiles = grid_0 * grid_1 * grid_2;"):
        out.add(line)
    copying, multiplying = roles
    _copying_role(products, low, plan, [*_numbers(before, "\n".join(copying)), *copying])
    for line in (plan.limits[1], "int stage = 0, phase = 0;", "const int group = threadIdx.x / 128;", HEAD):
        out.add(line)
    out.depth += 1
    for line in products.ids("tile"):
        out.add(line)
    out.lines += [f"    {line}" for line in before]
    last = "if (before >= 0 && threadIdx.x % 128 == 0) arrive(empty + before * 8);"
    head = ("int before = -1;", f"settle({sums});")
    for line in (*head, *multiplying, f"finish_products({sums});", last):
        out.add(line)
    products.parted = len(out.lines)


def _copying_role(products: Products, low: Lowering, plan: Grouped, copying: list[str]) -> None:
    out = low.out
    with out.block(f"if (threadIdx.x >= {plan.tiling.threads})"):
        out.add("// These warps copy.")
        out.add(plan.limits[0])
        with out.block(f"if (threadIdx.x == {plan.tiling.threads})"):
            out.add("int stage = 0, phase = 0;")
            with out.block(HEAD.removesuffix(" {")):
                for line in (*products.ids("tile"), *copying):
                    out.add(line)
        out.add("return;")


def _numbers(lines: list[str], text: str) -> list[str]:
    """Of the lines before a loop, those that give a name to a number which is needed."""
    found: list[str] = []
    for line in reversed(lines):
        name = re.match(r"    (?:const )?\w+ (\w+) = ", line)
        if name and re.search(rf"\b{name[1]}\b", text):
            found.insert(0, line.strip())
            text += line
    return found
