"""What the viewer opens: traces, runs, programs; what is damaged, too large or something else is said in a sentence."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.profile.training import made
from tests.test_command_line import tilegrad
from tests.viewer.saved import data_alone
from tilegrad.errors import ArgumentError
from tilegrad.ir.stored import text_of
from tilegrad.serialization.event_files import field, record
from tilegrad.viewer.model import page_of
from tilegrad.viewer.page import page
from tilegrad.viewer.runs import MAX_POINTS, RunFolder, thinned
from tilegrad.viewer.sources import PageSource, opened
from tilegrad.viewer.traces import described

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x00'\"&;"


def write_run(folder: Path, steps: int = 30) -> None:
    with tg.tensorboard.SummaryWriter(folder) as writer:
        for n in range(steps):
            writer.add_scalar("loss", 1 / (n + 1), n, 1000.0 + n)
            writer.add_histogram("gradients/head.weight", np.array([3.0, 4.0]), n)
        writer.add_image("sample", np.zeros((1, 4, 4), np.float32), 3)
        writer.add_text("about", HOSTILE)
        writer.add_confusion_matrix("confusion", [[5, 1], [2, 7]], 29, ["cat", HOSTILE])


def span(name: str, start: float, length: float, **others: Any) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start, "dur": length, "pid": 1, "tid": 1, **others}


def test_a_trace_of_ours(tmp_path: Path) -> None:
    step, x, y = made()
    step(x, y)
    with tg.profiler.profile(profile_memory=True) as prof:
        for _ in range(3):
            step(x, y)
            prof.step()
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    (trace,) = opened(tmp_path / "trace.json.gz")["traces"]
    assert trace["lanes"][0]["name"] == "host: MainThread"
    labels = {label["name"]: label for label in trace["labels"]}
    assert labels["ProfilerStep#1"]["kind"] == "step"
    assert any(label["module"] == "head" and label["line"].startswith("training.py:") for label in trace["labels"])
    launches = [s for s in trace["lanes"][0]["spans"] if trace["labels"][int(s[3])]["kind"] == "launch"]
    assert len(launches) == len(prof.timeline.launches)
    assert {int(s[2]) for s in trace["lanes"][0]["spans"]} == {0, 1, 2}
    assert trace["counters"]
    prof.save(tmp_path / "profile.html")
    (saved,) = data_alone((tmp_path / "profile.html").read_text())["traces"]
    assert saved["lanes"] == trace["lanes"]


def test_spans_nest() -> None:
    spans = [span("outer", 0, 10), span("inner", 1, 3), span("next", 4, 2), span("later", 20, 1)]
    (lane,) = described("t", {"traceEvents": spans})["lanes"]
    assert [s[2] for s in lane["spans"]] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "event",
    [
        7, None, [], {}, {"ph": "X"}, span("a", -1, 1), span("a", 0, float("nan")), span("a", "b", 1),  # type: ignore[arg-type]
        {"ph": "C", "name": "m", "ts": 1, "args": 3}, {"ph": "C", "name": "m", "ts": 1, "args": {"x": "y"}},
        {"ph": "M", "name": "thread_name"}, span("a", True, 1),
    ],
)  # fmt: skip
def test_damaged_events_are_left_out(event: Any) -> None:
    trace = described("t", {"traceEvents": [event, span("good", 0, 1)]})
    assert sum(len(lane["spans"]) for lane in trace["lanes"]) == 1
    assert trace["note"] == "1 events are damaged and left out"


def test_of_many_spans_the_longest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegrad.viewer.traces.MAX_SPANS", 1_000)
    trace = described("t", {"traceEvents": [span("s", n, n % 100) for n in range(2_000)]})
    (lane,) = trace["lanes"]
    assert len(lane["spans"]) == 1_000
    assert min(s[1] for s in lane["spans"]) >= 49
    assert "1,000 of 2,000 spans are left out" in trace["note"]


def test_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "first")
    write_run(tmp_path / "second", 3)
    page = PageSource(tmp_path).page(live=True)
    assert page["live"]
    first, second = page["runs"]
    assert (first["name"], second["name"]) == ("first", "second")
    assert first["curves"]["loss"][1] == [1, 1001.0, 0.5]
    assert first["norms"]["gradients/head.weight"][0][2] == 5.0
    assert [p["tag"] for p in first["pictures"]] == ["sample"]
    assert first["matrices"][0]["rows"] == [[5, 1], [2, 7]]
    assert first["matrices"][0]["labels"] == ["cat", HOSTILE]
    assert first["texts"] == {"about": HOSTILE}


def test_a_run_is_read_while_it_is_written(tmp_path: Path) -> None:
    with tg.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.flush()
        folder = RunFolder(tmp_path)
        before = folder.refresh()
        assert folder.refresh() == before
        writer.add_scalar("loss", 0.5, 1)
        writer.flush()
        assert folder.refresh() > before
    assert [p[2] for p in folder.runs()[0]["curves"]["loss"]] == [1.0, 0.5]


def test_a_record_half_written_is_waited_for(tmp_path: Path) -> None:
    whole = record(field(1, 1.0) + field(2, 7) + field(5, field(1, field(1, "loss") + b"\x15\x00\x00\x00?")))
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(whole + whole[:20])
    folder = RunFolder(tmp_path)
    folder.refresh()
    path.write_bytes(whole + whole)
    folder.refresh()
    (run,) = folder.runs()
    assert [p[:1] + p[2:] for p in run["curves"]["loss"]] == [[7, 0.5], [7, 0.5]]
    assert not folder.notes()


CONFUSION = field(9, field(1, field(1, "confusion_matrix")))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("bit", lambda d: d[:200] + bytes([d[200] ^ 1]) + d[201:], "does not fit its checksum"),
        ("length", lambda d: d[:12] + d[12:].replace(d[:8], b"\xff" * 8, 1), ""),
        ("text", lambda d: b"this is no event file at all, but a text", "does not fit its checksum"),
        ("message", lambda d: d + record(b"\xff\xff"), "damaged events"),
        ("type", lambda d: d + record(b"\x0f"), "damaged events"),
        ("picture", lambda d: d + record(field(5, field(1, field(1, "p") + field(4, field(4, b"GIF89a"))))), "damaged"),
        ("matrix", lambda d: d + record(field(5, field(1, field(8, field(5, b"1234" * 3)) + CONFUSION))), "damaged"),
        ("step", lambda d: d + record(field(2, -1) + field(5, b"")), "damaged events"),
    ],
)  # fmt: skip
def test_damaged_event_files(name: str, damage: Any, said: str, tmp_path: Path) -> None:
    write_run(tmp_path, 5)
    (path,) = tmp_path.glob("events*")
    path.write_bytes(damage(path.read_bytes()))
    folder = RunFolder(tmp_path)
    folder.read_all()
    assert said in " ".join(folder.notes())
    page(page_of("t", runs=folder.runs(), notes=folder.notes()))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_a_gap(value: float, tmp_path: Path) -> None:
    with tg.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", value, 0)
    assert PageSource(tmp_path).page()["runs"][0]["curves"]["loss"][0][2] is None


def test_long_curves_are_thinned_and_keep_their_peaks() -> None:
    points = [[n, None, 100.0 if n == 77_777 else 1.0] for n in range(100_000)]
    kept = thinned(points)  # type: ignore[arg-type]
    assert len(kept) <= MAX_POINTS + 2
    assert max(p[2] or 0 for p in kept) == 100.0
    assert kept[-1] is points[-1]


def test_a_saved_program(tmp_path: Path) -> None:
    e = tg.explain(lambda x, y: (x @ y).relu().sum(), tg.ones(8, 4), tg.ones(4, 8))
    path = tmp_path / "program.json"
    path.write_text(text_of(e.program))
    (step,) = opened(path)["steps"]
    assert [k["name"] for k in step["kernels"]] == [launch.kernel.name for launch in e.kernels.launches]
    assert step["kernels"][0]["text"].startswith("@tg.kernel")
    assert step["nodes"][0]["role"] == "input"
    assert step["memory"]["live"][0] > 0


FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.json", b"", "nothing that can be shown"),
    "text": ("a.txt", b"hello", "nothing that can be shown"),
    "picture": ("a.png", b"\x89PNG\r\n", "nothing that can be shown"),
    "cut page": ("a.html", b"<!doctype html><html>", "no page of the viewer"),
    "page of bytes": ("a.html", b"<!doctype html>\xff\xfe", "can't decode"),
    "other version": ("a.json", b'{"format":0,"steps":[]}', "no page of the viewer"),
    "page without runs": (
        "a.json",
        b'{"format":1,"title":"t","steps":[],"traces":[],"notes":[]}',
        "no page of the viewer",
    ),
    "cut data": ("a.json", b'{"format":1,"steps":[', "no page of the viewer"),
    "cut trace": ("a.json", b'{"traceEvents": [', "no trace, or it is damaged"),
    "no list": ("a.json", b'{"traceEvents": 3}', "no list `traceEvents`"),
    "deep": ("a.json", b"[" * 100_000, "no trace, or it is damaged"),
    "no program": ("a.json", b'[["Name"],[],[]]', "no saved program"),
    "class of another": ("a.json", b'[["os.system"],["ls"],[[0,0]]]', "no saved program"),
    "cut packed": ("a.json.gz", gzip.compress(b'{"traceEvents": []}')[:-5], "damaged"),
    "not packed": ("a.json.gz", b"hello", "damaged"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_shown(name: str, tmp_path: Path) -> None:
    file, data, said = FILES[name]
    path = tmp_path / file
    path.write_bytes(data)
    with pytest.raises(ArgumentError, match=said):
        opened(path)
    if path.suffix in (".json", ".html"):
        write_run(tmp_path, 1)
        assert said in " ".join(PageSource(tmp_path).page()["notes"])


def test_a_trace_of_100_mb_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "trace.json").open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate(100_000_000)
    done = tilegrad("view", tmp_path / "trace.json")
    assert done.returncode == 1
    assert done.stderr == (
        "tilegrad view: trace.json has 100 MB: files of at most 64 MB are read. Record fewer steps, with "
        "tilegrad.profiler.schedule\n"
    )
    write_run(tmp_path, 1)
    assert "has 100 MB" in PageSource(tmp_path).page()["notes"][0]


def test_what_is_not_there_or_empty(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none", "there is no file or folder"), (tmp_path, "has nothing to show")):
        done = tilegrad("view", path)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_view_saves_a_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    done = tilegrad("view", tmp_path / "run", "--save", tmp_path / "x.html")
    assert done.returncode == 0, done.stderr
    data = data_alone((tmp_path / "x.html").read_text())
    assert not data["live"]
    assert len(data["runs"][0]["curves"]["loss"]) == 30
    done = tilegrad("view", tmp_path / "run", "--save", tmp_path / "none" / "x.html")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def test_a_saved_page_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    path.write_text(page(page_of("first", notes=["note"])))
    assert opened(path)["notes"] == ["note"]


def test_hostile_names_stay_texts(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    events = [span(HOSTILE, 0, 1, cat=HOSTILE, args={"lines": {HOSTILE: 1}, "module": HOSTILE})]
    trace.write_text(json.dumps({"traceEvents": events}))
    data = data_alone(page(opened(trace)))
    assert data["traces"][0]["labels"][0]["name"] == HOSTILE


def test_a_large_event_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = record(field(1, 1.0) + field(2, 7) + field(5, field(1, field(1, "loss") + b"\x15" + struct.pack("<f", 1))))
    (tmp_path / "events.out.tfevents.1").write_bytes(point * 3_000)
    monkeypatch.setattr("tilegrad.viewer.runs.MAX_READ_BYTES", 10_000)
    folder = RunFolder(tmp_path)
    folder.read_all()
    (run,) = folder.runs()
    assert len(run["curves"]["loss"]) <= MAX_POINTS + 2
    assert folder.readers[tmp_path.name].readers.popitem()[1].offset == len(point) * 3_000


def graph_node(name: str, op: str, *reads: str) -> bytes:
    return field(1, field(1, name) + field(2, op) + b"".join(field(3, r) for r in reads))


def test_the_graph_of_a_network_in_a_run(tmp_path: Path) -> None:
    net = tg.nn.Sequential(tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU()), tg.nn.Linear(4, 2))
    with tg.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, tg.ones(5, 3))
        writer.add_scalar("loss", 1.0, 0)
    (step,) = PageSource(tmp_path).page()["steps"]
    nodes = step["nodes"]
    assert {n["name"]: (n["module"], n["type"]) for n in nodes if n["role"] == "parameter"} == {
        "0.0.weight": ("0.0", "[4, 3]"), "0.0.bias": ("0.0", "[4]"), "1.weight": ("1", "[2, 4]"), "1.bias": ("1", "[2]")
    }  # fmt: skip
    assert [n["name"] for n in nodes if n["role"] == "input"] == ["input0"]
    assert {n["module"] for n in nodes if n["role"] == "operation"} >= {"0.0", "0.1", "1"}
    assert all(r < at for at, n in enumerate(nodes) for r in n["reads"])
    assert [n["type"] for n in nodes if n["output"]] == ["[5, 2]"]


def test_graphs_of_others(tmp_path: Path) -> None:
    """Edges to later nodes, loops, control inputs, numbers of outputs, missing nodes, markup; bytes of no graph."""
    graph = (
        graph_node("b", "Add", "a:1", "^c", "nobody") + graph_node("a", "Placeholder") + graph_node("c", HOSTILE, "b")
    )
    written = record(field(1, 1.0) + field(4, graph))
    (tmp_path / "events.out.tfevents.1").write_bytes(written + record(field(1, 1.0) + field(4, field(1, 7))))
    page_data = PageSource(tmp_path).page()
    (step,) = page_data["steps"]
    assert [(n["op"], n["reads"]) for n in step["nodes"]] == [("Placeholder", []), (HOSTILE, []), ("Add", [0, 1])]
    assert any("1 damaged events are left out" in note for note in page_data["notes"])
    assert HOSTILE not in page(page_data)
