"""Operators by generated samples, against PyTorch: values, types, views, gradients, and what is refused.

Of a fixed set of calls 98 % must agree, and `differences.txt` lists each difference with its reason. Of calls drawn
by the commit (`OPERATOR_SEED` sets another seed, `OPERATOR_SAMPLES` their number) 98 % less three standard deviations.
`python -m tests.operators.test_operators 20000` prints all differences.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fuzz.child import Child, Ended
from tests.source import ROOT
from tests.target_models import GPU
from tests.verifier import net
from tilegrad.runtime.device import device

from .agreement import NO_KERNEL

SAMPLES = int(os.environ.get("OPERATOR_SAMPLES", "800"))
FIXED = 700
BATCH = 12
"""Calls that are computed in one program."""
AGREE = 0.98
PYTORCH_CRASHES = "PyTorch crashes"
SKIPPED = (NO_KERNEL, PYTORCH_CRASHES)
"""Differences that count neither for nor against us."""


class Outcome(NamedTuple):
    """The outcome of one call in both libraries."""

    name: str
    form: str
    text: str
    """The call as Python."""
    difference: str
    """Empty if both agree."""
    computed: bool
    """Whether PyTorch computed it."""


def outcomes(count: int, seed: int) -> list[Outcome]:
    """Run drawn calls in a child process, a batch at a time."""
    target = "gpu" if device("cpu").target is GPU else "cpu"
    worker = Child("tests.operators.worker", {"TESTS_TARGET": target})

    def ask(start: int, stop: int, libraries: str) -> list[list[Any]]:
        question = {"seed": seed, "count": count, "start": start, "stop": stop, "libraries": libraries}
        found: list[list[Any]] = worker.ask(question)
        return found

    try:
        starts = range(0, count, BATCH)
        found = [o for start in starts for o in batch_outcomes(start, min(start + BATCH, count), ask)]
        net.SEEN.add(worker.ask({"verified": True}))
        return found
    finally:
        worker.close()


def batch_outcomes(start: int, stop: int, ask: Callable[[int, int, str], list[list[Any]]]) -> list[Outcome]:
    """Run a batch; after a crash run each of its calls by itself, and say in which library it crashes."""
    try:
        return [Outcome(*each) for each in ask(start, stop, "both")]
    except Ended as error:
        if stop - start > 1:
            return [o for n in range(start, stop) for o in batch_outcomes(n, n + 1, ask)]
        (row,) = ask(start, stop, "none")
        crashed = Outcome(*row)._replace(difference=f"crash: {str(error)[-160:]}")
    try:
        ask(start, stop, "pytorch")
    except Ended:
        return [crashed._replace(difference=PYTORCH_CRASHES)]
    return [crashed]


def known() -> dict[str, str]:
    """Known differences: a pattern for "name: difference", and the reason."""
    lines = (Path(__file__).parent / "differences.txt").read_text().splitlines()
    listed = [line.partition(" # ") for line in lines if line and not line.startswith("#")]
    return {pattern.strip(): reason for pattern, _, reason in listed}


def reason_of(outcome: Outcome, listed: dict[str, str]) -> str:
    """The pattern under which a difference is known."""
    said = f"{outcome.name}: {outcome.form}: {outcome.difference}"
    return next((pattern for pattern in listed if fnmatch(said, pattern)), "")


def rate(found: list[Outcome]) -> float:
    """The share of calls that agree, of those for which PyTorch has a kernel."""
    counted = [o for o in found if o.difference not in SKIPPED]
    return sum(not o.difference for o in counted) / len(counted)


def report(found: list[Outcome], worst: int = 12) -> str:
    """The rate of agreement, and the names that differ most."""
    wrong = [o for o in found if o.difference and o.difference not in SKIPPED]
    lines = [
        f"{rate(found):.2%} of {len(found)} calls agree; PyTorch computed {sum(o.computed for o in found)}, has no "
        f"kernel for {sum(o.difference == NO_KERNEL for o in found)}, "
        f"crashes in {sum(o.difference == PYTORCH_CRASHES for o in found)}"
    ]
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for o in wrong:
        by_name[o.name].append(o)
    for name, several in sorted(by_name.items(), key=lambda item: -len(item[1]))[:worst]:
        kinds = Counter(o.difference.partition(":")[0] for o in several)
        lines.append(f"  {name}: {dict(kinds)}; {several[0].difference} | {several[0].text}")
    return "\n".join(lines)


def _seed() -> int:
    given = os.environ.get("OPERATOR_SEED")
    if given is not None:
        return int(given)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(commit.stdout[:8] or "0", 16)


def test_operators_agree_with_pytorch() -> None:
    pytest.importorskip("torch")
    seed = _seed()
    found = outcomes(SAMPLES, seed)
    print(f"seed {seed}: {report(found)}")
    least = AGREE - 3 * (AGREE * (1 - AGREE) / len(found)) ** 0.5  # how far a draw may lie below what it is drawn from
    assert rate(found) >= least, f"OPERATOR_SEED={seed}: {report(found, 100)}"


def test_every_difference_has_a_reason() -> None:
    pytest.importorskip("torch")
    listed = known()
    assert all(len(reason) > 5 for reason in listed.values())
    found = outcomes(FIXED, 0)
    assert rate(found) >= AGREE, report(found, 100)  # always the same calls: no allowance for the draw
    new = [o for o in found if o.difference and o.difference not in SKIPPED and not reason_of(o, listed)]
    assert not new, report(new, 100)


def test_a_crash_of_pytorch_costs_one_sample() -> None:
    """Calls 3 (in PyTorch) and 5 (here) end the process; the others of the batch are compared."""

    def ask(start: int, stop: int, libraries: str) -> list[list[Any]]:
        if any(n in range(start, stop) for n in {"both": (3, 5), "pytorch": (3,), "none": ()}[libraries]):
            raise Ended("the process that ran it ended with -11")
        return [[f"call{n}", "function", f"call{n}()", "", libraries == "both"] for n in range(start, stop)]

    found = batch_outcomes(0, 8, ask)
    assert [o.name for o in found] == [f"call{n}" for n in range(8)]
    assert [o.difference.partition(":")[0] for o in found] == ["", "", "", PYTORCH_CRASHES, "", "crash", "", ""]
    assert rate(found) == 6 / 7


if __name__ == "__main__":
    drawn = outcomes(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(report(drawn, 1000))
    print("not in differences.txt:")
    print(
        report(
            [o for o in drawn if o.difference and o.difference not in SKIPPED and not reason_of(o, known())]
            or drawn[:1],
            1000,
        )
    )
