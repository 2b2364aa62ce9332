"""Kernels that are right but for one thing: what `check` and `race` say of them, at which line."""

import itertools
import sys
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tests.language import test_tutorials as tutorials
from tests.language.kernel_texts import launched, made
from tests.language.test_tutorials import softmax_of
from tilegrad.errors import KernelFault
from tilegrad.ir.dtype import DTYPES, FLOAT8

FAULTS = {
    "a load too far": (
        "y = tl.load(x + i)\ntl.store(out + i, y, mask=m)",
        "program ({last}, 0, 0), lane ({lane}): index {n} is outside x, which has {n} elements",
    ),
    "a load before the beginning": (
        "y = tl.load(x + i - 1)\ntl.store(out + i, y, mask=m)", "program (0, 0, 0), lane (0): index -1 is outside x"
    ),
    "a store too far": ("tl.store(out + i, v)", "index {n} is outside out, which has {n} elements"),
    "a mask that is too wide": ("tl.store(out + i, v, mask=i <= n)", "index {n} is outside out"),
    "a mask that is too narrow": (
        "tl.store(out + i, v, mask=i < n - 2)", "2 of the {n} elements of out were never written, the first is out["
    ),
    "what nobody has written": (
        "y = tl.load(out + i, mask=m)\ntl.store(out + i, y + v, mask=m)", "reads out[0], which nobody has written"
    ),
    "an element that was never loaded": (
        "y = tl.load(x + i, mask=i > 3)\ntl.store(out + i, y, mask=m)", "that was never loaded gets into out[0]"
    ),
    "a NaN that is born": (
        "y = tl.sqrt(v - 3.0)\nz = y * 2\ntl.store(out + i, z, mask=m)", "a NaN is born in `tl.sqrt(v - 3.0)`"
    ),
    "a NaN that is born in a loop": (
        "y = v\nfor k in range(3):\n    y = y - tl.log(y - 2)\ntl.store(out + i, y, mask=m)",
        "a NaN is born in `tl.log(",
    ),
    "an offset that overflows": (
        "j = (i + 1) * 1000000007\ntl.store(out + i, tl.load(x + (j // 1000000007 - 1), mask=m), mask=m)",
        "`(i + 1) * 1000000007` overflows int32",
    ),
    "an assertion": ("tl.device_assert(v < 20, 'large')\ntl.store(out + i, v, mask=m)", "the assertion failed: large"),
    "an assumption": ("tl.assume(n < 20)\ntl.store(out + i, v, mask=m)", "the assertion failed: tl.assume"),
    "a gather too far": (
        "tl.store(out + i, tl.gather(v, tl.arange(0, 8) + 1, 0), mask=m)", "gather takes element 8 of an axis of 8"
    ),
    "an atomic too far": ("tl.store(out + i, v, mask=m)\ntl.atomic_add(out + n, 1.0)", "index {n} is outside out"),
    "a pointer that is moved too far": (
        "y = v\np = x + i\nfor k in range(2):\n    y = tl.load(p)\n    p += n\ntl.store(out + i, y, mask=m)",
        "is outside x",
    ),
    "a block pointer without a check": (
        "p = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))\n"
        "tl.store(out + i, tl.load(p), mask=m)", "index {n} is outside x",
    ),
}  # fmt: skip


@pytest.mark.checklist(125)
@pytest.mark.parametrize("programs", [4, 100], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("case", FAULTS)
def test_check(case: str, programs: int) -> None:
    body, told = FAULTS[case]
    n = programs * 8 - 2
    with pytest.raises(KernelFault) as raised:
        launched(body, "check", (programs,), n)
    message = str(raised.value)
    assert told.format(n=n, last=programs - 1, lane=6) in message
    assert "<kernel" in message
    if "never written" not in told:
        assert "^" in message


@pytest.mark.parametrize("programs", [4, 100])
def test_check_finds_nothing_in_what_is_right(programs: int) -> None:
    x, out = launched("tl.store(out + i, v * 2, mask=m)", "check", (programs,), programs * 8 - 2)
    np.testing.assert_array_equal(out.numpy(), x.numpy() * 2)


def test_names_that_checking_uses_too() -> None:
    k = made(
        "faults, number, x_extent = 1, tl.program_id(0), tl.program_id(0)\n"
        "i_exact = tl.program_id(0) * 8 + tl.arange(0, 8)\ni = i_exact + 0 * number\n"
        "tl.store(x + i, x_extent + i_exact)",
        "x",
    )
    k.check[(100,)](x := tg.empty(800, dtype=tg.int32))
    assert x.tolist() == [n // 8 + n for n in range(800)]


def test_a_wrong_kernel_leaves_its_tensors_alone() -> None:
    k = made("i = tl.program_id(0) * 8 + tl.arange(0, 8)\ntl.store(out + i, 1.0)\ntl.store(out - 1 - i, 2.0)", "out")
    for programs in (4, 100):
        out = tg.zeros(programs * 8)
        with pytest.raises(KernelFault, match="is outside out"):
            k.check[(programs,)](out)
        assert out.sum().item() == 0


@pytest.mark.defect(11)
@pytest.mark.checklist(125)
def test_matmul_without_a_mask_along_k_is_flagged() -> None:
    """The defect of section 3, number 11: the published notebook's matmul."""
    k = made(
        """rm, rn = tl.program_id(0) * 16 + tl.arange(0, 16), tl.program_id(1) * 16 + tl.arange(0, 16)
rk = tl.arange(0, 16)
acc = tl.zeros((16, 16), dtype=tl.float32)
for k in range(0, K, 16):
    a = tl.load(x + rm[:, None] * K + (k + rk)[None, :])
    b = tl.load(y + (k + rk)[:, None] * N + rn[None, :])
    acc = tl.dot(a, b, acc)
tl.store(out + rm[:, None] * N + rn[None, :], acc)""",
        "x, y, out, K, N",
    )
    k.check[(2, 2)](tg.ones(32, 48), tg.ones(48, 32), out := tg.empty(32, 32), 48, 32)
    assert (out == 48).all().item()
    with pytest.raises(KernelFault, match=r"is outside [xy]"):
        k.check[(2, 2)](tg.ones(32, 40), tg.ones(40, 32), tg.empty(32, 32), 40, 32)


def test_the_tutorials_pass() -> None:
    x = tg.randn(200, 70)
    out = tg.empty_like(x)
    tutorials.softmax.check[(100,)](out, x, 70, 70, 200, 70, BLOCK=128, num_stages=2)
    np.testing.assert_allclose(out.numpy(), softmax_of(x.numpy()), 1e-5, 1e-7)
    a, b, c = tg.randn(150, 45), tg.randn(45, 140), tg.empty(150, 140)
    launch = (a, b, c, 150, 140, 45, 45, 1, 140, 1, 140, 1)
    tutorials.matmul.check[(90,)](*launch, BM=16, BN=16, BK=16, GROUP=2, ACTIVATION="")
    np.testing.assert_allclose(c.numpy(), a.numpy() @ b.numpy(), 1e-4, 1e-4)


def test_views_are_checked_against_themselves() -> None:
    whole = tg.zeros(100)
    k = made("i = tl.arange(0, 16)\ntl.store(out + i, 1.0, mask=i < n)", "out, n")
    k.check[(1,)](whole[10:20], 10)
    assert whole.sum().item() == 10
    with pytest.raises(KernelFault, match="index 10 is outside out, which has 10 elements"):
        k.check[(1,)](whole[10:20], 11)


def test_one_memory_for_two_arguments() -> None:
    """The longer one says how far it goes."""
    whole, out = tg.arange(16).float(), tg.empty(16)
    k = made(
        "i = tl.arange(0, 16)\ntl.store(out + i, tl.load(y + i) + tl.load(x + i, mask=i < 5, other=0.0))", "x, y, out"
    )
    k.check[(1,)](whole[:5], whole, out)
    assert out.sum().item() == 120 + 10


def test_a_condition_that_loads() -> None:
    k = made("t = 0\nwhile tl.load(x + t) > 0:\n    t += 1\ntl.store(out, t)", "x, out")
    k.check[(1,)](tg.tensor([1.0, 1.0, 0.0]), out := tg.empty(1, dtype=tg.int32))
    assert out.item() == 2
    with pytest.raises(KernelFault, match=r"program \(0, 0, 0\): index 3 is outside x, which has 3 elements"):
        k.check[(1,)](tg.ones(3), out)


def test_a_loop_that_does_not_move() -> None:
    k = made("for t in range(0, 8, n):\n    tl.store(out + t, t)", "out, n")
    for step in (0, -2):
        with pytest.raises(KernelFault, match=f"the step of the loop is {step}, and not positive"):
            k.check[(1,)](tg.zeros(8, dtype=tg.int32), step)


def test_what_only_the_interpreter_follows() -> None:
    k = made(
        "i = tl.arange(0, 8)\np = x + i\nif n > 5:\n    p = y + i\ntl.store(out + i, tl.load(p, mask=i < n))",
        "x, y, out, n",
    )
    k.check[(1,)](tg.ones(8), tg.zeros(8), out := tg.zeros(8), 8)
    assert out.sum().item() == 0
    with pytest.raises(KernelFault, match=r"lane \(4\): index 4 is outside x, which has 4 elements"):
        k.check[(1,)](tg.ones(4), tg.zeros(8), out, 5)


def test_nan_that_came_with_the_input_is_nobodys_fault() -> None:
    k = made("i = tl.program_id(0) * 8 + tl.arange(0, 8)\ntl.store(out + i, tl.load(x + i) * 2)", "x, out")
    x = tg.ones(800)
    x[3] = float("nan")
    k.check[(100,)](x, out := tg.empty(800))
    assert np.isnan(out.numpy()).sum() == 1


def test_checking_takes_as_many_calls_for_a_million_elements_as_for_a_thousand() -> None:
    def calls(n: int) -> int:
        x, y, out = tg.randn(n), tg.randn(n), tg.zeros(n).contiguous()
        tg.compute(x, y, out)
        seen = []
        for _ in range(2):  # the first time it is compiled
            count = itertools.count()
            sys.setprofile(lambda frame, event, argument, count=count: next(count))  # type: ignore[misc]
            try:
                tutorials.add.check[(n // 1024,)](x, y, out, n, BLOCK=1024)
            finally:
                sys.setprofile(None)
            seen.append(next(count))
        return seen[-1]

    assert calls(1 << 20) == calls(1 << 10)


RACES = {
    "two programs, one place": ("tl.store(out, n)", "stores out[0], where another instance stores"),
    "what another program stores": (
        "tl.store(out + i, v, mask=m)\ny = tl.load(out + (i + 8) % n, mask=m)\ntl.store(out + i, y, mask=m)",
        "another instance",
    ),
    "a sum without atomics": ("tl.store(out, tl.load(out) + tl.sum(v))", "reads out[0], which another instance"),
    "who comes first": (
        "t = tl.atomic_add(out, 1.0)\ntl.store(out + 1 + tl.program_id(0), t)",
        "depends on the order of the programs",
    ),
    "the last one wins": ("tl.atomic_xchg(out, tl.program_id(0).to(tl.float32))", "depends on the order of the"),
}


@pytest.mark.checklist(161)
@pytest.mark.parametrize("case", RACES)
def test_race(case: str) -> None:
    body, told = RACES[case]
    start = "i = tl.program_id(0) * 8 + tl.arange(0, 8)\nm = i < n\nv = tl.load(x + i, mask=m, other=0.0)\n"
    k = made(start + body, "x, out, n")
    with pytest.raises(KernelFault) as raised:
        k.race[(4,)](tg.ones(30), tg.zeros(30), 30)
    assert told in str(raised.value)


def test_race_finds_nothing_in_what_is_right() -> None:
    k = made("i = tl.program_id(0) * 8 + tl.arange(0, 8)\nv = tl.load(x + i)\ntl.atomic_add(out, tl.sum(v))", "x, out")
    out = tg.zeros(1)
    k.race[(16,)](tg.rand(128), out)
    assert 30 < out.item() < 100


@tg.kernel
def converted(x: Any, out: Any, n: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOAT8], ids=str)
def test_stores_of_every_dtype_are_checked(dtype: tg.DType) -> None:
    x = tg.arange(20).to(tg.float32 if dtype in FLOAT8 else dtype)
    out = tg.zeros(20).to(dtype)
    converted.check[(2,)](x, out, 20, BLOCK=16)
    assert out.to(tg.float32).tolist() == x.to(dtype).to(tg.float32).tolist()
    with pytest.raises(KernelFault, match="index 20 is outside"):
        converted.check[(2,)](x, out, 21, BLOCK=16)
