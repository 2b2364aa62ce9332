"""Mistakes with profiles are reported in words, and the training goes on where it can."""

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad import profiler
from tilegrad.errors import ArgumentError
from tilegrad.profile import recorder
from tilegrad.profile.difference import differences
from tilegrad.profiler import ProfilerAction, profile, record_function, schedule
from tilegrad.runtime import events


def stopped() -> profile:
    with profile() as p:
        (tg.ones(3) + 2).realize()
    return p


def within(fn: Callable[[Any], Any], **options: Any) -> Any:
    with profile(**options) as p:
        return fn(p)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "stop without start": (lambda: profile().stop(), "stop\\(\\) without start"),
    "stopped twice": (lambda: stopped().stop(), "stop\\(\\) without start"),
    "step before": (lambda: profile().step(), "outside of the profile"),
    "step after": (lambda: stopped().step(), "outside of the profile"),
    "started twice": (lambda: within(lambda p: p.start()), "runs already"),
    "two at once": (lambda: within(lambda p: profile().start()), "another profile is open"),
    "nested": (lambda: within(lambda p: within(print)), "another profile is open"),
    "nothing to look at": (lambda: profile(activities=[]), "activities is empty"),
    "a word for an activity": (lambda: profile(activities=["cpu"]), "of ProfilerActivity, not 'cpu'"),
    "a schedule that is a number": (lambda: profile(schedule=3), "schedule is a function"),
    "a handler that is a folder": (lambda: profile(on_trace_ready="./log"), "on_trace_ready is a function"),
    "an option nobody knows": (lambda: profile(with_everything=True), "no option 'with_everything'"),
    "a schedule that gives numbers": (lambda: profile(schedule=lambda n: n).start(), "gives a ProfilerAction"),  # type: ignore[return-value]
    "no active step": (lambda: schedule(wait=1, warmup=1, active=0), "active is at least 1"),
    "negative wait": (lambda: schedule(wait=-1, warmup=1, active=1), "not negative"),
    "negative skip": (lambda: schedule(wait=1, warmup=1, active=1, skip_first=-2), "not negative"),
    "negative repeat": (lambda: schedule(wait=1, warmup=1, active=1, repeat=-1), "not negative"),
    "half a step": (lambda: schedule(wait=0.5, warmup=1, active=1), "not negative"),  # type: ignore[arg-type]
    "a name that is a number": (lambda: record_function(7), "name is a text"),  # type: ignore[arg-type]
    "sorted by nonsense": (lambda: stopped().table(sort_by="speed"), "sort_by is 'speed'"),
    "half a row": (lambda: stopped().table(row_limit=1.5), "row_limit is a whole number"),  # type: ignore[arg-type]
    "stacks of nonsense": (lambda: stopped().export_stacks("x", "speed"), "metric is 'speed'"),
    "memory that was not looked at": (lambda: stopped().export_memory_timeline("x.json"), "profile_memory=True"),
    "a timeline as a picture": (
        lambda: within(lambda p: p, profile_memory=True).export_memory_timeline("x.gif"), "not '.gif'"
    ),
    "a difference to nothing": (lambda: stopped().diff({}), "rows with count, low, median and high"),
    "a difference to a number": (lambda: stopped().diff(7), "rows with count"),  # type: ignore[arg-type]
    "a difference to words": (lambda: stopped().diff({"rows": {"a": "b"}}), "rows with count"),
    "a roofline of no device": (lambda: stopped().export_roofline("x.svg", "cuda:7"), "no kernel of cuda:7"),
    "a half way": (lambda: stopped().key_averages().table(sort_by=3), "sort_by is 3"),  # type: ignore[arg-type]
    "activities that are no list": (lambda: profile(activities=3), "a list of ProfilerActivity, not 3"),  # type: ignore[arg-type]
    "memory of a plain function": (lambda: tg.memory.peak(print), r"that tilegrad\.jit has made"),
    "memory of what never ran": (lambda: tg.memory.peak(tg.jit(lambda x: x)), "no program yet"),
    "a difference to no file": (lambda: stopped().diff("none.json"), "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    fn, message = WRONG[name]
    with pytest.raises(ArgumentError, match=message):
        fn()
    for left in list(profiler.profile.__init__.__globals__["_open"]):
        left._close()
    assert not events.listeners
    assert stopped().timeline.launches, "the next profile works"


def test_a_schedule_that_never_records() -> None:
    with (  # noqa: PT031
        pytest.warns(UserWarning, match="records none of the first 4"),
        profile(schedule=schedule(wait=8, warmup=1, active=1)) as p,
    ):
        for _ in range(3):
            p.step()
    assert not p.events()


@pytest.mark.parametrize("folder", ["a file", "read-only"])
def test_a_trace_that_cannot_be_written(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only disk: the training goes on, and nothing is half written."""
    place = tmp_path / "log"
    if folder == "a file":
        place.write_text("in the way")
    else:
        place.mkdir()

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
    steps = 0
    ready = profiler.tensorboard_trace_handler(place)
    with (  # noqa: PT031
        pytest.warns(UserWarning, match="the trace is not written"),
        profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1), on_trace_ready=ready) as p,
    ):
        for _ in range(3):
            (tg.ones(3) + 2).realize()
            steps += 1
            p.step()
    assert steps == 3
    assert place.is_file() or not list(place.iterdir())


def test_a_handler_that_raises() -> None:
    def ready(p: Any) -> None:
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"), profile(on_trace_ready=ready):
        pass
    with (
        pytest.raises(ValueError, match="of the user"),
        profile(schedule=schedule(wait=0, warmup=0, active=1), on_trace_ready=ready) as p,
    ):
        p.step()
    assert not events.listeners


@pytest.mark.parametrize("does", ["stop", "step", "start", "export", "table"])
def test_a_handler_that_uses_its_profile(does: str, tmp_path: Path) -> None:
    """Within `on_trace_ready` the records can be read; what makes no sense there is an error in words."""
    seen: list[Any] = []

    def ready(p: Any) -> None:
        actions: dict[str, Callable[[], Any]] = {
            "stop": p.stop, "step": p.step, "start": p.start,
            "export": lambda: p.export_chrome_trace(tmp_path / "t.json"), "table": p.table,
        }  # fmt: skip
        try:
            actions[does]()
        except ArgumentError as problem:
            seen.append(str(problem))

    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1), on_trace_ready=ready) as p:
        (tg.ones(3) + 2).realize()
        p.step()
        p.step()
    assert not events.listeners
    assert len(seen) == (does in ("stop", "step", "start"))
    assert (tmp_path / "t.json").exists() is (does == "export")


@pytest.mark.parametrize("path", ["none/x.json", "folder"])
@pytest.mark.parametrize("method", ["export_chrome_trace", "export_stacks", "export_roofline"])
def test_a_file_that_cannot_be_written(path: str, method: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with profile() as p:
        (tg.rand(64, 64) @ tg.rand(64, 64)).realize()
    with pytest.raises(OSError, match=f"{path} cannot be written: "):
        getattr(p, method)(tmp_path / path)
    assert [file.name for file in tmp_path.rglob("*")] == ["folder"]


def test_a_schedule_that_raises() -> None:
    def plan(step: int) -> ProfilerAction:
        if step == 2:
            raise KeyError("of the user")
        return ProfilerAction.RECORD

    with pytest.raises(KeyError, match="of the user"), profile(schedule=plan) as p:  # noqa: PT012
        p.step()
        p.step()
    assert not events.listeners
    assert stopped().timeline.launches


def test_a_profile_that_is_used_again() -> None:
    p = stopped()
    first = len(p.timeline.launches)
    with p:
        (tg.ones(3) + 2).realize()
        (tg.ones(3) + 3).realize()
    assert first == 1
    assert len(p.timeline.launches) == 2, "the second time replaces the first"


def test_an_interrupt_within_a_profile() -> None:
    with pytest.raises(KeyboardInterrupt), profile():
        raise KeyboardInterrupt
    assert not events.listeners


def test_a_process_that_dies_within_a_profile(tmp_path: Path) -> None:
    """Nothing half-written stays: not of the trace, not of others."""
    code = (
        "import os, tilegrad as tg; from tilegrad.profiler import *\n"
        "ready = tensorboard_trace_handler('log')\n"
        "with profile(schedule=schedule(wait=0, warmup=0, active=1), on_trace_ready=ready) as p:\n"
        "    (tg.ones(3) + 2).realize(); p.step(); (tg.ones(3) + 2).realize(); os._exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    (written,) = (tmp_path / "log").iterdir()
    json.loads(written.read_text())


def test_a_program_that_raises_within_a_profile() -> None:
    ready: list[Any] = []
    with pytest.raises(ZeroDivisionError), profile(on_trace_ready=ready.append) as p:  # noqa: PT012
        (tg.ones(3) + 2).realize()
        1 / 0  # noqa: B018
    assert not events.listeners
    assert not ready
    assert p.timeline.launches, "what ran until then is there"


def test_more_records_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_RECORDS", 10)
    with profile() as p:
        for _ in range(25):
            with record_function("again"):
                pass
    assert len(p.events()) == 10
    assert "15 records are left out" in p.table()


@pytest.mark.parametrize(
    "name", ["", " ", "\n", "<b>&\"'", "%s %d {}", "名前", "a" * 5000, "\x00", "[red]x[/red]", ";;"]
)
def test_names_with_anything_in_them(name: str, tmp_path: Path) -> None:
    with profile() as p, record_function(name):
        pass
    assert [r.name for r in p.events()] == [name]
    assert len(p.table().splitlines()[3]) < 400
    p.export_chrome_trace(tmp_path / "t.json")
    rows = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert name in {e["name"] for e in rows}
    p.export_stacks(tmp_path / "s.txt")


def test_ranges_that_cross_threads() -> None:
    def work() -> None:
        for _ in range(20):
            with record_function("inside"):
                (tg.ones(8) * 1.5).realize()

    with profile() as p:
        threads = [threading.Thread(target=work, name=f"worker-{n}") for n in range(3)]
        for thread in threads:
            thread.start()
        with record_function("outside"):
            for thread in threads:
                thread.join()
    rows = {a.key: a for a in p.key_averages()}
    assert rows["inside"].count == 60
    assert rows["outside"].count == 1
    assert all(r.own >= 0 for r in p.events())
    assert {r.lane for r in p.events()} >= {f"worker-{n}" for n in range(3)}


def test_threads_one_after_the_other_with_one_name() -> None:
    """The system gives the identifier of a thread that has ended to the next one."""
    with profile() as p:
        for _ in range(3):
            thread = threading.Thread(target=lambda: (tg.ones(4) + 1).realize(), name="same")
            thread.start()
            thread.join()
    assert len({r.lane for r in p.events() if r.kind == "run"}) == 3


def test_nothing_ran() -> None:
    with profile() as p:
        pass
    assert "0 launches, 0 timed" in p.table()
    assert p.total_average().count == 0
    assert not p.by_line()
    assert str(p.diff(p)).startswith("0 of 0")


def test_the_action_of_each_step() -> None:
    plan = schedule(wait=1, warmup=1, active=1, repeat=2, skip_first=1)
    names = [plan(n).value for n in range(9)]
    assert names == [0, 0, 1, 3, 0, 1, 3, 0, 0]
    assert ProfilerAction(3) is ProfilerAction.RECORD_AND_SAVE


def row(*times: float) -> dict[str, float]:
    low, median, high = times
    return {"count": 5, "low": low, "median": median, "high": high, "total": 5 * median}


def test_what_got_slower() -> None:
    before = {"rows": {"a": row(10, 11, 12), "b": row(10, 11, 12), "c": row(10, 11, 30), "gone": row(1, 1, 1)}}
    after = {"rows": {"a": row(20, 22, 24), "b": row(5, 5, 6), "c": row(14, 15, 16), "new": row(1, 2, 3)}}
    found = differences(before, after)
    assert [c.key for c in found.slower] == ["a"]
    text = str(found)
    assert text.splitlines()[0].startswith("slower   a: 11.000us -> 22.000us (20.000us to 24.000us), x 2.00")
    assert "faster   b" in text
    assert "the same c" in text, "spreads overlap"
    assert "new      new: 2.000us x 5" in text
    assert "gone     gone" in text
    assert text.endswith("1 of 5 got slower by more than the spread of their times")


def test_compare_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tilegrad.__main__ import main

    p = stopped()
    p.export_chrome_trace(tmp_path / "a.json")
    slow = {"rows": {key: {n: 50 * v + 50 for n, v in r.items()} for key, r in p.summary()["rows"].items()}}
    (tmp_path / "b.json").write_text(json.dumps(slow))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert "slower" in capsys.readouterr().out
    (tmp_path / "c.json").write_text("{")
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "c.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "none.json"), str(tmp_path / "c.json")]) == 2


def test_no_warning_without_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stopped().events()
