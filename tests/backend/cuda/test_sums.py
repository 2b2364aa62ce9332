"""Accumulators in registers, which tensor cores write asynchronously."""

import re

import pytest

from tests.backend.cuda.test_dot import compiled, product
from tilegrad.backend.cuda.build import build_kernel
from tilegrad.backend.cuda.reports import clean_sass
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

CONVOLUTION = parse("""
def convolution(w: "*f16", x: "*f16", out: "*f16"):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    i2 = tl.program_id(1) * 64 + tl.arange(0, 64)
    acc = tl.zeros([64, 64], tl.float32)
    for k in range(3):
        for k2 in range(0, 120, 64):
            ks = k2 + tl.arange(0, 64)
            mask = (i2 < 48)[:, None] & (ks < 120)[None, :]
            ws = tl.load(w + ((i2 * 360 + k * 120)[:, None] + ks[None, :]), mask=mask, other=0.0)
            mask2 = (i < 1900)[None, :] & (ks < 120)[:, None]
            xs = tl.load(x + ((k * 760 + i * 40)[None, :] + ks[:, None]), mask=mask2, other=0.0)
            acc = tl.dot(ws, xs, acc)
    i3 = i // 19 % 20
    i4 = i % 19
    mask3 = (i < 1900)[None, :] & (i2 < 48)[:, None]
    place = (i // 380 * 14688)[None, :] + (i2 * 306)[:, None] + (i3 * 17)[None, :] + i4[None, :]
    tl.store(out + place, acc.to(tl.float16), mask=mask3 & ((i4 < 17) & (i3 < 18))[None, :])
""")
STAYING = product(4096, 4096, 4096, (128, 256, 64), dtype="f16")


@compiled
@pytest.mark.parametrize("kernel", [CONVOLUTION, STAYING], ids=["convolution", "staying"])
def test_accumulators_are_used_after_products_finish(kernel: Kernel) -> None:
    """The assembler must not move conversions of accumulators before the wait for the products."""
    sass = clean_sass(build_kernel(kernel, "sm_90a").sass)
    if not sass:
        pytest.skip("no disassembler")
    assert "HGMMA" in sass
    for after in sass.split("HGMMA")[1:]:
        before_the_wait = re.split(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0|BRA", after)[0]
        assert "F2FP" not in before_the_wait
    *_, after_the_last = sass.split("HGMMA")
    assert "F2FP" not in after_the_last.split("WARPGROUP.DEPBAR.LE gsb0, 0x0")[0]
