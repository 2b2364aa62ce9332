"""Rows of the next loop iteration are prefetched to shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backend.cuda.emulated import Emulated, has_compiler
from tilegrad.backend.cuda.code import prefetch
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.ir.tile_parser import parse

ROWS = parse("""
def rows(x: "*f32", y: "*f32", out: "*f32", sums: "*f32", n: "i32"):
    k = tl.arange(0, 2048)
    total = tl.zeros([2048], tl.float32)
    for r in range(0, n):
        i = (tl.program_id(0) * 8 + r) * 2048 + k
        x_ = tl.load(x + i)
        mean = tl.sum(x_, axis=0) / 2048.0
        y_ = tl.load(y + i)
        tl.store(out + i, (x_ - mean) * y_)
        total += y_
    tl.store(sums + (tl.program_id(0) * 2048 + k), total)
""")


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "MIN_PREFETCH_THREADS", 1)


def test_prefetch_needs_shared_memory() -> None:
    text = {a: lower(ROWS, a).text for a in ("sm_75", "sm_80", "sm_90a")}
    assert ["copy_16(" in t for t in text.values()] == [False, True, True]
    assert "prefetch_l2(" in text["sm_75"]
    wide = parse(str(ROWS).replace("2048", "16384"))
    assert "copy_16(" not in lower(wide, "sm_90a").text


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("places", [2, 3])
def test_prefetched_rows_belong_to_their_iteration(turns: int, places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "MAX_SHARED_ITERATIONS", 4 if places == 2 else 1000)
    assert f"wait_for_copies<{places - 2}>()" in lower(ROWS, "sm_80").text
    random = np.random.default_rng(turns)
    x, y = (random.standard_normal((16, 2048)).astype(np.float32) for _ in range(2))
    emulated = Emulated([ROWS], "sm_80")
    for reversed in (False, True):
        out, sums = np.zeros_like(x), np.zeros((2, 2048), np.float32)
        emulated.run(0, [x, y, out, sums, turns], (2,), reversed)
        for block in (0, 1):
            some = slice(8 * block, 8 * block + turns)
            wanted = (x[some] - x[some].mean(1, keepdims=True)) * y[some]
            np.testing.assert_allclose(out[some], wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(sums[block], y[some].sum(0), rtol=1e-4, atol=1e-5)
