"""Launches that are like one before: they do what the first did, see what has changed, and look at little."""

import re
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.language as tl
from tests.language.kernel_texts import made
from tests.language.test_wrong_kernels import COPY, LAUNCHES, OUT, X
from tilegrad.language import heuristics, kernel
from tilegrad.language import kernel as mark
from tilegrad.language.kernel import KernelFunction

MAX_CALLS = 32
"""Functions in Python that a repeated launch may call. (The slow way calls some two hundred.)"""
TIMES = 2


@kernel
def mixed(x, y, out, n, factor, BLOCK: tl.constexpr, NEGATED: tl.constexpr = False):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(x + i, mask=i < n) * factor + tl.load(y + i, mask=i < n)
    tl.store(out + i, -found if NEGATED else found, mask=i < n)


@kernel
def by_a_global(x, out):
    tl.store(out, tl.load(x) * TIMES)


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the slow path raise from now on."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the slow way")

    return lambda: monkeypatch.setattr(KernelFunction, "launch_anew", refuse)


def ready(*shape: int, device: str = "cpu") -> list[tg.Tensor]:
    """Three tensors that are in memory."""
    found = [tg.ones(*shape, device=device) * k for k in (1, 2, 3)]
    for x in found:
        x.tolist()
    return found


def calls_of(fn: Callable[[], object]) -> int:
    """Count the Python functions that are called."""
    seen: list[FrameType] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame) if event == "call" else None)
    try:
        fn()
    finally:
        sys.setprofile(None)
    return len(seen)


def test_a_repeated_launch_calls_little(refuses: Callable[[], None]) -> None:
    x, y, out = ready(100)
    launch = lambda: mixed[(4,)](x, y, out, 100, 2.0, BLOCK=32)  # noqa: E731
    first = calls_of(launch)
    for _ in range(8):  # the CPU measures the first ones
        launch()
    refuses()
    assert calls_of(launch) <= MAX_CALLS < first
    assert out.tolist() == [4.0] * 100


def test_numbers_grids_and_sizes_may_change(refuses: Callable[[], None]) -> None:
    x, y, out = ready(64)
    for _ in range(2):
        mixed[(2,)](x, y, out, 64, 2.0, BLOCK=32)
        mixed[lambda meta: (tg.cdiv(meta["n"], meta["BLOCK"]),)](
            x, out=out, y=y, n=64, factor=1.0, num_warps=2, BLOCK=32
        )
    refuses()
    mixed[1](x, y, out, 20, -3.0, BLOCK=32)
    assert out.tolist() == [-1.0] * 20 + [3.0] * 44
    mixed[lambda meta: (tg.cdiv(meta["n"], meta["BLOCK"]),)](x, out=out, y=y, n=33, factor=5.0, num_warps=4, BLOCK=32)
    assert out.tolist() == [7.0] * 33 + [3.0] * 31


def test_results_made_by_empty(refuses: Callable[[], None]) -> None:
    """Functions that launch a kernel into `empty` tensors write nothing to them before."""

    def sums(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        out = tg.empty_like(x)
        mixed[(tg.cdiv(x.numel(), 32),)](x, y, out, x.numel(), 1.0, BLOCK=32)
        return out

    x, y, _ = ready(100)
    sums(x, y)
    refuses()
    assert sums(x, y).tolist() == [3.0] * 100
    assert sums(sums(x, y), y).tolist() == [5.0] * 100
    x, y, _ = ready(3, 5)
    assert sums(x, y).tolist() == [[3.0] * 5] * 3


def test_what_is_read_is_computed_first() -> None:
    """`empty` has zeros for who reads it."""
    grown = made("i = tl.arange(0, 8)\ntl.store(x + i, tl.load(x + i) + 1.0)", "x")
    for _ in range(3):
        x = tg.empty(8)
        grown[1](x)
        assert x.tolist() == [1.0] * 8
        grown[1](y := tg.ones(8) * 2)
        assert y.tolist() == [3.0] * 8


def test_another_kind_of_argument_is_another_kernel() -> None:
    x, y, out = ready(32)
    wide = [v.to(tg.float64) for v in (x, y, out)]
    for _ in range(3):
        mixed[1](x, y, out, 32, 2, BLOCK=32)
        assert out.tolist() == [4.0] * 32
        mixed[1](x, y, out, 32, 0.5, BLOCK=32)
        assert out.tolist() == [2.5] * 32
        mixed[1](x, y, out, 1, True, BLOCK=32)
        assert out.tolist() == [3.0] + [2.5] * 31
        mixed[1](x, y, out, 32, 1, BLOCK=32, NEGATED=True)
        assert out.tolist() == [-3.0] * 32
        mixed[1](*wide, 32, 0.25, BLOCK=32)
        assert wide[2].tolist() == [2.25] * 32
        mixed[1](x, y, y, 32, 0.0, BLOCK=32)
        mixed[1](x, x, out, 32, 1.0, BLOCK=32)
        assert (y.tolist(), out.tolist()) == ([2.0] * 32, [2.0] * 32)


def test_on_another_device(refuses: Callable[[], None]) -> None:
    for place in ("cpu", "reference"):
        x, y, out = ready(32, device=place)
        for _ in range(2):
            mixed[1](x, y, out, 32, 2.0, BLOCK=32)
        assert out.tolist() == [4.0] * 32
    refuses()
    mixed[1](x, y, out, 32, 3.0, BLOCK=32)
    assert out.tolist() == [5.0] * 32


def test_a_constant_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, out = ready(1)
    for times in (2, 2, 5, 5, 2, 2):
        monkeypatch.setitem(globals(), "TIMES", times)
        by_a_global[1](x, out)
        assert out.item() == times


def test_heuristics_go_straight_too(refuses: Callable[[], None]) -> None:
    x, y, out = ready(32)
    by_rule = heuristics({"BLOCK": lambda given: given["n"]})(mark(mixed.fn))
    for factor in (1.0, 2.0):
        by_rule[1](x, y, out, 32, factor)
    refuses()
    by_rule[1](x, y, out, 32, 3.0)
    assert out.tolist() == [5.0] * 32


@pytest.fixture(scope="module")
def known() -> KernelFunction:
    """A kernel that has been launched as it should be."""
    k = made(COPY)
    for _ in range(3):
        k[4](X, OUT, 30, BLOCK=8)
        k[4](X, OUT, 30, 8)
    assert all(form.plans for form in k.forms.values())
    return k


@pytest.mark.parametrize("case", [name for name in LAUNCHES if name != "what was never launched"])
def test_wrong_launches_of_a_known_kernel(case: str, known: KernelFunction) -> None:
    launch, error, told = LAUNCHES[case]
    for _ in range(2):
        with pytest.raises(error, match=re.escape(told)):
            launch(known)


@pytest.mark.parametrize(
    ("grid", "told"),
    [((True,), "a grid is made of whole numbers"), ((), "has one to three axes"), (None, "a grid is made of")],
)
def test_wrong_grids_of_a_known_kernel(grid: Any, told: str, known: KernelFunction) -> None:
    for given in (grid, lambda meta: grid):
        with pytest.raises(tg.errors.KernelLaunchError, match=told):
            known[given](X, OUT, 30, BLOCK=8)
    with pytest.raises(tg.errors.KernelLaunchError, match="its grid asks for 'M'; there are x, out, n, BLOCK"):
        known[lambda meta: (meta["M"],)](X, OUT, 30, BLOCK=8)


def test_what_the_last_launch_was(known: KernelFunction) -> None:
    x, out = tg.ones(8), tg.zeros(8)
    for _ in range(3):
        known[1](x, out, 8, BLOCK=8)
    assert (known.report().programs, known.report().stored) == (1, 32)
    known[4](X, OUT, 30, BLOCK=8)
    assert known.report().programs == 4
    known[0](X, OUT, 30, BLOCK=8)
    assert known.latest().last.grid == (0,)  # type: ignore[union-attr]


def test_gradients_stop_where_they_do_at_first() -> None:
    x, y, out = ready(8)
    weight = tg.ones(8, requires_grad=True)
    for _ in range(3):
        mixed[1](x, y, out, 8, 2.0, BLOCK=8)
    mixed[1](weight, y, out, 8, 2.0, BLOCK=8)
    with pytest.raises(tg.errors.GradientError, match="was computed from what kernel mixed stored"):
        (out + 1).sum().backward()
    with tg.no_grad():
        for _ in range(3):
            mixed[1](x, y, weight, 8, 2.0, BLOCK=8)
    assert weight.requires_grad
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [2.0] * 8
    for _ in range(3):
        with pytest.raises(tg.errors.InPlaceError, match="a kernel has no derivative"):
            mixed[1](x, y, weight, 8, 2.0, BLOCK=8)
    loss = (weight * y).sum()
    mixed[1](x, y, y, 8, 2.0, BLOCK=8)
    with pytest.raises(tg.errors.TilegradError, match="mixed"):
        loss.backward()


def played(seed: int) -> list[Any]:
    """Record what a user sees who launches, reads, keeps, slices and writes in a random order."""
    random, found, held = Random(seed), [], []
    tensors: list[Any] = [tg.arange(6).float() + k for k in range(3)]
    steps: list[Callable[[], Any]] = [
        lambda: held.append(random.choice(tensors) * 2),
        lambda: held.append(random.choice(tensors).detach()),
        lambda: held.append(random.choice(tensors).view(2, 3)),
        lambda: held.append(random.choice(tensors)[2:]),
        lambda: random.choice(tensors).add_(1),
        lambda: random.choice(tensors)[1:3].fill_(random.randrange(9)),
        lambda: found.append(random.choice(tensors).tolist()),
        lambda: mixed[1](tensors[0], tensors[1], fresh := tg.empty(6), 6, 1.0, BLOCK=8) or held.append(fresh),
        lambda: found.append(random.choice(held).tolist()) if held else None,
        lambda: held.pop(random.randrange(len(held))) if held else None,
        lambda: mixed[1](held[0].reshape(-1), tensors[0], tensors[1], 3, 1.0, BLOCK=8) if held else None,
    ]
    for _ in range(40):
        if random.random() < 0.6:
            x, y, out = (random.choice(tensors) for _ in range(3))
            mixed[1](x, y, out, random.randrange(7), random.choice([1, 2, 0.5]), BLOCK=8)
            continue
        try:
            random.choice(steps)()
        except tg.errors.KernelLaunchError as refused:
            found.append(str(refused))
    return [found, [x.tolist() for x in (*tensors, *held)], [x._version for x in tensors]]


def test_in_any_order_it_is_as_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    straight = [played(seed) for seed in range(25)]
    monkeypatch.setitem(KernelFunction.launch.__globals__, "is_simple", lambda: False)
    assert straight == [played(seed) for seed in range(25)]
