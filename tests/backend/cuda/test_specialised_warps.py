"""Loops of several products on GPUs: attention and its gradient, with and without warp specialisation."""

import re
from typing import Any

import numpy as np
import pytest

from tests.backend.cuda import emulated
from tests.backend.cuda.test_dot import compiled, units
from tilegrad.backend.cuda.build import build_kernel
from tilegrad.backend.cuda.code.lower import CudaLowering, lower
from tilegrad.backend.reference.tile import run
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Input, TensorType
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.attention_shapes import AttentionOp
from tilegrad.ops.tiled_attention import TiledAttention, TiledKeyGradient, TiledQueryGradient


def ops(heads: int, length: int, width: int, causal: bool = True) -> list[AttentionOp]:
    wide, row = (
        TensorType(bfloat16, (1, heads, length, width)),
        TensorType(float32, (heads, length)),
    )
    given = (*(Input(wide) for _ in range(3)), (), (), heads, causal, width**-0.5, 0.0, "highest")
    more = Input(wide), Input(row), Input(row)
    return [TiledAttention(*given), TiledQueryGradient(*given, *more), TiledKeyGradient(*given, *more)]  # type: ignore[arg-type]


def kernel(op: AttentionOp) -> Kernel:
    return op.kernel().kernel


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("number", range(3))
def test_attention_is_warp_specialised(width: int, number: int) -> None:
    plan = CudaLowering(kernel(ops(4, 512, width)[number]), "sm_90a").products.specialised
    assert plan is not None
    assert plan.stages >= 2
    assert len(plan.loops) == 2
    assert [p.fresh for p in plan.products.values()].count(True) == (2 if number == 0 else 4)
    assert CudaLowering(kernel(ops(4, 512, width)[number]), "sm_80").products.specialised is None


def test_producers_take_no_part_in_barriers() -> None:
    text = lower(kernel(ops(4, 512, 128)[0]), "sm_90a").text
    copying, computing = text.split("setmaxnreg.inc")
    assert copying.count("__syncthreads();") == 1
    assert "__syncthreads();" not in computing
    assert "copy_box(" not in computing


def test_other_uses_of_copied_tiles_disable_specialisation() -> None:
    """A tile with a use besides products is loaded by the consumers."""
    text = str(kernel(ops(4, 512, 64)[0]))
    assert "mean *= (1.0 / total)[:, None]" in text
    also = text.replace("mean *= (1.0 / total)[:, None]", "mean += queries.to(tl.float32)")
    assert CudaLowering(parse(also), "sm_90a").products.specialised is None


def test_stored_tensors_are_not_copied() -> None:
    text = str(kernel(ops(4, 512, 64)[0])).replace("tl.store(out", "tl.store(key")
    assert CudaLowering(parse(text), "sm_90a").products.specialised is None


LINEAR = """
def linear(q: "*f16", k: "*f16", v: "*f16", powers: "*f32", out: "*f16"):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    d = tl.arange(0, 64)
    queries = tl.load(q + ((i * 64)[:, None] + d[None, :]))
    mean = tl.zeros([128, 64], tl.float32)
    for start in range(0, 512, 64):
        j = start + tl.arange(0, 64)
        keys = tl.load(k + ((j * 64)[:, None] + d[None, :]))
        values = tl.load(v + ((j * 64)[:, None] + d[None, :]))
        scores = tl.dot(queries, tl.trans(keys))
        rounded = scores.to(tl.float16)
        mean = tl.dot(rounded, values, mean)
    tl.store(out + ((i * 64)[:, None] + d[None, :]), mean.to(tl.float16))
"""
LAST = "        mean = tl.dot(rounded, values, mean)\n"


def test_dependent_products_are_awaited() -> None:
    text = lower(parse(LINEAR), "sm_90a").text
    (between,) = re.findall(r"\bmultiply_64ss\(scores, (.*?)pack\(packed, scores\)", text, re.DOTALL)
    assert "wait_for_products<0>();" in between
    assert "fence_registers(scores);" in between


@pytest.mark.parametrize(
    "more",
    [
        f"        scores *= 3.0\n{LAST}        tl.store(powers + ((i * 512)[:, None] + j[None, :]), scores)\n",
        f"        scores = tl.dot(queries, tl.trans(values), scores)\n{LAST}",
        f"{LAST}        tripled = scores * 3.0\n        rounded = tripled.to(tl.float16)\n{LAST}",
    ],
    ids=["changed", "summed", "twice"],
)
def test_register_operands_are_rounded(more: str) -> None:
    """Registers of accumulators are used as a rounded copy only if they are unchanged since."""
    assert CudaLowering(parse(LINEAR), "sm_90a").products.specialised is not None
    assert CudaLowering(parse(LINEAR.replace(LAST, more)), "sm_90a").products.specialised is None


@pytest.mark.parametrize(
    "more",
    [
        "        tl.atomic_add(powers + ((i * 512)[:, None] + j[None, :]), scores)\n",
        "        if start > 64:\n            mean *= 2.0\n",
        "        for n in range(start):\n            mean *= 2.0\n",
    ],
    ids=["atomic", "if", "for"],
)
def test_loops_that_do_more_than_assign_and_store_are_compiled(more: str) -> None:
    assert "mma.sync" in lower(parse(LINEAR.replace(LAST, LAST + more)), "sm_90a").text


@compiled
def test_no_registers_are_spilled() -> None:
    for op, width in ((ops(64, 4096, 128)[0], 128), (ops(192, 1024, 64)[0], 64)):
        made = build_kernel(kernel(op), "sm_90a")
        assert made.spills == 0
        assert made.threads == (384 if width == 128 else 288)  # two blocks share a multiprocessor, or one has it all
        if made.sass:
            assert {"HGMMA", "UTMALDG"} <= units(made.sass)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_results_are_those_of_the_interpreter(architecture: str) -> None:
    if not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    made = ops(2, 128, 64)
    emulation = emulated.Emulated([kernel(op) for op in made], architecture)
    assert architecture == "sm_80" or all(source.maps for source in emulation.sources)
    random = np.random.default_rng(0)
    for number, op in enumerate(made):
        given: list[Any] = [random.standard_normal(x.shape).astype(x.dtype.numpy) for x in op.inputs]
        if number:
            given[4] = np.full_like(given[4], 5.0)
        wanted = np.zeros([int(n) for n in op.shape], op.dtype.numpy)  # type: ignore[call-overload]
        grid = [t.count({}) for t in op.kernel().grid]
        run(kernel(op), [*given, wanted], grid)
        for backwards in (False, True):
            got = np.zeros_like(wanted)
            emulation.run(number, [*given, got], grid, backwards)
            np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_tiles_may_wrap_to_the_next_line() -> None:
    """Half of 128 columns lie in lines of 192 from the middle on, the other half in the next lines."""
    if not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    text = LINEAR.replace("d = tl.arange(0, 64)", "d = tl.arange(0, 128)").replace("[128, 64]", "[128, 128]")
    wide = text.replace("(i * 64)", "(i * 128)").replace("(j * 64)", "(j * 192 + 128)").replace("512", "128")
    made = parse(wide)
    emulation = emulated.Emulated([made], "sm_90a")
    assert len(emulation.sources[0].maps) == 3
    random = np.random.default_rng(0)
    given = [(random.standard_normal(1 << 15) / 8).astype(np.float16) for _ in range(3)]
    wanted, got = np.zeros(1 << 14, np.float16), np.zeros(1 << 14, np.float16)
    run(made, [*given, np.zeros(1, np.float32), wanted], (1,))
    emulation.run(0, [*given, np.zeros(1, np.float32), got], (1,))
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=1e-2, atol=1e-2)
