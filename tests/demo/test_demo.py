"""The demonstration learns, shows what it did, and does the same again."""

from __future__ import annotations

import math
import time
from pathlib import Path

from tests.test_command_line import tilegrad
from tests.viewer.saved import data_alone
from tilegrad.demo.training import train


def test_it_learns_to_read_and_reports(tmp_path: Path) -> None:
    start = time.monotonic()
    done = tilegrad("demo", "--output", "digits.html", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    accuracy = float(done.stdout.split(" % of the unseen digits")[0].rpartition("\n")[2])
    assert accuracy >= 97.0
    for words in ("epochs", "steps in", "of limit", "bound by", "GFLOP/s on", "░", "digits.html"):
        assert words in done.stdout
    data = data_alone((tmp_path / "digits.html").read_text())
    (step,), (run,) = data["steps"], data["runs"]
    assert len(step["kernels"]) > 5
    assert any("tl.dot" in kernel["text"] for kernel in step["kernels"])
    assert {node["name"] for node in step["nodes"]} >= {"0.weight", "6.bias"}
    assert len(run["curves"]["loss"]) == 660
    (matrix,) = run["matrices"]
    assert sum(map(sum, matrix["rows"])) == 360
    wrong = 360 - sum(matrix["rows"][n][n] for n in range(10))
    assert len(run["pictures"]) == min(24, wrong)


def test_every_stage_of_it_can_be_explained(tmp_path: Path) -> None:
    done = tilegrad("explain", "tilegrad.demo", "--epochs", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for stage in ("lines", "graph", "fuse", "kernels", "program", "assembly", "measured"):
        assert f"=== {stage} ===" in done.stdout
    assert "loss = cross_entropy(model(images), labels)" in done.stdout


def test_the_same_seed_gives_the_same_network() -> None:
    def losses(seed: int) -> list[float]:
        return train(seed, 1, lambda epoch, loss, score: None).losses

    first = losses(3)
    assert not any(map(math.isnan, first))
    assert losses(3) == first
    assert losses(4) != first
