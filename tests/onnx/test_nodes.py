"""The cases of nodes by which ONNX accepts a backend. All must pass but those in `not_claimed.txt`, with reasons.

The package `onnx` (`make test PEERS=1` installs it) makes the cases. Dtypes and shapes are compared exactly; elements
of types that only ONNX has, by their values.
"""

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.onnx.oracle import Case, outcome
from tilegrad import config

onnx = pytest.importorskip("onnx")

TABLE = Path(__file__).parent / "not_claimed.txt"
RANDOM = ("test_bernoulli", "test_training_dropout")
"""Cases with random numbers: dtypes and shapes are compared. A ratio of 0 draws none."""
EXPANDED = "_expanded"
"""The end of the names of cases that are made of smaller nodes; they have no rows."""
GROUPS = 8


@cache
def cases() -> list[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [
        Case(
            c.name, c.model.SerializeToString(), [(list(x), list(y)) for x, y in c.data_sets], c.rtol, max(c.atol, 1e-6)
        )
        for c in sorted(found, key=lambda c: c.name)
        if c.model is not None
    ]


@cache
def not_claimed() -> dict[str, str]:
    """The cases that need not pass, and why: a row has the beginning of names, and the reason."""
    rows = [line.split(maxsplit=1) for line in TABLE.read_text().splitlines() if line and line[0] != "#"]
    found = {}
    for beginning, reason in rows:
        names = [case.name for case in cases() if case.name.startswith(beginning) and EXPANDED not in case.name]
        assert names, f"no case begins with {beginning}"
        found |= dict.fromkeys(names, reason)
    return found


def is_random(name: str) -> bool:
    return name.startswith(RANDOM) and "zero_ratio" not in name


@pytest.mark.parametrize("group", range(GROUPS))
def test_cases(group: int) -> None:
    wrong, without = [], not_claimed()
    with config.changed(tier="interpreted"), np.errstate(all="ignore"):
        for case in cases()[group::GROUPS]:
            text = outcome(case, is_random(case.name))
            if case.name in without:
                wrong += [] if text else [f"{case.name} passes: take it out of {TABLE.name}"]
            elif text:
                wrong.append(f"{case.name}: {text}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_most_are_claimed() -> None:
    """At least 95 of 100 of the cases that need no strings and no training pass."""
    counted = {case.name for case in cases()}
    others = {name for name, reason in not_claimed().items() if reason.startswith(("strings", "training"))}
    claimed = counted - not_claimed().keys()
    assert len(claimed) >= SHARE * len(counted - others)


SHARE = 0.95
