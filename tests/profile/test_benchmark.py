"""Times are those of the work: finished, warmed up, and no better than the machine. The clock is a fake one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.errors import ArgumentError, RuntimeFault
from tilegrad.profile import benchmark
from tilegrad.profile.chart import Curve, chart
from tilegrad.runtime import events
from tilegrad.testing import Benchmark, assert_close, do_bench, perf_report
from tilegrad.utils.benchmark import Compare, Timer


class Clock:
    """A clock that counts a millisecond for each launch, and a microsecond for each look at it."""

    def __init__(self) -> None:
        self.ns = 1

    def __call__(self, event: events.TimedEvent) -> None:
        if event.kind == "launch":
            self.ns += 1_000_000

    def perf_counter_ns(self) -> int:
        self.ns += 1_000
        return self.ns

    def perf_counter(self) -> float:
        return self.perf_counter_ns() * 1e-9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(benchmark, "time", made)
    with events.listening(made):
        yield made


@checklist(107)
def test_the_first_call_is_not_in_the_result(clock: Clock) -> None:
    calls: list[int] = []

    def slow_at_first() -> None:
        calls.append(1)
        clock.ns += 50_000_000 if len(calls) == 1 else 1_000_000

    assert do_bench(slow_at_first, warmup=1, rep=5, return_mode="max") == pytest.approx(1.001)
    assert do_bench(slow_at_first, rep=5, quantiles=[0.0, 0.5, 1.0]) == pytest.approx([1.001] * 3)


@checklist(105)
def test_a_naive_timer_misses_the_work_and_ours_does_not(clock: Clock) -> None:
    """Work is recorded when it is written down and computed when it is looked at: a host timer sees the recording."""
    x = tg.rand(50, 50).realize()
    chain = lambda: x @ x @ x @ x  # noqa: E731
    do_bench(chain, rep=5)
    start = clock.perf_counter_ns()
    kept = chain()
    naive = clock.perf_counter_ns() - start
    tg.synchronize()
    start = clock.perf_counter_ns()
    chain().numpy()
    truth = clock.perf_counter_ns() - start
    assert naive == 1_000, "nothing ran: the clock saw its own cost only"
    assert truth >= 1_000_000
    assert do_bench(chain, rep=5, return_mode="min") == pytest.approx(truth / 1e6)
    assert kept.shape == (50, 50)


def test_gradients_are_cleared() -> None:
    w = tg.ones(3).requires_grad_()
    do_bench(lambda: (w * w).sum().backward(), warmup=1, rep=1, grad_to_none=[w])
    assert w.grad.tolist() == [2, 2, 2]


def test_a_rate_above_the_machine_is_refused(clock: Clock) -> None:
    with pytest.raises(RuntimeFault, match="more than cpu can do .* bound by memory"):
        do_bench(lambda: None, warmup=0, rep=1, bytes=1 << 36)


def test_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @perf_report(
        Benchmark(
            x_names=["n"],
            x_vals=[2, 4, 8],
            line_arg="way",
            line_vals=["a", "b"],
            line_names=["First", "<Second>"],
            plot_name="sums",
            args={"scale": 2.0},
            x_log=True,
            ylabel="ms",
        )
    )
    def measured(n: int, way: str, scale: float) -> Any:
        return n * scale if way == "a" else (n / scale, 0.0, 99.0)

    (rows,) = measured.run(print_data=True, save_path=str(tmp_path))
    assert rows[0] == [2, 4.0, (1.0, 0.0, 99.0)]
    assert (tmp_path / "sums.csv").read_text() == "n,First,<Second>\n2,4,1\n4,8,2\n8,16,4\n"
    picture = (tmp_path / "sums.svg").read_text()
    assert picture.count("<polyline") == 2
    assert "&lt;Second&gt;" in picture
    assert "First" in capsys.readouterr().out


def test_a_timer_and_a_comparison(clock: Clock) -> None:
    """What a statement leaves to compute is computed within its time."""
    x = tg.rand(16).realize()
    found = [
        Timer("f(x)", globals={"f": f, "x": x}, label="squares", sub_label="16", description=name).blocked_autorange(
            min_run_time=0.005
        )
        for name, f in {"x*x": lambda x: x * x, "square": lambda x: x.square()}.items()
    ]
    assert [m.median for m in found] == pytest.approx([1.001e-3] * 2), "a launch each, and a look at the clock"
    assert all(m.iqr == pytest.approx(0, abs=1e-9) for m in found)
    text = str(Compare(found))
    assert text.splitlines()[0].split() == ["[squares]", "x*x", "square"]
    once = Timer("x = 1").timeit(100)
    assert once.number_per_run == 100
    assert "Median" in repr(once)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: do_bench(3), "function without arguments"),  # type: ignore[arg-type]
    "a mode": (lambda: do_bench(print, return_mode="best"), "return_mode is one of"),
    "names": (lambda: Benchmark(["n"], [1], "w", ["a", "b"], ["A"], "x", {}), "2 line_vals have 1"),
    "no sizes": (lambda: Benchmark(["n"], [], "w", ["a"], ["A"], "x", {}), "at least one"),
    "a folder": (lambda: Benchmark(["n"], [1], "w", ["a"], ["A"], "../x", {}), "without folders"),
    "sizes": (
        lambda: perf_report(Benchmark(["n", "m"], [(1, 2, 3)], "w", ["a"], ["A"], "x", {}))(print).run(), "3 sizes"
    ),
    "C++": (lambda: Timer("x", language="c++"), "tilegrad.cpp"),
    "no runs": (lambda: Timer("x").timeit(0), "at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    fn, message = WRONG[name]
    with pytest.raises(ArgumentError, match=message):
        fn()


def test_results_that_agree() -> None:
    assert_close(tg.tensor([1.0, 2.0]), np.array([1.0, 2.0000001], np.float32))
    assert_close(tg.tensor([float("inf"), float("nan")]), tg.tensor([float("inf"), float("nan")]), equal_nan=True)
    assert_close(tg.tensor([3, 4]), tg.tensor([3, 4]))
    assert_close(tg.zeros(0), tg.zeros(0))


DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "shape": (tg.ones(2), tg.ones(3), r"shapes differ: \[2\], and \[3\] expected"),
    "dtype": (tg.ones(2), tg.ones(2).long(), "dtypes differ: float32, and int64"),
    "one": ([[0.0, 1.0], [2.0, 3.0]], [[0.0, 1.0], [2.5, 4.0]], r"2 of 4 .* first at \[1, 0\]: 2.0 and 2.5 expected"),
    "worst": ([0.0, 1.0], [0.1, 3.0], r"largest difference is 2 at \[1\]"),
    "nan": ([float("nan")], [1.0], r"1 of 1 elements differ; the first at \[0\]: nan"),
    "number": (1.0, 2.0, r"first at \[\]"),
    "int": (tg.tensor([1, 2]), tg.tensor([1, 3]), r"at \[1\]: 2 and 3"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_results_that_differ(name: str) -> None:
    actual, expected, message = DIFFERENT[name]
    with pytest.raises(AssertionError, match=message):
        assert_close(actual, expected)


@pytest.mark.parametrize(
    "points", [[], [(0.0, 0.0)], [(1.0, float("nan")), (2.0, 3.0)], [(1.0, -1.0), (10.0, 5.0)]], ids=str
)
@pytest.mark.parametrize("log", [False, True])
def test_a_chart_of_anything(points: list[tuple[float, float]], log: bool) -> None:
    text = chart("<t>", [Curve("a&b", points)], x_log=log, y_log=log)
    assert text.startswith("<svg")
    assert "nan" not in text
    assert "<t>" not in text
