"""The measurements of engines: what the documentation says is what the record holds."""

import json

import numpy as np

from bench import engines
from tests.source import ROOT
from tilegrad import nn


def test_the_table_is_that_of_the_record() -> None:
    (file,) = sorted((ROOT / "bench" / "results").glob("cpu-engines-*.json"))[-1:]
    page = (ROOT / "docs" / "inference.md").read_text()
    assert engines.table(json.loads(file.read_text())) in page
    assert file.name in page


def test_calls_are_timed() -> None:
    x = np.ones(3, np.float32)
    assert 0 < engines.timed([lambda x: x], x, 0.001) < 1
    assert 0 < engines.timed([lambda x: x] * 2, x, 0.001) < 1


def test_networks_take_their_examples() -> None:
    for name in ("lenet", "lstm"):
        model = engines.NETWORKS[name][0](nn).eval()
        assert model(engines.tg.tensor(engines.example(name, 1))).shape == (1, 10)
