"""Random programs in the notation of users against PyTorch; and those that failed once, with recorded results.

The programs of a run follow from the commit; `make fuzz N=100000` runs many more. To see one again:
`python -m tests.fuzz.program_runs 1 --first NUMBER`. What is found and mended is kept in `found/`, by
`python -m tests.fuzz.program_records NAME NUMBER`.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec

import pytest

from tests.fuzz.child import Child
from tests.fuzz.program_check import compare, measured
from tests.fuzz.program_records import FOUND, read
from tests.fuzz.program_runs import WORKER, Finding, Question, made_smaller, seed_of_commit, work

CHUNKS, COUNT = 16, 125
CHECKED = 5
"""One in this many programs runs in the interpreter, which checks every access."""

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="random programs are compared with PyTorch")


@needs_torch
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs(chunk: int) -> None:
    first = seed_of_commit() + chunk * COUNT
    seeds = range(first, first + COUNT)
    questions = [Question(n, device="checked" if n % CHECKED == 0 else "cpu") for n in seeds]
    verdicts: Counter[str] = Counter()
    failures: list[Finding] = []
    for _, verdict, found in work(questions):
        verdicts[verdict] += 1
        if found is not None and not found.known:
            failures.append(found)
    assert verdicts["right"] > COUNT * 0.85, f"programs that run: {verdicts}"
    if failures:
        child = Child(WORKER)
        smaller = [made_smaller(child, found) for found in failures[:3]]
        child.close()
        pytest.fail("\n".join([f"{len(failures)} of {COUNT} programs fail", *map(str, smaller)]))


TIERS = (
    {"TILEGRAD_TIER": "interpreted"},
    {"TILEGRAD_TIER": "counted", "TILEGRAD_COMPILE_AT": "2"},
)
"""The first tier alone; and the switch between tiers at the second of equal calls."""
COUNT_IN_TIERS = 25


@needs_torch
@pytest.mark.parametrize("environment", TIERS, ids=lambda e: e["TILEGRAD_TIER"])
def test_random_programs_in_the_first_tier(environment: dict[str, str]) -> None:
    first = seed_of_commit()
    failures: list[Finding] = []
    for _, _, found in work([Question(n) for n in range(first, first + COUNT_IN_TIERS)], environment):
        if found is not None and not found.known:
            failures.append(found)
    if failures:
        pytest.fail("\n".join(map(str, failures)))


@pytest.mark.parametrize("name", FOUND)
def test_found_programs(name: str) -> None:
    program, want, tolerances = read(name)
    for device in ("cpu", "checked"):
        compare(measured(program, device), want, tolerances)
