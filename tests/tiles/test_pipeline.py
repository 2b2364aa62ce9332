"""Every pass over tile kernels is a stage that prints, and has an example of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.tiles.pipeline import PASSES, TilePass, run_passes, show_stages


@tg.kernel
def masked_matmul(x, y, out, n, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    left = x + rows * n + columns
    acc = tl.zeros((SIZE, SIZE), tl.float32)
    for k in range(0, n, SIZE):
        acc += tl.dot(tl.load(left, mask=columns + k < n, other=0.0), tl.load(y + (rows + k) * SIZE + columns))
        left += SIZE
    total = tl.sum(acc, axis=1)
    tl.store(out + rows * SIZE + columns, acc - total[:, None] / SIZE, mask=columns < n)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_stages(target: str, golden: Callable[[object], None]) -> None:
    x = tg.ones(16, 16)
    masked_matmul[(1,)](x, x, tg.empty(16, 16), 16, 16)
    kernel = masked_matmul.latest().ir.replaced(origin="")
    stages = show_stages([(kernel, True)], "")
    stages |= show_stages([(run_passes(kernel, "", users=True), True)], target)
    golden("\n\n".join(f"--- {name} ---\n{text}" for name, text in stages.items()))


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.name)
def test_each_pass_has_a_file_and_an_example(step: TilePass) -> None:
    module = import_module(f"tilegrad.tiles.{step.name}")
    assert step.run is getattr(module, step.name)
    assert module.__doc__ is not None
    assert "->" in module.__doc__ or ">>>" in (step.run.__doc__ or "")


def test_explain_prints_the_stages_of_a_device() -> None:
    explained = tg.explain(lambda x: (x * 2).sum(), tg.ones(4))
    assert explained["specialise_borders"] == "(unchanged)"
