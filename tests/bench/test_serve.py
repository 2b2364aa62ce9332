"""The measurement of the server: its contenders give the same results, its ratios point the right way."""

from pathlib import Path

import numpy as np
import pytest

from bench import serve
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.engine_models import engine_loader


def test_contenders_have_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    serve.write_networks(tmp_path)
    ours = engine_loader()(tmp_path / "lenet.tgp", BatchSettings())
    theirs = serve.onnxruntime_loader(1)(tmp_path / "lenet.onnx", BatchSettings())
    assert [x.metadata() for x in ours.inputs] == [x.metadata() for x in theirs.inputs]
    for rows in (1, 5):
        x = ours.example(rows, 0)
        np.testing.assert_allclose(ours.inferencers[0](*x)[0], theirs.inferencers[0](*x)[0], rtol=1e-3, atol=1e-5)


def test_ratios_are_above_one_where_we_are_better() -> None:
    def sample(rate: float, p99: float) -> dict[str, float]:
        return {"requests_per_second": rate, "p50_ms": p99 / 2, "p99_ms": p99}

    found = serve.summary(
        {
            "tilegrad": [sample(300, 2), sample(200, 4), sample(400, 3)],
            "peer": [sample(100, 4), sample(100, 4), sample(100, 12)],
        }
    )
    assert (found["peer"]["throughput_ratio"], found["peer"]["p99_ratio"]) == (3.0, 2.0)
    assert found["tilegrad"]["requests_per_second"] == 300


def test_calls_on_the_loop_run_at_once() -> None:
    calls: list[int] = []
    serve.CallsOnTheLoop().submit(calls.append, 1)
    assert calls == [1]
