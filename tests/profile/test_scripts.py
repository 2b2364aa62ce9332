"""Scripts of a lecture and of a lab run unmodified with `python -m tilegrad.torch`, and print PyTorch's columns."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.source import ROOT
from tilegrad.serialization.trace_files import faults, read_trace

SCRIPTS = Path(__file__).parent / "scripts"
HOST = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
DEVICE = ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"]
OURS = ["GB/s", "GFLOP/s", "of limit", "Bound by"]


def ran(name: str, folder: Path, *options: str) -> str:
    """Run a script; where there is no GPU, on a simulated one if it asks for one."""
    simulated = () if tg.cuda.is_available() or name == "lab" else ("--simulate",)
    line = [sys.executable, "-m", "tilegrad.torch", *simulated, str(SCRIPTS / f"{name}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each printed table: its heads, then its rows."""
    found = []
    parts = re.findall(r"^-+(?:  -+)+\n(.*)\n-+(?:  -+)+\n((?:.*\n)*?)-+(?:  -+)+\n", text, re.MULTILINE)
    for heads, rows in parts:
        lines = [heads, *rows.splitlines()]
        found.append([re.split(r" {2,}", line.strip()) for line in lines])
    return found


@checklist(105, 106, 108, 109, 116)
def test_timers_and_three_squares(tmp_path: Path) -> None:
    text = ran("timers", tmp_path)
    assert text.count("tensor([1., 4., 9.]") == 3
    found = tables(text)
    assert [rows[1][0] for rows in found] == ["square", "mul", "pow"]
    assert all(rows[0] == [*HOST, *DEVICE, "# of Calls", *OURS] for rows in found)
    assert text.count("Self CUDA time total: ") == 3
    assert "0.000us" not in text, "what was not measured is a dash"


@checklist(110, 111, 112, 113, 114, 115)
def test_a_schedule_and_a_handler(tmp_path: Path) -> None:
    text = ran("schedule", tmp_path, str(tmp_path))
    ((heads, *rows),) = tables(text)
    assert heads == [*HOST, *DEVICE, "# of Calls", *OURS]
    calls = {row[0]: row[heads.index("# of Calls")] for row in rows}
    assert calls["ProfilerStep*"] == calls["square"] == "2"
    assert [file.name for file in tmp_path.glob("test_trace_*.json")] == ["test_trace_4.json"]
    (logged,) = (tmp_path / "log").glob("*.pt.trace.json")
    for file in (tmp_path / "trace.json", tmp_path / "test_trace_4.json", logged):
        assert not faults(read_trace(file))
    names = {e["name"] for e in json.loads((tmp_path / "test_trace_4.json").read_text())["traceEvents"]}
    assert {"ProfilerStep#2", "ProfilerStep#3", "square"} <= names


@checklist(24, 114)
def test_a_lab(tmp_path: Path) -> None:
    text = ran("lab", tmp_path)
    ((heads, *rows),) = tables(text)
    on_gpu = DEVICE if tg.cuda.is_available() else []
    assert heads == [*HOST, *on_gpu, "# of Calls", *OURS, "Input Shapes"]
    named = [(row[0], row[heads.index("# of Calls")], row[-1]) for row in rows]
    assert ("conv2d", "1", "[[16, 8, 12, 12], [16, 8, 3, 3], [16]]") in named
    assert ("linear", "1", "[[16, 400], [32, 400], [32]]") in named
    assert "model_inference" in {name for name, _, _ in named}
    assert list((tmp_path / "runs").glob("events.out.tfevents.*"))
    assert not faults(read_trace(tmp_path / "lab.json"))
    assert re.search(r"Net: eager\n  Median: ", text)


def test_the_columns_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        torch.square(torch.ones(3))
    text = prof.key_averages(group_by_input_shape=True).table(row_limit=3)
    heads = re.split(r" {2,}", text.splitlines()[1].strip())
    assert heads == [*HOST, "# of Calls", "Input Shapes"]
