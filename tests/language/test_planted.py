"""Defects of every kind at random places are reported, and correct kernels raise no alarm."""

from typing import Any

import numpy as np
import pytest

from tests.language.planted_defects import DEFECTS, RACES, Draw, Planted, nothing
from tilegrad.errors import KernelFault
from tilegrad.language.kernel import SpecialisedKernel

MECHANISMS = ("compiled", "interpreted")
SEEDS = range(2)


@pytest.fixture(params=MECHANISMS)
def mechanism(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether `check` compiles the kernel, or interprets it as if there were no other way."""
    if request.param == "interpreted":
        monkeypatch.setattr(SpecialisedKernel, "checked", lambda self, watch: None)
    return str(request.param)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted(defect: str, seed: int, mechanism: str) -> None:
    told(DEFECTS[defect](Draw(seed * 100 + len(defect))), "check")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("race", RACES)
def test_planted_races(race: str, seed: int, mechanism: str) -> None:
    told(RACES[race](Draw(seed * 100 + len(race))), "race")


def told(planted: Planted, how: str) -> None:
    """The defect is reported, and the tensors are as they were."""
    before = [x.numpy().copy() for x in planted.arguments[:2]]
    with pytest.raises(KernelFault) as raised:
        planted.launch(how)
    message = str(raised.value)
    first, _, rest = message.partition("\n")
    for text in planted.told:
        assert text in first, f"{message}\n{planted.body}"
    assert "<kernel" in first
    if planted.line != "-":
        assert rest.split("\n")[0].strip() == planted.line, f"{message}\n{planted.body}"
        assert "^" in rest
    for x, y in zip(planted.arguments, before, strict=False):
        np.testing.assert_array_equal(x.numpy(), y)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_told_of_what_is_right(seed: int, mechanism: str) -> None:
    planted = nothing(Draw(1000 + seed))
    out = planted.launch("race" if seed % 3 == 0 else "check")
    np.testing.assert_array_equal(out.numpy(), planted.expected)
