"""Launches are timed by the GPU's own records where they can be trusted, else by events, and profiles say by which."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tests.backend.cuda.simulated_cupti import COPY_NS, KERNEL_NS, VERSIONS, RecordedDriver, SimulatedCupti, Work
from tests.backend.cuda.test_cuda_programs import program, run
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.launch_times import TRIAL_NS
from tilegrad.config import changed
from tilegrad.profile.timeline import TimelineRecord
from tilegrad.profiler import profile, schedule
from tilegrad.runtime import events
from tilegrad.serialization.trace_files import faults, read_trace

BY_RECORDS, BY_EVENTS = "timed by the GPU's own records (CUPTI)", "timed by events"
Recorded = Callable[..., tuple[CudaDevice, Any, SimulatedCupti]]


@pytest.fixture
def recorded(make_gpus: Maker) -> Recorded:
    """Create a GPU with records, and a program that has run often enough to be a graph."""

    def make(runs: int = 4, **options: Any) -> tuple[CudaDevice, Any, SimulatedCupti]:
        cupti = SimulatedCupti(**options)
        (gpu,) = make_gpus(driver=RecordedDriver(cupti))
        executable = gpu.load(program(64))
        run(gpu, executable, 64, times=runs)
        return gpu, executable, cupti

    return make


def launches(p: profile) -> list[TimelineRecord]:
    return sorted((r for r in p.timeline.launches if r.run is not None), key=lambda r: r.start)


@pytest.mark.parametrize(
    ("version", "names_nodes"),
    [
        (version, field)
        for version, layout in VERSIONS.items()
        for field in ("node", "order", *(["source_node"] if layout.kernel_source else []))
    ],
)
def test_launches_of_a_graph_have_their_own_times(version: str, names_nodes: str, recorded: Recorded) -> None:
    gpu, executable, cupti = recorded(version=version, names_nodes=names_nodes)
    graphs = gpu.driver.counts["launch_graph"]  # type: ignore[attr-defined]
    with profile() as p:
        run(gpu, executable, 64, times=3)
    assert gpu.driver.counts["launch_graph"] == graphs + 3 + 1, "it ran as without a profile; one is the trial's"  # type: ignore[attr-defined]
    found = launches(p)
    assert sorted(r.name for r in found) == ["add"] * 6 + ["copy u"] * 3
    for r in found:
        assert r.timed
        assert r.nanoseconds == (KERNEL_NS if r.name == "add" else COPY_NS)
        assert p.timeline.began <= r.start <= p.timeline.ended
    assert not any(r.name == "delay" for r in p.timeline.launches), "the trial is no part of the profile"
    assert BY_RECORDS in p.table()
    assert "WARNING" not in p.table()
    assert not cupti.enabled, "nothing is recorded after the profile"


def test_launches_one_by_one_and_copies_of_tensors(recorded: Recorded) -> None:
    """The first runs are no graphs; copies between host and GPU have rows of their own."""
    gpu, executable, _ = recorded(runs=0)
    with profile() as p:
        run(gpu, executable, 64, times=2)
    assert [r.name for r in launches(p) if r.name == "add"] == ["add"] * 4
    assert all(r.timed for r in p.timeline.launches)
    outside = [r for r in p.timeline.launches if r.run is None]
    assert {(r.name, r.bytes, r.nanoseconds) for r in outside} == {
        ("copy host to device", 256, COPY_NS), ("copy device to host", 256, COPY_NS)
    }  # fmt: skip
    assert {a.key: a.count for a in p.key_averages() if a.kind == "copy" and a.key != "copy u"} == {
        "copy host to device": 2, "copy device to host": 4
    }  # fmt: skip


def test_steps_of_a_schedule_hold_their_own_work(recorded: Recorded) -> None:
    gpu, executable, _ = recorded()
    kept: list[list[str]] = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=1, repeat=2),
        on_trace_ready=lambda p: kept.append([r.name for r in launches(p) if r.timed and r.name == "add"]),
    ) as p:
        for _ in range(6):
            run(gpu, executable, 64)
            p.step()
    assert kept == [["add", "add"]] * 2
    assert all(p.timeline.began <= r.start for r in p.timeline.launches)


def test_a_training_step_and_its_trace(make_gpus: Maker, tmp_path: Path) -> None:
    (gpu,) = make_gpus(driver=RecordedDriver())
    model = tg.nn.Linear(8, 4).to(gpu.name)
    optimizer = tg.optim.SGD(model.parameters(), 0.1)
    x = tg.ones(4, 8, device=gpu.name)

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step(x).item()
    with profile() as p:
        for _ in range(3):
            step(x).item()
            p.step()
    found = launches(p)
    assert found
    assert all(r.timed and r.line for r in found if r.kind == "launch")
    p.export_chrome_trace(tmp_path / "trace.json")
    trace = read_trace(str(tmp_path / "trace.json"))
    assert faults(trace) == []
    lanes = {row["args"]["name"] for row in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
             if row["name"] == "thread_name"}  # fmt: skip
    assert any(lane.startswith(f"{gpu.name} stream ") for lane in lanes)
    p.export_roofline(tmp_path / "roof.svg", gpu.name)
    assert "published peak" in (tmp_path / "roof.svg").read_text()


def test_overlapping_launches_have_lanes_of_their_own_and_are_counted_once() -> None:
    of = events.Launches("p", "cuda:0", [events.Launched("launch", name, n) for n, name in enumerate("abc", 1)])
    spans = [events.LaunchSpan(100, 200, 7), events.LaunchSpan(150, 180, 7), None]
    p = profile()
    p._recorder.recording = True
    p._recorder.began = 0
    p._recorder.run(events.Run(of, 10, 20, (), (), 0, spans, "x"))
    p._recorder.recording = False
    a, b, c = (next(r for r in p.timeline.launches if r.name == name) for name in "abc")
    assert (a.lane, b.lane) == ("cuda:0 stream 7", "cuda:0 stream 7 (2)")
    assert (a.own, b.own, b.parent) == (100, 30, None)
    assert p.timeline.busy("cuda:0") == 100
    assert not c.timed
    assert "3 launches, 2 timed: WARNING" in p.table()


# --- what cannot be trusted ------------------------------------------------------------------------


def by_events(p: profile, reason: str) -> None:
    table = p.table()
    assert f"{BY_EVENTS}, one launch after the other, where graphs overlap them ({reason}" in " ".join(table.split())
    assert BY_RECORDS not in table
    assert [r.name for r in launches(p)].count("add") == 2
    assert all(r.timed for r in launches(p))


@pytest.mark.parametrize("shift", [4, 8, 16, 24])
def test_a_layout_that_differs_is_found_by_the_trial(shift: int, recorded: Recorded) -> None:
    gpu, executable, cupti = recorded(shift=shift)
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    by_events(p, "")
    assert not cupti.enabled


def test_records_without_regions_are_not_used(recorded: Recorded) -> None:
    gpu, executable, _ = recorded(tells_regions=False)
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    by_events(p, "CUPTI's records are not what they should be: 0 of 3 kernels of a trial were found again")


def test_a_clock_of_another_rate_is_found_by_the_trial(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, executable, cupti = recorded()
    worked = cupti.worked
    monkeypatch.setattr(cupti, "worked", lambda w: worked(w._replace(nanoseconds=w.nanoseconds // 2)))
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    by_events(p, f"CUPTI's records are not what they should be: kernels of {TRIAL_NS} ns took")


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        ("cuptiActivityEnable", 35, "CUPTI gives no times: the driver does not allow profiling by users: NVreg_"),
        ("cuptiActivityEnable", 39, "CUPTI gives no times: another profiler uses it"),
        ("cuptiActivityEnable", 999, "CUPTI gives no times: cuptiActivityEnable answers 999, unknown"),
    ],
)
def test_refusals_are_told_and_the_next_profile_asks_again(
    function: str, status: int, reason: str, recorded: Recorded
) -> None:
    gpu, executable, cupti = recorded()
    cupti.refused[function] = status
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    by_events(p, reason)
    cupti.refused.clear()
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    assert BY_RECORDS in p.table()


def test_a_setting_forbids_the_library(recorded: Recorded) -> None:
    gpu, executable, cupti = recorded()
    with changed(cupti=False), profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
        assert not cupti.enabled
    by_events(p, "TILEGRAD_CUPTI=off)")


def test_without_the_library_events_time_launches(gpu: CudaDevice) -> None:
    executable = gpu.load(program(64))
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    by_events(p, "CUPTI is not installed)")


def test_graphs_whose_nodes_have_no_names_run_step_by_step(recorded: Recorded) -> None:
    gpu, executable, _ = recorded(names_nodes="nothing")
    graphs = gpu.driver.counts["launch_graph"]  # type: ignore[attr-defined]
    with profile() as p:
        run(gpu, executable, 64, times=3)
    assert gpu.driver.counts["launch_graph"] == graphs + 1  # type: ignore[attr-defined]
    assert [r.nanoseconds for r in launches(p) if r.name == "add"] == [KERNEL_NS] * 6
    assert BY_RECORDS in p.table()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w._replace(name="another"), "the launch of add_kernel has records of another"),
        (lambda w: w._replace(nanoseconds=10**10), "lies outside of its recording"),
        (lambda w: w._replace(nanoseconds=-(10**9)), "lies outside of its recording"),
    ],
)
def test_records_that_go_wrong_later_are_missing_times_with_a_warning(
    change: Callable[[Work], Work], reason: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, executable, cupti = recorded()
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with profile():
        executable.run(given)
    worked = cupti.worked
    monkeypatch.setattr(cupti, "worked", lambda w: worked(change(w) if w.kind == "launch" else w))
    with pytest.warns(UserWarning, match=reason), profile() as p:
        executable.run(given)
    assert not any(r.timed for r in launches(p))
    assert "WARNING, 3 have no time" in p.table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with profile() as p:
            executable.run(given)
    by_events(p, "CUPTI's records are not what they should be: ")


def test_other_listeners_have_times_at_once(recorded: Recorded) -> None:
    """Who counts or times launches without a profile is told when they run."""
    gpu, executable, cupti = recorded()
    seen: list[events.TimedEvent] = []
    with events.listening(seen.append):
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    assert [e.name for e in seen] == ["add", "add", "u", "two"]
    assert not cupti.enabled


def test_what_events_time_is_not_reported_again(recorded: Recorded) -> None:
    """Another listener wants times at once; or operations are computed one by one."""
    gpu, executable, cupti = recorded()
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with profile() as p:
        executable.run(given)
        with events.listening(lambda _: None):
            executable.run(given)
    assert sorted(r.name for r in p.timeline.launches) == ["add"] * 4 + ["copy u"] * 2
    with profile(one_by_one=True) as p:
        tg.ones(8, device=gpu.name).exp().realize()
    assert p.timeline.of("operation")
    assert not [r for r in p.timeline.launches if r.kind == "launch"]
    assert not cupti.enabled


def test_many_records_take_several_buffers(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegrad.backend.cuda.activity.BUFFER_BYTES", 4096)
    gpu, executable, cupti = recorded()
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with profile() as p:
        for _ in range(50):
            executable.run(given)
    assert cupti.buffers > 5
    assert [r.nanoseconds for r in launches(p) if r.name == "add"] == [KERNEL_NS] * 100


def test_users_kernels_are_timed(recorded: Recorded) -> None:
    from tests.backend.cuda.test_cuda_programs import ADD

    gpu, _, _ = recorded()
    launch = gpu.compile(ADD)
    x, out = gpu.from_host(np.ones(32, np.float32)), gpu.allocate(128)
    with profile() as p:
        launch([x, x, out, 32], (2,))  # type: ignore[list-item]
    (found,) = launches(p)
    assert (found.name, found.timed, found.nanoseconds) == ("add", True, KERNEL_NS)


def test_a_disturbed_trial_is_repeated(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process on the GPU delays a kernel once."""
    gpu, executable, cupti = recorded()
    worked, delays = cupti.worked, iter([500_000])
    monkeypatch.setattr(
        cupti,
        "worked",
        lambda w: worked(w._replace(nanoseconds=w.nanoseconds + (w.name == "delay" and next(delays, 0)))),
    )
    with profile() as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    assert BY_RECORDS in p.table()
    assert gpu.driver.counts["launch_graph"] == 2 + 2 + 1  # type: ignore[attr-defined]


def test_a_profile_that_fails_leaves_no_buffer_with_the_library(recorded: Recorded) -> None:
    """What it would return at the end of the process has no Python to return to."""
    gpu, executable, cupti = recorded()

    def interrupted() -> None:
        with profile():
            executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
            gpu.synchronize()
            assert cupti.records
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert not cupti.enabled
    assert not cupti.records


def test_two_gpus_have_their_own_times(make_gpus: Maker) -> None:
    gpus = make_gpus(2, driver=RecordedDriver(devices=2))
    programs = [gpu.load(program(64)) for gpu in gpus]
    for gpu, executable in zip(gpus, programs, strict=True):
        run(gpu, executable, 64, times=4)
    with profile() as p:
        for gpu, executable in zip(gpus, programs, strict=True):
            run(gpu, executable, 64)
    for gpu in gpus:
        found = [r for r in launches(p) if r.device == gpu.name]
        assert [r.nanoseconds for r in found if r.name == "add"] == [KERNEL_NS] * 2
        assert {r.device for r in p.timeline.launches if r.name == "copy device to host"} == {g.name for g in gpus}


def test_counters_of_gpus_are_not_read_and_a_line_says_so(recorded: Recorded) -> None:
    gpu, executable, _ = recorded()
    with profile(with_counters=True) as p:
        executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    assert f"hardware counters of {gpu.name}: not read" in p.table()
