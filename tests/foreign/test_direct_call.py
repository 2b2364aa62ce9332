"""Calls on tensors in memory: nothing is recorded or looked up twice, and all else is as it was."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import DTypeError, ForeignError, GradientError, ShapeError
from tilegrad.foreign.function import CppFunction
from tilegrad.runtime import events

pytestmark = pytest.mark.usefixtures("cpp")

module = tg.cpp.inline(
    """
    void scaled(const float *x, float by, int64_t shift, float *out, int64_t n) {
        TG_CHECK(by != 13, "thirteen");
        for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by + shift;
    }
    void parts(const float *x, const float *y, float *sum, float *product, int64_t n) {
        for (int64_t i = 0; i < n; ++i) { sum[i] = x[i] + y[i]; product[i] = x[i] * y[i]; }
    }
    """,
    """
    scaled(x: float[n], by: float = 2.0, shift: long = 0) -> float[n]
    parts(x: float[n], y: float[n]) -> (sum: float[n], product: float[n])
    """,
)
MAX_CALLS = 8
"""Python functions that a call may enter; the slow way enters about forty."""


@tg.op("tests::scaled_by(x: F[n], by: float) -> F[n]")
def scaled_by(x: Any, by: float) -> Any:
    return x * by + 1


@scaled_by.kernel("cpu")
def in_cpp(x: Any, by: float) -> Any:
    return module.scaled(x, by, 1)


@scaled_by.gradient
def gradient(by: float, upstream: Any) -> Any:
    return upstream * by


def calls(fn: Callable[[], Any]) -> int:
    """Count the Python functions that a call enters."""
    count = 0

    def note(_: Any, kind: str, __: Any) -> None:
        nonlocal count
        count += kind == "call"

    sys.setprofile(note)
    try:
        fn()
    finally:
        sys.setprofile(None)
    return count - 1


@pytest.fixture
def x() -> tg.Tensor:
    return tg.arange(4).float().realize()


def test_a_call_enters_few_functions(x: tg.Tensor) -> None:
    for fn in (lambda: module.scaled(x, 3.0, 1), lambda: module.parts(x, x), lambda: module.scaled(x, 3, 1)):
        first = [fn(), fn()][1]
        assert calls(fn) <= MAX_CALLS, "a lambda, the call, what is ready, and a record"
        for one, other in zip(fn(), first, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_numbers_may_change_from_call_to_call(x: tg.Tensor) -> None:
    for by in (2.0, -1.5, 3, 2.0):
        for shift in (0, 5):
            np.testing.assert_array_equal(module.scaled(x, by, shift).numpy(), x.numpy() * by + shift)
    assert module.scaled(x).tolist() == [0, 2, 4, 6]
    assert module.scaled(x, by=4.0).tolist() == [0, 4, 8, 12]


def test_what_is_not_so_simple_goes_the_other_way(x: tg.Tensor) -> None:
    module.scaled(x, 2.0, 0)
    assert module.scaled(x[::2].contiguous(), 2.0, 0).tolist() == [0, 4]
    assert module.scaled(x[1:3], 2.0, 0).tolist() == [2, 4]
    assert module.scaled(x + 1, 2.0, 0).tolist() == [2, 4, 6, 8]
    assert tg.vmap(lambda row: module.scaled(row, 2.0, 0))(tg.ones(2, 4).realize()).tolist() == [[2.0] * 4] * 2
    assert tg.jit(lambda x: module.scaled(x, 2.0, 0) + 1)(x).tolist() == [1, 3, 5, 7]
    for wrong, error in ((tg.ones(2, 2), ShapeError), (tg.ones(4).double(), DTypeError), ([1.0], DTypeError)):
        with pytest.raises(error):
            module.scaled(wrong, 2.0, 0)
    with pytest.raises(DTypeError):
        module.scaled(x, "2", 0)
    with pytest.raises(DTypeError):
        module.scaled(x, 2.0, 0.5)


def test_what_was_written_is_seen(x: tg.Tensor) -> None:
    half = x[:2]
    module.scaled(x, 2.0, 0)
    half.add_(10)
    assert module.scaled(x, 2.0, 0).tolist() == [20, 22, 4, 6]
    x.zero_()
    assert module.scaled(x, 2.0, 1).tolist() == [1, 1, 1, 1]
    result = module.scaled(x, 2.0, 1)
    result.add_(1)
    assert (result.tolist(), module.scaled(x, 2.0, 1).tolist()) == ([2] * 4, [1] * 4)


def test_failures_and_refusals_stay(x: tg.Tensor) -> None:
    module.scaled(x, 2.0, 0)
    for _ in range(2):
        with pytest.raises(ForeignError, match="scaled: thirteen"):
            module.scaled(x, 13.0, 0)
    assert module.scaled(x, 1.0, 0).tolist() == x.tolist()
    tracked = tg.arange(4).float().requires_grad_()
    with pytest.raises(GradientError, match="scaled has no derivative"):
        module.scaled(tracked, 2.0, 0).sum().backward()
    with tg.no_grad():
        assert not module.scaled(tracked, 2.0, 0).requires_grad


def test_checked_calls_are_checked(x: tg.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = tg.cpp.inline("for (int64_t i = 0; i <= n; ++i) out[i] = x[i];", "beyond(x: float[n]) -> float[n]")
    good = tg.cpp.inline("for (int64_t i = 0; i < n; ++i) out[i] = x[i];", "good(x: float[n]) -> float[n]")
    good(x), good(x)
    with config.changed(check="foreign"):
        assert good(x).tolist() == x.tolist()
        with pytest.raises(ForeignError, match="beyond"):
            beyond(x)


def test_an_operator_of_one_call_is_called_at_once(x: tg.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (x.numpy() * 3 + 1).tolist()
    assert scaled_by(x, 3.0).tolist() == wanted, "recorded, and compiled"
    made = scaled_by(x, 3.0)
    assert made.value.buffer is not None
    assert made.tolist() == wanted
    assert calls(lambda: scaled_by(x, 3.0)) <= 30, "recording and running enters more than a hundred"
    assert scaled_by(x.cos(), 3.0).value.buffer is None, "what it needs is not there yet"
    assert scaled_by(x, 2.0).tolist() == (x.numpy() * 2 + 1).tolist(), "another number is another meaning"
    assert tg.jit(lambda x: scaled_by(x, 3.0))(x).tolist() == wanted


def test_such_an_operator_has_its_gradient() -> None:
    scaled_by(tg.ones(4).realize(), 3.0).numpy()
    x = tg.arange(4).float().realize().requires_grad_()
    x.realize()
    y = scaled_by(x, 3.0)
    assert y.requires_grad
    assert y.value.buffer is not None
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * (x.detach().numpy() * 3 + 1) * 3)
    assert tg.autograd.gradcheck(lambda x: scaled_by(x, 3.0), x, eps=1e-2, atol=1e-2)


def test_who_listens_hears_of_it(x: tg.Tensor) -> None:
    scaled_by(x, 3.0).numpy()
    module.scaled(x, 3.0, 1)
    seen: list[events.TimedEvent] = []
    with events.listening(seen.append):
        scaled_by(x, 3.0).numpy()
        module.scaled(x, 3.0, 1)
    assert [e.name for e in seen if e.kind == "launch"] == ["scaled", "scaled"]


def test_more_kinds_of_calls_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegrad.foreign.function.MAX_PREPARED_CALLS", 3)
    fn = tg.cpp.inline("for (int64_t i = 0; i < n; ++i) out[i] = x[i] + 1;", "plus(x: float[n]) -> float[n]")
    assert isinstance(fn, CppFunction)
    for _ in range(2):
        for n in range(8):
            assert fn(tg.zeros(n)).tolist() == [1.0] * n
    assert len(fn._ready) <= 3
