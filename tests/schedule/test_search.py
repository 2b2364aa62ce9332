"""The tuner against every way to cut a product, by times that were measured once (bench/search_space.py)."""

from __future__ import annotations

import json
from pathlib import Path

from tests.checklist import checklist
from tests.schedule.test_target_model import given
from tilegrad.backend.null.device import NullDevice
from tilegrad.ir.graph import Graph
from tilegrad.ops.contraction import matmul
from tilegrad.runtime.device import register
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule import tune
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.trial import Contender

RECORD = json.loads(Path(__file__).with_name("search_space.json").read_text())
SECONDS: dict[str, float] = RECORD["seconds"]


class OneThread(NullDevice):
    """The target on which the times were measured."""

    @property
    def target(self) -> TargetModel:  # type: ignore[override]
        return TargetModel(workers=1)


@checklist(172)
def test_the_tuner_finds_nine_tenths_of_the_best_in_a_fifth_of_the_trials() -> None:
    size = RECORD["size"]
    x, y = given(size, size), given(size, size)
    place = register(OneThread("one-thread"))
    (job,) = tune.jobs_of(fuse(Graph((x, y), (matmul(x, y),)), place.target), {}, place)
    tried: set[str] = set()

    def measured(contender: Contender) -> float:
        choice = str(contender.choice)
        if contender.choice is not None:
            tried.add(choice)
        return SECONDS[choice] if contender.choice is not None else 1.0

    found = tune.tune([job], 1e9, measure=measured, clock=lambda: 0.0)
    taken = str(found.found[job.digest].choice)
    assert taken in tried
    assert len(tried) <= 0.2 * len(SECONDS)
    assert min(SECONDS.values()) / SECONDS[taken] >= 0.9
