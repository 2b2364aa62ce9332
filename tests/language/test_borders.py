"""Specialised borders: instances whose tiles are in range run a copy without masks, with the same results."""

import re

import numpy as np
import pytest

import tilegrad as tg
from tests.language import test_tutorials as tutorials
from tests.language.kernel_texts import made
from tilegrad.ir.tile_parser import parse
from tilegrad.tiles.pipeline import run_passes


def test_a_program_inside_needs_no_mask() -> None:
    tutorials.test_vector_add(1000)
    kernel = run_passes(tutorials.add.latest().fast, "cpu", users=True)
    text = str(kernel)
    assert "if tl.program_id(0) * 128 + 127 < n:" in text
    assert "tl.store(out_ptr + offsets, x_inside + y_inside)" in text
    assert parse(text) == kernel


def test_masks_with_one_condition_go_together() -> None:
    tutorials.test_matmul_in_groups(tg.float32, False, "")
    text = str(run_passes(tutorials.matmul.latest().fast, "cpu", users=True))
    assert text.count("16) % ") == 0
    assert len(re.findall(r"if 15 < K - k\w* \* 16:", text)) == 1


def test_kernels_without_masks_stay() -> None:
    k = made("tl.store(out + tl.arange(0, 4), 1.0)", "out")
    k[1](tg.empty(4))
    assert run_passes(k.ir, "cpu", users=True) is k.ir


BODIES = {
    "a mask whose bound changes": (
        "i = tl.arange(0, 8)\nfor k in range(3):\n    m = i < n\n    n -= 3\n    tl.store(out + k * 8 + i, 1, mask=m)",
        lambda n: [[float(i < n - 3 * k) for i in range(8)] for k in range(3)],
    ),
    "a tile whose places change": (
        "i = tl.arange(0, 8)\nfor k in range(3):\n    tl.store(out + i, k + 1.0, mask=i < n)\n    i += 8",
        lambda n: [[float(k + 1) if 8 * k + i < n else 0.0 for i in range(8)] for k in range(3)],
    ),
    "places modulo an extent": (
        "i = (tl.arange(0, 8) + n - 4) % 8\nfor k in range(3):\n    tl.store(out + k * 8 + tl.arange(0, 8), i + 0.0)",
        lambda n: [[float(np.fmod(i + n - 4, 8)) for i in range(8)] for _ in range(3)],
    ),
    "two masks": (
        "i, j = tl.arange(0, 3)[:, None], tl.arange(0, 8)[None, :]\nm = (i < n // 8) & (j <= n // 3)\n"
        "v = tl.where(m, 1.0 + i + j * 0, 7.0)\ntl.store(out + i * 8 + j, v, mask=m)",
        lambda n: [[1.0 + i if i < n // 8 and j <= n // 3 else 0.0 for j in range(8)] for i in range(3)],
    ),
    "a mask turned": (
        "i = tl.arange(0, 24)\nm = i < n\ntl.store(out + i, tl.where(m, 2.0, 3.0))",
        lambda n: [[2.0 if 8 * i + j < n else 3.0 for j in range(8)] for i in range(3)],
    ),
}


@pytest.mark.parametrize("n", [1, 7, 8, 9, 21, 23, 24])
@pytest.mark.parametrize("case", BODIES)
def test_the_same_at_every_size(case: str, n: int) -> None:
    body, expected = BODIES[case]
    k = made(body, "out, n")
    out = tg.zeros(3, 8)
    k[1](out, n)
    np.testing.assert_array_equal(out.numpy(), expected(n))
