"""The interpreter of kernels against numpy, and what a checked run finds."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from tests.kernels import cases
from tests.known_kernels import KNOWN
from tilegrad.backend.reference.tile import run
from tilegrad.errors import KernelError
from tilegrad.ir.tile_parser import parse


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.__name__)
@pytest.mark.parametrize("checked", [False, True])
def test_known(known, checked: bool) -> None:
    kernel, arguments, grid, expected = known(np.random.default_rng(1))
    run(kernel, arguments, grid, checked=checked, unwritten=expected)
    got = {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True)}
    for name, array in expected.items():
        np.testing.assert_allclose(got[name].astype(float), array.astype(float), 1e-5, 1e-6)


@given(case=cases())
def test_random_kernels_have_nothing_to_hide(case) -> None:
    """A checked run refuses none of them, and finds the same."""
    expected = case.run(lambda *call: run(*call))
    checked = case.run(lambda *call: run(*call, checked=True, unwritten=case.outputs))
    for name in case.outputs:
        np.testing.assert_array_equal(checked[name], expected[name])


def evaluated(text: str, out: np.ndarray, **arguments: object) -> np.ndarray:
    """The value of `v` after some lines."""
    short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "bool": "bool"}
    short |= {f"{sign}int{b}": f"{sign or 'i'}{b}" for sign in ("", "u") for b in (8, 16, 32, 64)}
    given = {"out": out, **arguments}
    parameters = ", ".join(f'{name}: "*{short[a.dtype.name]}"' for name, a in given.items())  # type: ignore[attr-defined]
    lines = "".join(f"    {line.strip()}\n" for line in text.strip().split("\n"))
    index = f"out + tl.arange(0, {out.size})" if out.size > 1 else "out"
    run(parse(f"def f({parameters}):\n{lines}    tl.store({index}, v)\n"), given, (1,))
    return out


def test_each_half_operation_rounds() -> None:
    x = np.array([2048.0], np.float16)
    out = evaluated("v = tl.load(x) + 1 + 1", np.zeros(1, np.float16), x=x)
    assert out[0] == 2048  # 2050 if it were rounded once
    x = np.array([256.0], ml_dtypes.bfloat16)
    assert evaluated("v = tl.load(x) + 1 + 1", np.zeros(1, ml_dtypes.bfloat16), x=x)[0] == 256


def test_half_sums_round_once() -> None:
    x = np.array([2048.0, 1, 1, 0], np.float16)
    assert evaluated("v = tl.sum(tl.load(x + tl.arange(0, 4)), axis=0)", np.zeros(1, np.float16), x=x)[0] == 2050


def test_dot_is_wider_than_its_operands() -> None:
    x = np.array([2048.0, 1, 1, 0], np.float16)
    line = "a = tl.load(x + tl.arange(0, 4))\nv = tl.reshape(tl.dot(a[None, :], tl.full([4, 1], 1, tl.float16)), [])"
    assert evaluated(line, np.zeros(1, np.float32), x=x)[0] == 2050


def test_integers_meet_in_the_wider() -> None:
    x, y = np.array([200], np.uint8), np.array([1000], np.int32)
    assert evaluated("v = tl.load(x) + tl.load(y)", np.zeros(1, np.int32), x=x, y=y)[0] == 1200


def test_integers_wrap_and_divide_by_nothing() -> None:
    x = np.array([127], np.int8)
    assert evaluated("v = tl.load(x) + 1", np.zeros(1, np.int8), x=x)[0] == -128
    assert evaluated("v = tl.load(x) // 0", np.zeros(1, np.int8), x=x)[0] == 0
    assert evaluated("v = -7 // tl.full([], 2, tl.int8)", np.zeros(1, np.int8))[0] == -4


@pytest.mark.parametrize("fn, expected", [("argmax", 2), ("argmin", 2)])
def test_the_first_nan_wins(fn: str, expected: int) -> None:
    x = np.array([3, 9, np.nan, np.nan], np.float32)
    line = f"v = tl.{fn}(tl.load(x + tl.arange(0, 4)), axis=0)"
    assert evaluated(line, np.zeros(1, np.int32), x=x)[0] == expected


def test_pointers_move() -> None:
    x = np.arange(8, dtype=np.float32)
    line = "p = x + tl.arange(0, 2)\np += 2\nfor k in range(2):\n    p += 1\nv = tl.load(p - 1)"
    text = 'def f(x: "*f32", out: "*f32"):\n' + "".join(f"    {part}\n" for part in line.split("\n"))
    out = np.zeros(2, np.float32)
    run(parse(text + "    tl.store(out + tl.arange(0, 2), v)"), [x, out], (1,))
    assert out.tolist() == [3, 4]


FAULTS = {
    "beyond the end": ("tl.store(out + i, 1.0)", "in `tl.store(out + i, 1.0)`, program (2, 0, 0), lane (2): index 10"),
    "before the beginning": ("v = tl.load(x + i - 1)", "program (0, 0, 0), lane (0): index -1 is outside x"),
    "a step of nothing": ("for k in range(0, 3, n - n):\n        pass", "the step of the loop is 0"),
    "what nobody wrote": ("v = tl.load(out)", "reads out[0], which nobody has written"),
    "two instances, two values": ("tl.store(out, i0.to(tl.float32))", "where another instance stores another value"),
    "what another stores": ("tl.store(out + i0, 1.0)\n    v = tl.load(out)", "reads out[0], which another instance"),
    "what another reads": ("v = tl.load(x)\n    tl.store(x + i0, 1.0)", "program (1, 0, 0): stores x[1]"),
    "two lanes, two values": ("tl.store(out + i - i, i.to(tl.float32))", "where another lane stores another value"),
    "an offset overflows": ("v = tl.load(x + (i + 9) * 2000000000 // 2000000000)", "overflows int32"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults(case: str) -> None:
    line, reason = FAULTS[case]
    if case == "what another reads":
        line = "v = tl.load(x + 1)\n    tl.store(x + i0, 1.0)"
    text = 'def f(x: "*f32", out: "*f32", n: "i32"):\n    i0 = tl.program_id(0)\n    i = i0 * 4 + tl.arange(0, 4)\n    '
    arrays = [np.zeros(20, np.float32), np.zeros(10, np.float32)]
    with pytest.raises(KernelError) as raised:
        run(parse(text + line), [*arrays, 3], (3,), checked=True, unwritten=["out"])
    assert reason in str(raised.value)
    assert str(raised.value).startswith("kernel f, in `")


def test_what_a_mask_hides_spoils_results() -> None:
    text = """
        def f(x: "*f32", out: "*f32"):
            i = tl.arange(0, 4)
            tl.store(out, tl.sum(tl.load(x + i, mask=i < 3), axis=0))
    """
    out = np.zeros(1, np.float32)
    run(parse(text), [np.ones(3, np.float32), out], (1,), checked=True)
    assert np.isnan(out[0])


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ([np.zeros(4, np.float32)], "takes (x, n) and was given 1 arguments"),
        ([np.zeros(4, np.float64), 1], "`x` takes a dense array of float32, and not an array of float64"),
        ([np.zeros((4, 4), np.float32)[:, 1], 1], "`x` takes a dense array"),
        ([3.0, 1], "and not float"),
        ([np.zeros(4, np.float32), 2**31], "`n` takes a number of int32"),
        ([np.zeros(4, np.float32), 1.5], "`n` takes a number of int32"),
    ],
)
def test_wrong_arguments(arguments: list[object], reason: str) -> None:
    with pytest.raises(KernelError) as raised:
        run(parse('def f(x: "*f32", n: "i32"):\n    pass'), arguments, (1,))
    assert reason in str(raised.value)


def test_empty_memory_is_not_touched() -> None:
    kernel = parse(
        'def f(x: "*f32", n: "i32"):\n    i = tl.arange(0, 4)\n    tl.store(x + i, i.to(tl.float32), mask=i < n)'
    )
    run(kernel, [np.zeros(0, np.float32), 0], (1,), checked=True)
