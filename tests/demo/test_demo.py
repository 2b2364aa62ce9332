"""The demonstration learns, shows what it did, and does the same again."""

from __future__ import annotations

import math
import time
from pathlib import Path

from tests.profile.test_explanation import stands_alone
from tests.test_command_line import tilegrad
from tilegrad.demo.report import curve
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
    text = (tmp_path / "digits.html").read_text()
    stands_alone(text)
    for words in ("Learning", "Reading", "Graph", "Groups", "Kernels", "Program and memory", "taken for", "tl.dot"):
        assert words in text


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


def test_a_curve_of_one_value_is_drawn() -> None:
    assert "<path" in curve([1.0], "epoch")
