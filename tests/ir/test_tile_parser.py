"""Kernels are read as they are printed, and as people write them."""

import numpy as np
import pytest
from hypothesis import given

from tests.kernels import cases
from tests.known_kernels import KNOWN
from tilegrad.ir.dtype import bool_, float16, float32, int32, uint32
from tilegrad.ir.tile import (
    Apply,
    Arange,
    Assign,
    Bitcast,
    BroadcastTo,
    Cast,
    ExpandDims,
    Full,
    If,
    Kernel,
    Literal,
    Load,
    Name,
    NumPrograms,
    Reduce,
    Reshape,
    Scan,
    Statement,
    Tile,
    TileParameter,
    Trans,
)
from tilegrad.ir.tile_parser import parse

PARAMETERS = (
    TileParameter("x", float32),
    TileParameter("s", float32, False),
    TileParameter("n", int32, False),
    TileParameter("b", bool_, False),
)
i, s, n, b = Arange(0, 4), Name("s"), Name("n"), Name("b")


@given(case=cases())
def test_random_kernels_come_back(case) -> None:
    assert parse(str(case.kernel)) == case.kernel


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.__name__)
def test_known_kernels_come_back(known) -> None:
    kernel = known(np.random.default_rng(0)).kernel
    assert parse(str(kernel)) == kernel


def kernel_of(*body: Statement, origin: str = "") -> Kernel:
    return Kernel("k", PARAMETERS, body, origin)


PRINTED: list[tuple[Tile, str]] = [
    (Literal(-1), "-1"),
    (Literal(-0.0), "-0.0"),
    (Literal(float("-inf")), 'float("-inf")'),
    (Literal(float("nan")), 'float("nan")'),
    (Literal(1e-05), "1e-05"),
    (Literal(True), "True"),
    (Apply("neg", (Literal(1),)), "tl.neg(1)"),
    (Apply("neg", (Literal(float("inf")),)), 'tl.neg(float("inf"))'),
    (Apply("neg", (Apply("neg", (s,)),)), "--s"),
    (Apply("sub", (s, Apply("sub", (s, s)))), "s - (s - s)"),
    (Apply("sub", (Apply("sub", (s, s)), s)), "s - s - s"),
    (Apply("mul", (s + 1, Apply("neg", (s,)))), "(s + 1) * -s"),
    (Apply("neg", (s * 2,)), "-(s * 2)"),
    (Apply("invert", (n < 3,)), "~(n < 3)"),
    ((n < 3) & (n > 1) | b, "(n < 3) & (n > 1) | b"),
    (Apply("eq", (n < 3, b)), "(n < 3) == b"),
    (Apply("shl", (n, n + 1)), "n << n + 1"),
    (Apply("shl", (n & 1, n)), "(n & 1) << n"),
    (Apply("mod", (n // 2, Literal(3))), "n // 2 % 3"),
    (Apply("mulhi", (Cast(n, uint32), Cast(n, uint32))), "tl.umulhi(n.to(tl.uint32), n.to(tl.uint32))"),
    (Apply("pow", (s, s)), "tl.pow(s, s)"),
    (Apply("where", (b, s, Literal(0))), "tl.where(b, s, 0)"),
    (Cast(Literal(1), float16), "(1).to(tl.float16)"),
    (Cast(Literal(-1), bool_), "(-1).to(tl.int1)"),
    (Cast(n + 1, float16), "(n + 1).to(tl.float16)"),
    (Bitcast(s, int32), "s.to(tl.int32, bitcast=True)"),
    (Full((2, 3), Literal(1.5), float16), "tl.full([2, 3], 1.5, tl.float16)"),
    (Full((2,), Literal(0.0), float16), "tl.zeros([2], tl.float16)"),
    (Full((2,), Literal(0), float16), "tl.full([2], 0, tl.float16)"),
    (Full((), Literal(0), int32), "tl.full([], 0, tl.int32)"),
    (Full((2,), Literal(-0.0), float32), "tl.full([2], -0.0, tl.float32)"),
    (ExpandDims(i, (0,)), "tl.arange(0, 4)[None, :]"),
    (ExpandDims(i, (1, 2)), "tl.arange(0, 4)[:, None, None]"),
    (ExpandDims(s, (0, 1)), "s[None, None]"),
    (ExpandDims(i, ()), "tl.arange(0, 4)[:]"),
    (BroadcastTo(s, (2, 3)), "tl.broadcast_to(s, [2, 3])"),
    (Reshape(i, (2, 2)), "tl.reshape(tl.arange(0, 4), [2, 2])"),
    (Trans(Reshape(i, (2, 2)), (1, 0)), "tl.trans(tl.reshape(tl.arange(0, 4), [2, 2]))"),
    (Trans(Reshape(i, (1, 2, 2)), (2, 0, 1)), "tl.permute(tl.reshape(tl.arange(0, 4), [1, 2, 2]), [2, 0, 1])"),
    (Reduce("maximum", i, 0), "tl.max(tl.arange(0, 4), axis=0)"),
    (Scan("mul", i, 0), "tl.cumprod(tl.arange(0, 4), axis=0)"),
    (NumPrograms(1), "tl.num_programs(1)"),
    (Load(Name("x") + i, i < n, Literal(-1.0)), "tl.load(x + tl.arange(0, 4), mask=tl.arange(0, 4) < n, other=-1.0)"),
]


@pytest.mark.parametrize("tile, text", PRINTED, ids=[text for _, text in PRINTED])
def test_printed_form(tile: Tile, text: str) -> None:
    kernel = kernel_of(Assign("v", tile))
    assert str(kernel).split("\n")[-1] == f"    v = {text}"
    assert parse(str(kernel)) == kernel


WRITTEN = [
    ("v = -float('inf')", 'v = float("-inf")'),
    ("v = 0 <= n < 3", "v = (0 <= n) & (n < 3)"),
    ("v = b and not b or n > 1", "v = b & ~b | (n > 1)"),
    ("v: tl.tensor = n", "v = n"),
    ("v = tl.sum(i[:, None] * i[None, :])", "v = tl.sum(tl.reshape(i[:, None] * i[None, :], [16]), axis=0)"),
    ("v = tl.sum(i[:, None] * i[None, :], -1)", "v = tl.sum(i[:, None] * i[None, :], axis=1)"),
    ("v = tl.sum(i)", "v = tl.sum(i, axis=0)"),
    ("v = i.sum(0)", "v = tl.sum(i, axis=0)"),
    ("v = tl.max(i, 0, keep_dims=True)", "v = tl.max(i, axis=0)[None]"),
    ("v = tl.cumsum(i)", "v = tl.cumsum(i, axis=0)"),
    ("v = i[:, None].T", "v = tl.trans(i[:, None])"),
    ("v = tl.zeros_like(i)", "v = tl.zeros([4], tl.int32)"),
    ("v = tl.zeros((2, 2 * 2), dtype=tl.float16)", "v = tl.zeros([2, 4], tl.float16)"),
    ("v = i.to(x.dtype.element_ty)", "v = i.to(tl.float32)"),
    ("v = tl.cast(i, tl.float32)", "v = i.to(tl.float32)"),
    ("v = tl.expand_dims(i, -1)", "v = i[:, None]"),
    ("v = tl.math.exp(s) + tl.exp(s)", "v = tl.exp(s) + tl.exp(s)"),
    ("v = min(n, 3) + max(n, 4) + abs(n)", "v = tl.minimum(n, 3) + tl.maximum(n, 4) + tl.abs(n)"),
    ("v = tl.cdiv(n, 4)", "v = (n + (4 - 1)) // 4"),
    ("v = tl.multiple_of(n, 8)", "v = n"),
    ("v = tl.clamp(s, 0.0, 1.0)", "v = tl.minimum(tl.maximum(s, 0.0), 1.0)"),
    ("v = s ** 2", "v = tl.pow(s, 2)"),
    ("n = n + 1", "n += 1"),
    ("n -= 2 - n", "n -= 2 - n"),
    ("tl.store(x, s, b)", "tl.store(x, s, mask=b)"),
    ("v = tl.load(x, None, None)", "v = tl.load(x)"),
    ("for k in tl.static_range(3): pass", "for k in range(3):\n        pass"),
    ("for k in range(1, n): pass", "for k in range(1, n):\n        pass"),
]


@pytest.mark.parametrize("written, printed", WRITTEN, ids=[w for w, _ in WRITTEN])
def test_written_form(written: str, printed: str) -> None:
    head = '@tg.kernel\ndef k(x: "*f32", s: "f32", n: "i32", b: "bool"):\n    i = tl.arange(0, 4)\n    '
    kernel = parse(head + written)
    assert str(kernel) == head + printed
    assert parse(str(kernel)) == kernel


@pytest.mark.parametrize("origin", ["", "a.py:3", "a.py:3\nb.py:4", " indented", "one\n\ntwo", "# with a mark"])
def test_the_origin_is_the_comment_above(origin: str) -> None:
    kernel = kernel_of(origin=origin)
    assert parse(str(kernel)).origin == origin


def test_blocks() -> None:
    inner = If(b, (Assign("n", n + 1),), (If(n < 3, (), (Assign("n", Literal(0)),)),))
    kernel = kernel_of(If(n > 1, (inner,)))
    assert parse(str(kernel)) == kernel
    assert str(kernel).split("\n")[2:] == [
        "    if n > 1:",
        "        if b:",
        "            n += 1",
        "        elif n < 3:",
        "            pass",
        "        else:",
        "            n = 0",
    ]


def test_what_stands_around_a_kernel_is_ignored() -> None:
    text = "import tilegrad as tg\nimport tilegrad.language as tl\n\n# mine\n@tg.kernel\n"
    kernel = parse(text + 'def k(n: "i32"):\n    """Does nothing."""\n    # nothing at all\n    pass\n')
    assert kernel == Kernel("k", (TileParameter("n", int32, False),), (), "mine")


def test_kernels_that_differ_in_names_have_one_form() -> None:
    """Their code is compiled once; nothing but names may differ."""
    text = "@tg.kernel\ndef f({0}: '*f32', {1}: '*f32'):\n    i = tl.arange(0, 8)\n"
    text += "    tl.store({1} + i, tl.{2}(tl.load({0} + i)))"
    one, other, swapped, function = (
        parse(text.format(*names).replace("'", '"'))
        for names in (("x", "y", "exp"), ("exp", "log", "exp"), ("y", "x", "exp"), ("x", "y", "log"))
    )
    assert one.form() == other.form() == swapped.form() != function.form()
    assert one.digest() != other.digest()
    crossed = one.replaced(parameters=one.parameters[::-1])
    assert crossed.form() != one.form()
