"""Work from outside in graphs and programs: kernels of users, and functions on arrays; lazily, jitted, and mapped."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.errors import CompileError, ForeignError, InPlaceError
from tilegrad.ir.dtype import float32, int64
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Foreign, Program, ProgramBuffer
from tilegrad.ir.program_checker import check_program
from tilegrad.lazy.handle import wrap
from tilegrad.ops.external_call import external_call
from tilegrad.runtime.external_work import ArrayWork

FLOATS = TensorType(float32, (40,))


@tg.kernel
def axpy(x: Any, y: Any, out: Any, n: Any, alpha: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * alpha + tl.load(y + i, mask=i < n), mask=i < n)


@tg.kernel
def doubled(x: Any, n: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def launched(x: Any, y: Any, alpha: float) -> Any:
    x = x + 1
    out = tg.empty_like(x)
    axpy[(tg.cdiv(x.numel(), 16),)](x, y, out, x.numel(), alpha, BLOCK=16)
    doubled[(tg.cdiv(x.numel(), 16),)](out, x.numel(), BLOCK=16)
    return out


def steps(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The steps of the program of a function."""
    lines = str(tg.explain(fn, *args)["program"]).partition("  steps\n")[2].splitlines()
    return [line.partition(": ")[2].partition("  #")[0].strip() for line in lines[:-1]]


def test_kernels_within_jit() -> None:
    fast = tg.jit(launched)
    for n, alpha in ((40, 2.0), (40, 3.0), (40, 4.5), (50, 4.5), (60, 4.5)):
        x, y = tg.randn(n), tg.randn(n)
        expected = ((x + 1) * alpha + y) * 2
        np.testing.assert_allclose(fast(x, y, alpha).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(launched(x, y, alpha).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_that_vary_are_loaded() -> None:
    fast = tg.jit(launched)
    x, y = tg.ones(40), tg.ones(40)
    for alpha in (1.0, 2.0, 3.0, 4.0):
        assert fast(x, y, alpha)[0].item() == (2 * alpha + 1) * 2
    assert len(fast.programs) == 2


def test_a_chain_of_writes_copies_nothing() -> None:
    assert steps(tg.jit(launched), tg.ones(40), tg.ones(40), 2.0) == [
        "add[cdiv(40, 40)](x0, add_2)", "axpy[3](add_2, x1, doubled_4)", "doubled[3](doubled_4)",
    ]  # fmt: skip


def test_what_is_needed_later_is_copied() -> None:
    def both(x: Any) -> Any:
        y = x.clone()
        doubled[(3,)](y, 40, BLOCK=16)
        return x.exp(), y

    x = tg.randn(40)
    old, new = tg.jit(both)(x)
    np.testing.assert_allclose(new.numpy(), 2 * x.numpy())
    np.testing.assert_allclose(old.numpy(), np.exp(x.numpy()), rtol=1e-5)
    assert "doubled_2 = copy x0" in steps(tg.jit(both), x)


def test_arguments_and_state_are_written_in_place() -> None:
    state, seen = tg.ones(40), tg.ones(40)
    part = state[10:20]

    @tg.jit
    def step(x: Any) -> Any:
        doubled[(3,)](state, 40, BLOCK=16)
        doubled[(3,)](x, 40, BLOCK=16)
        return x + state

    for n in range(1, 5):
        assert step(seen)[3].item() == 2 * 2**n
    assert state[0].item() == seen[0].item() == part[0].item() == 16

    @tg.jit
    def only() -> None:
        doubled[(3,)](state, 40, BLOCK=16)

    only()
    assert steps(only) == ["doubled[3](state0)"]


def test_views_are_where_they_are() -> None:
    @tg.jit
    def middle(x: Any) -> Any:
        y = x * 1
        doubled[(2,)](y[10:30], 20, BLOCK=16)
        return y

    x = np.arange(40, dtype=np.float32)
    expected = x.copy()
    expected[10:30] *= 2
    np.testing.assert_array_equal(middle(tg.tensor(x)).numpy(), expected)


def test_mapped_launches() -> None:
    def each(row: Any, shift: Any) -> Any:
        out = tg.empty_like(row)
        axpy[(3,)](row, shift, out, 40, 3.0, BLOCK=16)
        return out

    rows, shift = tg.randn(5, 40), tg.randn(40)
    expected = rows.numpy() * 3 + shift.numpy()
    np.testing.assert_allclose(tg.vmap(each, in_dims=(0, None))(rows, shift).numpy(), expected, rtol=1e-5, atol=1e-6)
    inner = tg.vmap(each, in_dims=(0, None))
    cubes = tg.randn(2, 5, 40)
    expected = cubes.numpy() * 3 + shift.numpy()
    np.testing.assert_allclose(tg.vmap(inner, in_dims=(0, None))(cubes, shift).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_written_tensors_with_gradients_are_refused() -> None:
    w = tg.ones(40, requires_grad=True)

    @tg.jit
    def wrong(x: Any) -> Any:
        y = x * w
        doubled[(3,)](y, 40, BLOCK=16)
        return y

    with pytest.raises(InPlaceError, match="kernel doubled writes to `x`, which gradients flow through"):
        wrong(tg.ones(40))


def test_tuned_kernels_are_tuned_where_a_function_is_traced() -> None:
    tuned = tg.autotune([tg.Config({"BLOCK": 8}), tg.Config({"BLOCK": 64})], key=["n"])(doubled)
    fast = tg.jit(lambda x: tuned[lambda meta: (tg.cdiv(40, meta["BLOCK"]),)](x, 40))
    x = tg.ones(40)
    fast(x)
    assert x[0].item() == 2


# --- functions on arrays -----------------------------------------------------------------------------


def sorted_and_places(x: Any) -> Any:
    places = np.argsort(x, kind="stable")
    return x[places], places.astype(np.int64)


SORT = ArrayWork("sort_arrays", sorted_and_places)


def call(work: Any, *inputs: Any, results: tuple[TensorType, ...] = (FLOATS,)) -> list[Any]:
    return list(map(wrap, external_call(work, [x.value for x in inputs], results)))


@pytest.mark.parametrize("place", ["cpu", "reference"])
def test_several_results(place: str) -> None:
    array = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    x = tg.tensor(array, device=place)
    results = (TensorType(float32, (40,), place), TensorType(int64, (40,), place))

    def both(x: Any) -> Any:
        values, places = call(SORT, x * 2, results=results)
        return values + 1, places

    def one(x: Any) -> Any:
        return call(SORT, x, results=results)[1]

    for fn in (both, tg.jit(both)):
        for _ in range(6):
            values, places = fn(x)
            np.testing.assert_array_equal(places.cpu().numpy(), np.argsort(array, kind="stable"))
            np.testing.assert_array_equal(values.cpu().numpy(), np.sort(array) * 2 + 1)
    np.testing.assert_array_equal(tg.jit(one)(x).cpu().numpy(), np.argsort(array, kind="stable"))


def test_a_call_with_two_results_is_made_once() -> None:
    count = []
    work = ArrayWork("counted", lambda x: (count.append(1), (x, x))[1])
    a, b = call(work, tg.randn(40), results=(FLOATS, FLOATS))
    (a + b).numpy()
    assert len(count) == 1


def test_mapped_calls() -> None:
    rows = tg.randn(6, 40)
    values = tg.vmap(lambda x: call(SORT, x, results=(FLOATS, TensorType(int64, (40,))))[0])(rows)
    np.testing.assert_array_equal(values.numpy(), np.sort(rows.numpy(), axis=1))


def test_calls_beside_long_kernels_on_many_threads() -> None:
    """The caller does not hold the interpreter's lock while it waits for the thread that calls Python."""
    slow = ArrayWork("slow", lambda x: x + 1)

    @tg.jit
    def beside(x: Any, y: Any) -> Any:
        return call(slow, x)[0], (y @ y).exp().sum()

    x, y = tg.ones(40), tg.randn(200, 200) * 0.01
    for _ in range(20):
        a, _ = beside(x, y)
        assert a[0].item() == 2


def explode(x: Any) -> Any:
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x[:3], r"wrong: result 0 is float32 of shape \[3\]; float32 of shape \[40\] is declared"),
        (lambda x: x.astype(np.float64), "wrong: result 0 is float64"),
        (lambda x: (x, x), "wrong returned 2 arrays; 1 are declared"),
        (explode, "wrong raised ValueError: no luck"),
        (lambda x: x.__setitem__(0, 1), "wrong raised ValueError: .*read-only"),
    ],
)
def test_wrong_functions(fn: Callable[[Any], Any], message: str) -> None:
    work = ArrayWork("wrong", fn)
    for run in (lambda x: call(work, x)[0], tg.jit(lambda x: call(work, x)[0])):
        for _ in range(2):
            with pytest.raises(ForeignError, match=message):
                run(tg.ones(40)).numpy()
    assert call(ArrayWork("fine", lambda x: x + 1), tg.ones(40))[0][0].item() == 2


def test_the_checker_follows_calls() -> None:
    x, y = ProgramBuffer("x", FLOATS, "input"), ProgramBuffer("y", FLOATS, "output")
    t = ProgramBuffer("t", FLOATS, "temporary", offset=0)
    good = Program("p", (), (x, y), ("x",), ("y",), (Foreign(SORT, ("x",), ("y",)),))
    check_program(good)
    assert "0: y = call sort_arrays(x)" in str(good)
    with pytest.raises(CompileError, match="reads t, which nobody has written"):
        check_program(Program("p", (), (x, y, t), ("x",), ("y",), (Foreign(SORT, ("t",), ("y",)),), 160))
    with pytest.raises(CompileError, match="writes x, which is only read"):
        check_program(Program("p", (), (x, y), ("x",), ("y",), (Foreign(SORT, ("x",), ("x",)),)))
