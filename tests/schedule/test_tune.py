"""The tuner, with a clock and times that the tests make: what is tried, what is taken, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.schedule.test_target_model import given
from tilegrad import compiler, config
from tilegrad.errors import ArgumentError
from tilegrad.ir.graph import Graph
from tilegrad.jitted import tuning
from tilegrad.ops.activation import softmax
from tilegrad.ops.contraction import matmul
from tilegrad.runtime.choice import Choice, chosen
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule import trial, tune
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.options import candidates, default
from tilegrad.schedule.trial import Contender
from tilegrad.schedule.tune import Tuned, TuningJob, jobs_of, merge_jobs

TARGET = TargetModel()._replace(single_instance_elements=16)
Times = Callable[[Choice | None], float]


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels run on the interpreter, on one copy of what they read."""
    monkeypatch.setattr(trial, "MAX_COPIES", 1)
    device("reference").__dict__["target"] = TARGET
    yield
    del device("reference").__dict__["target"]


def jobs(*graphs: Graph) -> list[TuningJob]:
    return merge_jobs([job for graph in graphs for job in jobs_of(fuse(graph, TARGET), {}, device("reference"))])


def product() -> Graph:
    x, y = given(33, 20), given(20, 40)
    return Graph((x, y), (matmul(x, y),))


def rows() -> Graph:
    x = given(12, 50)
    return Graph((x,), (softmax(x, -1),))


class Bench:
    """Gives each choice the time that the test says, and lets the clock go on by it."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self.now = 0.0
        self.seen: list[str] = []
        self.said: list[str] = []

    def measure(self, contender: Contender) -> float:
        self.seen.append(f"{contender.launch.kernel.name}: {contender.choice}")
        seconds = self.times(contender.choice)
        self.now += seconds
        return seconds

    def tune(self, jobs: list[TuningJob], seconds: float) -> Tuned:
        return tune.tune(jobs, seconds, self.said.append, self.measure, lambda: self.now)


def of_product(graph: Graph) -> list[Choice]:
    (group,) = fuse(graph, TARGET).groups
    return candidates(group, TARGET)


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [(0.5, True), (0.94, True), (0.96, False), (1.0, False), (2.0, False)],
    ids=lambda x: str(x),
)
def test_another_choice_is_taken_if_it_is_faster_by_more_than_noise(seconds: float, taken: bool) -> None:
    first, *others = of_product(product())
    bench = Bench(lambda choice: seconds if choice == others[1] else 1.0)
    (job,) = jobs(product())
    tuned = bench.tune([job], 1000.0)
    entry = tuned.found[job.digest]
    assert entry.choice == (others[1] if taken else first)
    assert tuned.faster == taken
    assert tuned[1:3] == (1, 1)
    assert entry.name == "contract"
    assert ("instead of 1 s" in entry.note) == taken
    assert entry.note.endswith("f32[33,20], f32[20,40] -> f32[33,40]")


def test_one_fast_run_among_slow_ones_does_not_count() -> None:
    first, other, *_ = of_product(product())
    times = iter([0.1, *[1.0] * 20])
    bench = Bench(lambda choice: next(times) if choice == other else 0.9)
    (job,) = jobs(product())
    assert bench.tune([job], 1000.0).found[job.digest].choice == first


def test_the_machine_was_busy_while_the_usual_one_ran() -> None:
    """Its median is bad, but its fastest run is as fast: nothing is known, so it stays."""
    first, _other, *_ = of_product(product())
    slow = iter([1.0, 1.0, *[5.0] * 20])
    bench = Bench(lambda choice: next(slow, 5.0) if choice in (None, first) else 1.0)
    (job,) = jobs(product())
    assert bench.tune([job], 1000.0).found[job.digest].choice == first


def test_rounds_are_interleaved() -> None:
    bench = Bench(lambda choice: 1.0)
    bench.tune(jobs(product()), 1000.0)
    tried = len(set(bench.seen[1:]))
    rounds = bench.seen[-tried * tune.ROUNDS :]
    assert [rounds[n : n + tried] for n in range(0, len(rounds), tried)] == [rounds[:tried]] * tune.ROUNDS


def test_the_worst_comes_first_and_what_runs_often_is_worse() -> None:
    found = jobs(product(), rows(), rows())
    assert sorted(job.launches for job in found) == [1, 2]
    usual_time = {"": 1.5, "rows": 1.0}
    bench = Bench(lambda choice: usual_time[choice.strategy] if choice and choice.strategy in usual_time else 1.0)
    bench.tune(found, 1000.0)
    after = [text for text in bench.seen[2:] if "None" not in text]
    assert after[0].startswith("mul")


def test_time_is_over() -> None:
    bench = Bench(lambda choice: 1.0)
    tuned = bench.tune(jobs(product(), rows()), 0.0)
    assert tuned == Tuned({}, 0, 2, 0, False)
    assert not bench.seen
    bench = Bench(lambda choice: 1.0)
    tuned = bench.tune(jobs(product(), rows()), 15.0)
    assert tuned.finished == 1
    assert bench.now < 40.0


def test_what_was_begun_is_measured_three_times_again() -> None:
    """The present kernel and the default choice are measured again, one more until the time is over, then both."""
    bench = Bench(lambda choice: 1.0)
    assert bench.tune(jobs(product()), 2.5).finished == 1
    assert bench.now == 3 + 3 * 2


@pytest.mark.parametrize("seconds", [2.0**-20, 2.0**-12, 1.0])
def test_the_time_of_a_launch_is_the_mean_of_as_many_as_the_clock_can_tell(seconds: float) -> None:
    runs: list[int] = []
    place = SimpleNamespace(synchronize=lambda: None)
    contender: Any = SimpleNamespace(place=place, run=lambda: runs.append(1), launches=4, times=[])
    found = trial.measured(contender, clock=lambda: len(runs) * seconds)
    assert found == pytest.approx(seconds / 4)
    turns = int(trial.MIN_SECONDS / seconds)
    assert len(runs) == trial.WARM_UP_RUNS + 1 + (turns if turns > 1 else 0)


def test_what_is_known_is_kept_when_somebody_interrupts() -> None:
    def times(choice: Choice | None) -> float:
        if bench.now > 130.0:
            raise KeyboardInterrupt
        return 1.0

    kept = []
    bench = Bench(times)
    found = jobs(product(), rows())
    tuned = tune.tune(
        found, 1000.0, measure=bench.measure, clock=lambda: bench.now, keep=lambda job, entry: kept.append(job.digest)
    )
    assert tuned.interrupted
    assert list(tuned.found) == kept
    assert tuned.finished == 1
    assert "interrupted" in tuning.summary(tuned, 1000.0)


def test_a_choice_with_other_results_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    first, wrong, *_ = of_product(product())
    lower = trial.lower

    def broken(group: object, names: object, target: object, choice: Choice | None = None) -> object:
        return (
            lower(group, names, target, chosen(m=1, n=1, k=1))
            if choice == wrong
            else lower(group, names, target, choice)
        )  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "lower", broken)
    monkeypatch.setattr(
        trial.Trial, "first_difference", lambda self, expected, made: "it is 3" if made.choice == wrong else ""
    )
    bench = Bench(lambda choice: 0.1 if choice == wrong else 1.0)
    (job,) = jobs(product())
    assert bench.tune([job], 1000.0).found[job.digest].choice == first
    assert any(f"{wrong} is left out: it is 3" in text for text in bench.said)


def test_results_are_compared_on_the_device() -> None:
    (job,) = jobs(product())
    here = trial.Trial(*job[1:5])
    made = here.contender(default(job.group, TARGET))
    results = here.results(made)
    assert not here.first_difference(results, made)
    name = list(results)[-1]
    results[name] = results[name] + 1
    assert f"{name}[0, 0] is" in here.first_difference(results, made)


def test_numbers_that_are_positions_stay_inside() -> None:
    x, at = tg.randn(7, 30, device="reference"), tg.tensor([3, 1, 0, 2], device="reference")
    compiled = tg.explain(lambda x, at: x[at].exp(), x, at).compiled
    schedule = compiled.stages["order"].artifact
    for job in jobs_of(schedule, {}, device("reference")):  # type: ignore[arg-type]
        here = trial.Trial(*job[1:5])
        here.results(here.contender(None))


def test_sizes_that_vary() -> None:
    @tg.jit
    def f(x: tg.Tensor) -> tg.Tensor:
        return (x.exp() + 1.0).t().contiguous()

    f(tg.ones(5, 12, device="reference"))
    prepared = f.prepared(tg.ones(9, 12, device="reference"))
    assert prepared.sizes
    schedule = prepared.program.compiled.stages["order"].artifact
    found = jobs_of(schedule, prepared.sizes, device("reference"))  # type: ignore[arg-type]
    tuned = Bench(lambda choice: 1.0).tune(found, 1000.0)
    assert tuned.finished == len(found) == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("20s", 20.0), ("1.5 m", 90.0), ("2h", 7200.0), ("300ms", 0.3), (4, 4.0)]
)
def test_times(text: str | float, seconds: float) -> None:
    assert tuning.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "20", -1, float("nan"), True])
def test_no_times(text: str | float) -> None:
    with pytest.raises(ArgumentError, match="a time is wanted"):
        tg.jit(tune=text)


def test_a_jitted_function_tunes_itself_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Choice | None] = []

    def measure(contender: Contender) -> float:
        tried.append(contender.choice)
        return 0.5 if contender.choice == chosen("loop", width=50) else 1.0

    monkeypatch.setattr(tuning, "measured", measure)
    path = tmp_path / "kernels.lock"
    path.write_text("# mine\n")
    x = tg.randn(12, 50, device="reference")
    with config.changed(lock=str(path)):
        f = tg.jit(tune="100s")(lambda x: x.softmax(-1))
        result = f(x)
        said = capsys.readouterr().err
        assert "1 of 1 kernels tuned, 1 of them faster than before" in said
        assert str(path) in said
        assert " = loop width=50  # 500 ms instead of 1 s" in path.read_text()
        assert path.read_text().startswith("# mine\n")
        np.testing.assert_allclose(result.cpu().numpy(), x.cpu().softmax(-1).numpy(), rtol=1e-5)
        program = f.prepared(x).program.compiled
        assert "for k in range(0, 50, 50)" in str(tg.explain(f, x).kernels)
        assert program.lock.entries
        tried.clear()
        tg.jit(tune="100s")(lambda x: x.softmax(-1))(x)
        assert not tried, "what is settled is not tuned again"
    with config.changed(lock=str(tmp_path / "nowhere" / "kernels.lock")):
        tg.jit(tune="100s")(lambda x: x.softmax(-1))(x)
        assert "not kept, since" in capsys.readouterr().err
    compiler._locks.clear()
