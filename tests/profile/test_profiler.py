"""Profiles of programs as they really run."""

import gc
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
import tilegrad.language as tl
from tests.checklist import checklist
from tests.profile.training import made
from tilegrad import profiler
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.null import NullDriver
from tilegrad.config import changed
from tilegrad.errors import ArgumentError
from tilegrad.lazy import handle
from tilegrad.profile.count import Work
from tilegrad.profile.limit import limit_of
from tilegrad.profile.timeline import TimelineRecord, covered, nest
from tilegrad.profiler import profile, record_function, schedule
from tilegrad.runtime import events


@pytest.fixture(scope="module")
def found() -> Any:
    """A profile of five steps of training."""
    step, x, y = made()
    for _ in range(6):
        step(x, y)
    with profile(profile_memory=True, with_stack=True) as prof:
        for _ in range(5):
            with record_function("forward and backward"):
                step(x, y)
            prof.step()
    return prof


def test_every_launch_is_counted_and_timed(found: Any) -> None:
    launches = found.timeline.launches
    assert launches
    assert all(r.timed and r.nanoseconds > 0 for r in launches)
    assert f"{len(launches)} launches, {len(launches)} timed" in found.table()
    assert len(launches) % 5 == 0, "each step launches the same"


def test_totals_are_the_sums_of_their_parts(found: Any) -> None:
    rows = found.key_averages()
    records = found.events()
    assert sum(r.own for r in records) == covered((r.start, r.stop) for r in records)
    assert sum(a.self_cpu_time_total for a in rows) == pytest.approx(sum(r.own for r in records) / 1e3)
    assert all(r.own >= 0 for r in records)
    steps = [r for r in records if r.kind == "step"]
    assert [r.name for r in steps] == [f"ProfilerStep#{n}" for n in range(5)]
    assert sum(a.self_cpu_time_total for a in rows) == pytest.approx(sum(r.nanoseconds for r in steps) / 1e3)
    assert found.total_average().self_cpu_time_total == pytest.approx(sum(a.self_cpu_time_total for a in rows))


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=20)


@given(spans)
def test_own_times_of_nested_records_cover_what_the_outermost_do(found: list[tuple[int, int]]) -> None:
    """Whatever nests: own times add up to the union of all."""
    closed: list[tuple[int, int]] = []
    for start, length in sorted(found, key=lambda s: (s[0], -s[1])):
        stop = start + length
        if all(stop <= b or start >= b for a, b in closed if a <= start):
            closed.append((start, stop))
    records = [
        TimelineRecord("range", "x", "cpu", "main", a, b) for a, b in sorted(closed, key=lambda s: (s[0], -s[1]))
    ]
    nest(records)
    assert sum(r.own for r in records) == covered(closed)


def test_launches_have_lines_modules_and_work(found: Any) -> None:
    launches = found.timeline.launches
    assert all(r.source.lines for r in launches)
    assert all(sum(line.share for line in r.source.lines) == pytest.approx(1) for r in launches)
    assert {line.place.file for r in launches for line in r.source.lines} == {made.__code__.co_filename}
    modules = set(found.by_module())
    assert {"block.layers.0", "block.layers.1", "head"} <= modules
    assert sum(found.by_line().values()) == pytest.approx(sum(r.nanoseconds for r in launches) / 1e3)
    rows = [a for a in found.key_averages() if a.kind == "launch"]
    assert all(a.bytes and a.share_of_limit for a in rows)
    assert {a.bound for a in rows} <= {"memory", "cache", "arithmetic", "launch"}
    assert re.search(r"training\.py:\d+", found.table())


def test_the_profile_says_its_own_cost(found: Any) -> None:
    cost = re.search(r"recording took \S+ \((\S+) % of the time\)", found.table())
    assert cost is not None
    assert 0 < found.timeline.cost < found.timeline.ended - found.timeline.began


@checklist(108, 109)
def test_rows_are_limited_and_sorted(found: Any) -> None:
    table = found.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    assert table.count("\n") < found.table(row_limit=-1).count("\n")
    rows = found.key_averages()
    names = [a.key for a in sorted(rows, key=lambda a: -a.self_cpu_time_total)[:3]]
    assert [line.split("  ")[0] for line in table.splitlines()[3:6]] == names
    by_shape = found.key_averages(group_by_input_shape=True)
    assert any(a.input_shapes for a in by_shape)
    assert len(found.key_averages(group_by_stack_n=2)) >= len(rows)


@checklist(199)
def test_a_roofline(found: Any, tmp_path: Path) -> None:
    found.export_roofline(tmp_path / "roof.svg")
    picture = (tmp_path / "roof.svg").read_text()
    assert "measured limit" in picture
    assert picture.count("<circle") >= 3
    assert "block.layers.0" in picture
    with pytest.raises(ArgumentError, match="no kernel of cuda:0"):
        found.export_roofline(tmp_path / "none.svg", "cuda:0")


def test_stacks_of_the_user(found: Any, tmp_path: Path) -> None:
    found.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r".+ \d+", line) for line in lines)
    assert any("forward and backward;step;block.layers.0;training.py" in line for line in lines)


@pytest.mark.parametrize("ending", ["json", "html"])
def test_memory_over_time(found: Any, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"memory.{ending}"
    found.export_memory_timeline(path, "cpu")
    assert len(path.read_text()) > 50
    assert found.timeline.samples[0].live > 0


@checklist(112, 113, 115)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_schedule(one_by_one: bool) -> None:
    seen: list[tuple[int, list[str]]] = []

    def ready(p: Any) -> None:
        seen.append((p.step_num, [r.name for r in p.events() if r.kind == "step"]))

    plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    x = tg.ones(3)
    with profile(schedule=plan, on_trace_ready=ready, one_by_one=one_by_one) as p:
        for _ in range(10):
            x.exp()
            p.step()
    assert seen == [(4, ["ProfilerStep#2", "ProfilerStep#3"])]
    assert p.timeline.launches or one_by_one


def test_cycles_are_recorded_apart() -> None:
    steps: list[list[str]] = []
    ready = lambda p: steps.append([r.name for r in p.events() if r.kind == "step"])  # noqa: E731
    with profile(schedule=schedule(wait=0, warmup=1, active=1, skip_first=1), on_trace_ready=ready) as p:
        for _ in range(5):
            p.step()
    assert steps == [["ProfilerStep#2"], ["ProfilerStep#4"]]


def test_a_result_that_nobody_holds_is_computed_in_its_step() -> None:
    with profile() as p:
        tg.rand(64).realize().square()
        p.step()
    assert [r for r in p.timeline.launches if r.parent is not None]


def test_what_else_is_recorded() -> None:
    @tg.kernel
    def double(x: Any, out: Any, n: Any, B: tl.constexpr) -> None:
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

    x = tg.arange(8).float().realize()
    data = tg.data.TensorDataset(tg.rand(6, 4).realize())
    double[(1,)](x, x, 8, B=8)
    with changed(cache="off"), profile() as p:
        double[(1,)](x, x, 8, B=8)
        for (batch,) in tg.data.DataLoader(data, batch_size=2):
            (batch * 1.2345).exp().sum().item()
    kinds = {r.kind for r in p.events()}
    assert {"launch", "load", "compile", "run"} <= kinds
    (launch,) = [r for r in p.events() if r.name == "double"]
    assert launch.bytes >= 32
    assert "test_profiler.py" in launch.line


def test_a_decorated_function_is_a_row() -> None:
    @record_function("decorated")
    def work(n: int) -> Any:
        return tg.ones(n).exp().sum().item() if n < 2 else work(n - 1)

    with profile() as p:
        work(3)
    (row,) = [a for a in p.key_averages() if a.key == "decorated"]
    assert row.count == 3
    outermost = max(r.nanoseconds for r in row.records) / 1e3
    assert row.cpu_time_total == pytest.approx(outermost), "what is within itself is not counted twice"


@checklist(110)
def test_only_the_cpu() -> None:
    with profile(activities=[profiler.ProfilerActivity.CPU]) as p:
        (tg.ones(4, device="cpu") + 1).realize()
    assert {r.device for r in p.events()} == {"cpu"}


def test_nothing_is_recorded_outside() -> None:
    with profile() as p:
        pass
    (tg.ones(7) * 3).realize()
    assert not p.events()
    assert not events.listeners


def test_what_gave_no_time_is_a_dash() -> None:
    """A device that does not say how long its launches took."""
    from tilegrad.profile.recorder import Recorder
    from tilegrad.profile.timeline import timeline

    recorder = Recorder()
    recorder.recording = True
    launches = events.Launches("program", "cuda:0", [events.Launched("launch", "add", 1, 64)])
    recorder.run(events.Run(launches, 100, 200, ()))
    p = profile()
    p._timeline = timeline(recorder)
    table = p.table()
    (row,) = [line for line in table.splitlines() if line.startswith("add")]
    assert "0.00" not in row
    assert row.count("–") >= 12
    assert "Self CUDA time total: –" in table
    assert "1 launches, 0 timed: WARNING, 1 have no time (cuda:0 did not give it)" in table


def test_host_device_waiting_and_overlap_are_separate() -> None:
    """The device works from 100 to 400 while the host submits until 250 and loads from 350; the profile takes 1000."""
    from tilegrad.profile.timeline import Timeline

    records = [
        TimelineRecord("run", "step", "cuda:0", "main", 50, 250),
        TimelineRecord("launch", "matmul", "cuda:0", "cuda:0", 100, 300),
        TimelineRecord("launch", "add", "cuda:0", "cuda:0", 300, 400),
        TimelineRecord("load", "DataLoader", "cpu", "main", 350, 600),
    ]
    found = Timeline(records, [], 0, 1000)
    assert (found.busy("cuda:0"), found.overlap("cuda:0"), found.overlap("cpu")) == (300, 200, 0)
    p = profile()
    p._timeline = found
    assert "cuda:0: busy 0.300us, 0.200us of it while the host worked, too, waiting 0.700us of 1.000us" in p.table()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_within_a_profile() -> None:
    with profile() as p, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
        if not child:
            os._exit(len(events.listeners))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        (tg.ones(5) * 2).realize()
    assert p.timeline.launches


@pytest.mark.usefixtures("compiled")
@checklist(116)
def test_three_squares_one_by_one() -> None:
    """Rows have the names of the functions that were called, and the bytes that were moved."""
    x = tg.rand(300, 300).realize()
    with profile(one_by_one=True) as p:
        found = [tg.square(x), x * x, x**2]
    assert [r.name for r in p.events()] == ["square", "mul", "pow"]
    assert [r.bytes for r in p.events()] == [2 * 4 * 300 * 300] * 3
    assert all((y == found[0]).all() for y in found)
    assert "3 operations, computed one by one" in p.table()
    with profile(one_by_one=True) as p:
        layer = tg.nn.Linear(4, 3)
        (layer(tg.ones(2, 4)) @ tg.ones(3, 1)).sum().backward()
    assert {"linear", "matmul", "sum"} <= {r.name for r in p.events()}


def test_hints_for_what_loses_most() -> None:
    from tilegrad.profile.attribution import LaunchOrigin, Share
    from tilegrad.profile.averages import Average
    from tilegrad.profile.count import Work
    from tilegrad.profile.lines import FileLine
    from tilegrad.profile.table import hints

    def row(kind: str, name: str, ns: int, count: int, work: Work | None = None) -> Average:
        line = Share(FileLine("a.py", 3), 1.0)
        records = [
            TimelineRecord(kind, name, "cpu", "main", n * ns, (n + 1) * ns, source=LaunchOrigin((line,), work))
            for n in range(count)
        ]
        return Average(name, records, {"cpu": {"fma": 1e11, "read": 1e10}})

    found = hints([
        row("launch", "tiny", 2_000, 2048, Work(8, 8, 4)),
        row("launch", "large", 10_000_000, 10, Work(1 << 20, 1 << 20, 10)),
        row("launch", "good", 100_000_000, 10, Work(1 << 29, 1 << 29, 10)),
        row("range", "epoch", 5_000_000, 2),
        row("compile", "late", 1_000_000, 3),
    ])  # fmt: skip
    assert found == [
        "large: 2 % of the limit: 0.21 GB/s, bound by memory; `python -m tilegrad tune` looks for better tiles",
        "epoch: 10.000ms in Python, not in programs: `tilegrad.jit` of the step records it once",
        "tiny: 0 % of the limit: 2,048 launches of 2.000us, capture the loop with `jit`",
    ]


@pytest.mark.usefixtures("compiled")
@checklist(199)
def test_what_bounds_a_kernel() -> None:
    """Sums of large tensors are bound by memory, products by arithmetic; the limits are measured."""
    x, w = tg.rand(1 << 24).realize(), tg.rand(768, 768).realize()
    with profile() as p:
        (x + 1).realize()
        (w @ w).realize()
    bounds = {a.key: a.bound for a in p.key_averages() if a.kind == "launch"}
    assert bounds["add"] in ("memory", "cache"), "64 MB are in the cache of a large machine"
    assert bounds["contract"] == "arithmetic"


def calls(fn: Callable[[], Any]) -> int:
    """Count the calls of Python and C functions, without those of the garbage collector."""
    count = 0
    gc.collect()

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(note)
    try:
        fn()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_a_profile_costs_nothing_while_none_is_open() -> None:
    """A jitted call of a few elements makes the same calls before and after a profile, and none of `profile`."""
    handle.watch_with(None)  # nobody has measured time yet
    x = tg.rand(16).realize()
    small = tg.jit(lambda x: x * 2 + 1)
    for _ in range(20):
        small(x)
    before = calls(lambda: small(x))
    with profile():
        small(x)
    assert calls(lambda: small(x)) == before
    assert handle.watching() is None, "dropped results are tracked no more"
    assert before > 0


def test_a_profile_costs_little() -> None:
    """A run leaves one record, by at most so many calls, whatever it launches."""
    costs = []
    for deep in (1, 4):
        layers = [tg.nn.Linear(32, 32) for _ in range(deep)]
        step = tg.jit(tg.nn.Sequential(*[part for layer in layers for part in (layer, tg.nn.Softmax(1))]))
        x = tg.rand(8, 32).realize()
        for _ in range(20):
            step(x)
        plain = calls(lambda step=step, x=x: step(x))  # type: ignore[misc]
        with profile() as p:
            step(x)
            costs.append(calls(lambda step=step, x=x: step(x)) - plain)  # type: ignore[misc]
        assert len(p.timeline.launches) >= 2 * deep
    assert max(costs) <= 40


def test_products_in_matrix_units_have_limits_of_their_own() -> None:
    """A product of bfloat16 matrices is not measured by what multiply-adds of float32 can do."""
    narrow, wide = tg.rand(128, 128).to(tg.bfloat16).realize(), tg.rand(128, 128).realize()
    found = [tg.explain(tg.jit(lambda x: x @ x), x).measured.rows[0].work for x in (narrow, wide)]
    assert [work.product for work in found] == ["bfloat16", ""]
    limits = CudaDevice(NullDriver(), 0).limits
    seconds = [limit_of(Work(8, 8, 10**15, product), limits).seconds for product in ("", "tf32", "bfloat16", "int8")]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 10 * seconds[2]
    assert limit_of(Work(8, 8, 10**15, "float4"), limits).bound == "", "not known, so no share is told"
    assert limit_of(Work(8, 8, 10**15, "bfloat16"), {"fma": 1e12}).seconds == 1000, "a CPU's peak is one"
