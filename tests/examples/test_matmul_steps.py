"""The steps of the matrix product load what their formulas say; a tuner keeps tiles that fit, and finds good ones."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from examples.kernels import matmul
from tests.checklist import checklist
from tests.source import ROOT
from tilegrad.backend.cpu.target import Target
from tilegrad.errors import KernelError
from tilegrad.language import tuning

N = 96


def loads(launch: Callable[[], None], kernel: Any) -> int:
    """The numbers that a launch loads."""
    launch()
    return int(kernel.report().loaded) // 4


@checklist(168)
@pytest.mark.parametrize(("v1", "v2"), [(1, 1), (2, 8), (6, 16), (12, 32)])
def test_register_tiles_load_what_the_formula_says(v1: int, v2: int) -> None:
    x, y, out = tg.randn(N, N), tg.randn(N, N), tg.empty(N, N)
    grid = (N // v2, N // v1)
    found = loads(lambda: matmul.register_tiles[grid](x, y, out, N, K=N, V1=v1, V2=v2), matmul.register_tiles)
    assert found == N**3 // v2 + N**3 // v1
    assert tg.allclose(out, x @ y, atol=1e-4)


@checklist(169)
@pytest.mark.parametrize(("b1", "b2"), [(1, 1), (4, 2), (8, 4)])
def test_cache_tiles_load_what_the_formula_says(b1: int, b2: int) -> None:
    x, y, out = tg.randn(N, N), tg.randn(N, N), tg.empty(N, N)
    turned = y.t().contiguous()
    found = loads(lambda: matmul.cache_tiles[(N // b1,)](x, turned, out, N, K=N, B1=b1, B2=b2), matmul.cache_tiles)
    assert found == N**2 + N**3 // b1
    assert tg.allclose(out, x @ y, atol=1e-4)


@checklist(169)
@pytest.mark.parametrize("n", [64, 512, 1024, 4096])
def test_the_tuner_keeps_tiles_that_fit_the_first_cache(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """(b1 + b2) n numbers have room in it; the least tile is left where none does."""
    monkeypatch.setattr(matmul, "target", lambda: Target("x86", 32, 16, 32768, 524288))
    tuner = matmul.tuned_cache_tiles
    fitting = tuner.pruned({"n": n})
    sizes = [(c.kwargs["B1"], c.kwargs["B2"]) for c in fitting]
    assert sizes == [
        (b1, b2) for c in matmul.TILES for b1, b2 in [tuple(c.kwargs.values())] if (b1 + b2) * n < 8192
    ] or (n == 4096 and sizes == [(1, 1)])
    assert (8, 4) in sizes if n <= 512 else (8, 4) not in sizes


@checklist(169)
def test_what_the_tuner_takes_fits() -> None:
    n = 256
    x, y = tg.randn(n, n), tg.randn(n, n)
    matmul.tuned_cache_tiles.measure, before = lambda launch, given: 1.0, matmul.tuned_cache_tiles.measure
    try:
        out = matmul.in_the_cache(x, y)
    finally:
        matmul.tuned_cache_tiles.measure = before
    taken = matmul.tuned_cache_tiles.best_config
    assert taken is not None
    assert (taken.kwargs["B1"] + taken.kwargs["B2"]) * n * 4 < matmul.target().l1_bytes
    assert tg.allclose(out, x @ y, atol=1e-3)


@checklist(170)
def test_packed_tiles_load_what_register_tiles_do_and_nothing_is_spread() -> None:
    """n^3 / v2 + n^3 / v1 numbers, and 2 n^2 while they are packed."""
    x, y = tg.randn(N, N), tg.randn(N, N)
    assert tg.allclose(matmul.packed(x, y), x @ y, atol=1e-4)
    v1, v2 = matmul.V1, matmul.V2
    assert matmul.packed_tiles.report().loaded // 4 == N**3 // v2 + N**3 // v1
    assert matmul.pack_rows.report().loaded == matmul.pack_columns.report().loaded == 4 * N**2


def innermost(assembly: str, instruction: str) -> tuple[int, int]:
    """Count an instruction, and all instructions, in the loop that has most of it."""
    blocks = []
    for block in re.split(r"^\.?[\w.]+:.*$", assembly, flags=re.MULTILINE):
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.strip().startswith(".")]
        ends = [n for n, line in enumerate(lines) if re.match(r"j\w+\s", line)]
        if ends:
            blocks.append(lines[: ends[0] + 1])
    return max((sum(instruction in line for line in lines), len(lines)) for lines in blocks)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the assembly of x86")
@checklist(170)
def test_packed_tiles_take_a_tenth_of_the_instructions_of_the_plain_loop() -> None:
    """Per product, in the innermost loops. (Times stand in examples/kernels/README.md.)"""
    x, y, out = tg.randn(N, N), tg.randn(N, N), tg.empty(N, N)
    matmul.element[(N, N)](x, y, out, N)
    products, instructions = innermost(matmul.element.asm("x86"), "vmulss")
    plain = instructions / products
    matmul.packed(x, y)
    code = matmul.packed_tiles.asm("x86")
    products, instructions = innermost(code, "vfmadd")
    bits = {"z": 512, "y": 256, "x": 128}[re.findall(r"vfmadd.*%([xyz])mm", code)[-1]]
    assert plain >= 4
    assert plain / (instructions / products / (bits // 32)) >= 10


@checklist(170)
def test_the_table_states_the_ratios() -> None:
    """Measured at n = 1024: ten times the plain loop at the least, and the ratio to OpenBLAS."""
    text = (ROOT / "examples" / "kernels" / "README.md").read_text()
    table = text.split("**[matmul](matmul.py)** on a CPU: n 1,024")[1].split("**[")[0]
    against = {
        row.split(" | ")[0].strip("| "): float(row.rsplit("|", 2)[1]) for row in table.splitlines() if " % " in row
    }
    plain, packed = against["a program for each element"], against[str(matmul.packed.__doc__)]
    assert packed / plain >= 10
    assert against["numpy (OpenBLAS)"] > 0


@checklist(172)
def test_a_model_finds_good_tiles_in_few_trials() -> None:
    """Nine of ten parts of the best speed by a fifth of the trials; times are those of a made-up cache."""
    configs = [tg.Config({"B1": b1, "B2": b2}) for b1 in (1, 2, 4, 8, 16, 32) for b2 in (1, 2, 4, 8, 16, 32)]
    n, room = 256, 8192

    def seconds(b1: int, b2: int) -> float:
        """Loads of the formula, and what no longer fits is loaded again; a turn, and odd shapes, cost a little."""
        missing = max(0.0, (b1 + b2) * n / (0.9 * room) - 1)
        return (n**2 + n**3 / b1 * (1 + 3 * missing)) * (1 + 0.04 * ((b1 * 7 + b2 * 13) % 5)) + 50 * n**2 / b2

    def model(n: int, B1: int, B2: int, **_: Any) -> float:
        """The formula, and the turns that it does not speak of."""
        return n**2 + n**3 / B1 + 50 * n**2 / B2 if (B1 + B2) * n < room else float("inf")

    tuner = tuning.Autotuned(matmul.cache_tiles, configs, ["n"], {"perf_model": model, "top_k": 0.2})
    tried = tuner.pruned({"n": n})
    assert len(tried) <= 0.2 * len(configs)
    best = min(seconds(**_sides(c)) for c in configs)
    assert best / min(seconds(**_sides(c)) for c in tried) >= 0.9


def _sides(config: Any) -> dict[str, int]:
    return {"b1": config.kwargs["B1"], "b2": config.kwargs["B2"]}


def test_prunings_that_are_none() -> None:
    with pytest.raises(KernelError, match="prune_configs_by of kernel cache_tiles has 'model', and takes early_config"):
        tuning.Autotuned(matmul.cache_tiles, matmul.TILES, ["n"], {"model": None})
    empty = tuning.Autotuned(matmul.cache_tiles, matmul.TILES, ["n"], {"early_config_prune": lambda configs, given: []})
    with pytest.raises(KernelError, match="no configuration left"):
        empty.pruned({"n": 1})
