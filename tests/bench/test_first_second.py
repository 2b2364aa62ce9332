"""Rows of the first second: programs give the same with every library; times and ratios are kept as they were found."""

from __future__ import annotations

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from bench.first_second import run
from bench.first_second.report import first_second_part, line
from bench.first_second.rows import BY_NAME, ROWS, Row, find
from bench.first_second.session import Session

QUICK = ["lengths:linear", "loops:item_products", "loops:item_reads", "loops:stacked", "loops:cat_pieces"]
QUICK += ["loops:scalars_each", "loops:items_each", "loops:elements_once", "large:total", "large:softmax"]


def results(program: str, library: Any, where: str = "") -> list[float]:
    module, _, function = program.partition(":")
    session = Session(library, lambda step: step, True, True, time.perf_counter())
    getattr(import_module(f"bench.first_second.{where or module}"), function)(library, session)
    assert session.end >= session.start
    return session.results


@pytest.mark.parametrize("program", QUICK)
def test_programs_give_the_same_with_both_libraries(program: str) -> None:
    torch = pytest.importorskip("torch")
    assert run.difference(results(program, tg), results(program, torch)) < 1e-4


def test_networks_give_the_same_with_jax() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for name in ("small_resnet", "gpt"):
        program = f"networks:{name}"
        assert run.difference(results(program, jax, "with_jax"), results(program, torch)) < 1e-3


def test_every_program_exists() -> None:
    for row in ROWS:
        module, _, function = row.program.partition(":")
        assert callable(getattr(import_module(f"bench.first_second.{module}"), function)), row.name
    with pytest.raises(SystemExit, match="no row 'vea'"):
        find(["vea"])
    assert not any(row.gpu for row in find([])), "a machine without a GPU measures the others"


def test_a_row_is_measured_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "cpu-first-second-2026-01-01.json"
    file.write_text(json.dumps({"rows": {"vae": {"kept": True}}}))
    run.main(["item_reads", "--quick", "--json", str(file)])
    found = json.loads(file.read_text())["rows"]
    assert found["vae"] == {"kept": True}
    record = found["item_reads"]
    assert set(record["figures"]) == {"tilegrad cold", "tilegrad warm", "torch"}
    assert record["unable"] == {}
    assert record["verified"] < 1e-4
    assert all(bytes > 1 << 20 for bytes in record["memory"].values())
    assert "wanted 1.5" in capsys.readouterr().out
    file.write_text(json.dumps({"rows": {"item_reads": record | {"load": 9.0}}}))
    assert "| `x[i].item()` † | 1.5 |" in first_second_part(tmp_path), "other work ran meanwhile"


def test_who_takes_too_long_or_differs_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("slow", "loops:item_reads", "slow", 1.5)
    said = run.once(row, "tilegrad cold", run.Settings(limit=0.01, small=True), "off")
    assert said["error"] == "more than 0 s"

    def once(row: Row, contender: str, settings: run.Settings, cache: str, checked: bool = False) -> dict[str, Any]:
        seconds = {"tilegrad cold": 3.0, "tilegrad warm": 2.0, "torch": 1.0}[contender]
        results = [2.0 if contender == "torch" else wrong]
        return {"seconds": seconds, "memory": 1, "drawn": False, "results": results}

    monkeypatch.setattr(run, "once", once)
    wrong = 2.1
    record = run.measure(row, run.Settings(rounds=2))
    assert record["unable"]["tilegrad cold"] == "its results differ by 5.0e-02 from those of torch"
    assert "missed" in line(record)
    wrong = 2.0
    record = run.measure(row, run.Settings(rounds=2))
    assert {c: x["median"] for c, x in record["ratios"].items()} == {"tilegrad cold": 3.0, "tilegrad warm": 2.0}
    assert "| slow | 1.5 | 3.00 | 2.00 | torch | 3.00 s, 2.00 s, 1.00 s | missed |" == line(record)


def test_an_error_of_a_program_is_shown() -> None:
    row = BY_NAME["item_reads"]._replace(program="loops:nothing_of_this_name")
    assert "nothing_of_this_name" in run.once(row, "tilegrad cold", run.Settings(small=True), "off")["error"]
