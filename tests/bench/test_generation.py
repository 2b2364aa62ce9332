"""The benchmark of decoding runs, and refuses contenders with other tokens."""

from typing import Any

import pytest

from bench import generation


@pytest.mark.peers
def test_a_quick_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    small = generation.Task("small", 11, 32, 8, 2, 2, 3, 4, 5)
    monkeypatch.setattr(generation, "tasks", lambda on_gpu, quick: iter([small]))
    monkeypatch.setattr(generation.machine, "describe", dict)
    (row,) = generation.main(["--quick", "--uncompiled"])["rows"]
    assert row["same_tokens"] == {"tilegrad": 1.0, "torch": 1.0}
    assert row["ratios"].keys() == {"torch"}
    assert "small, batch 3: tokens/s" in capsys.readouterr().out


@pytest.mark.peers
def test_other_tokens_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    small = generation.Task("small", 11, 32, 8, 2, 2, 3, 4, 5)
    made = generation.contenders(small, "cpu", {"torch": None})
    wrong: Any = generation.Contender(made["torch"].begin, lambda: [0, 1, 2])
    monkeypatch.setattr(generation, "contenders", lambda *given: {**made, "wrong": wrong})
    with pytest.raises(AssertionError, match="other tokens than PyTorch's: .*'wrong': 0"):
        generation.measured(small, "cpu", {}, 1)
