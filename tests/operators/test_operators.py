"""Operators by generated samples, against PyTorch: values, types, views, gradients, and what is refused.

Of calls that are always the same 98 % agree, and what differs stands in `differences.txt` with its reason. Of those
that are drawn by the commit (`OPERATOR_SEED` sets another seed, `OPERATOR_SAMPLES` their number) as many, less what a
draw may lie below. All that differs is printed by `python -m tests.operators.test_operators 20000`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tilegrad as tg
from tests.source import ROOT

from .agreement import NO_KERNEL, Call, Found, difference, run, tensors_of
from .drawing import DTYPES, Scene
from .recipes import RANDOM, TIED, Word, draw, recipes

SAMPLES = int(os.environ.get("OPERATOR_SAMPLES", "800"))
FIXED = 700
TOGETHER = 12
"""So many calls are computed in one program."""
FORMS = ("function", "function", "function", "method", "in place", "out")
AGREE = 0.98


class Outcome(NamedTuple):
    call: Call
    said: str
    """In what it differs; nothing if it agrees."""
    done: bool
    """Whether PyTorch computed it."""


def drawn_call(name: str, words: list[Word], rng: random.Random) -> Call:
    """One call by a recipe."""
    s = Scene(rng, rng.choice(DTYPES))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        if word.optional and s.one_in(2):
            continue
        given = draw(word, s)
        if word.unpacked:
            args += given
        elif word.keyword:
            kwargs[word.keyword] = given
        else:
            args.append(given)
    package, _, short = name.rpartition(".")
    form = rng.choice(FORMS) if not package else "function"
    there = {"in place": short + "_", "method": short}
    torch = sys.modules["torch"]
    on_methods = hasattr(torch.Tensor, there.get(form, short)) and hasattr(tg.Tensor, there.get(form, short))
    if package:
        form = f"function.{package}"
    elif not hasattr(torch, short):
        form = "method"
    elif (form in there and not on_methods) or name in RANDOM or (form == "out" and not _takes_out(short)):
        form = "function"
    return Call(short, form, tuple(args), kwargs, short in TIED and s.dtype == "bool", name in RANDOM)


def _takes_out(name: str) -> bool:
    torch = sys.modules["torch"]
    return "out=None" in (getattr(torch, name).__doc__ or "").partition("->")[0]


def outcomes(count: int, seed: int) -> list[Outcome]:
    """Calls that were drawn, and how they went; every recipe comes up before one comes up again."""
    torch = sys.modules["torch"]
    rng, table, found = random.Random(seed), recipes(), []
    while len(found) < count:
        rng.shuffle(table)
        for at in range(0, min(len(table), count - len(found)), TOGETHER):
            calls = [drawn_call(name, words, rng) for name, words in table[at : at + TOGETHER]]
            ours = [run(tg, call) for call in calls]
            theirs = [run(torch, call) for call in calls]
            _compute(calls, ours)
            found += [_outcome(*each) for each in zip(calls, ours, theirs, strict=True)]
    return found[:count]


def _compute(calls: list[Call], ours: list[Found]) -> None:
    """Computes all in one program; where that is refused, each call is made once more, and computed by itself."""
    try:
        tg.compute(*[x for found in ours for x in tensors_of(found)])
    except Exception:
        for n, call in enumerate(calls):
            try:
                ours[n] = run(tg, call)
                tg.compute(*tensors_of(ours[n]))
            except Exception as error:
                ours[n]["refused"] = error


def _outcome(call: Call, ours: Found, theirs: Found) -> Outcome:
    try:
        said = difference(call, ours, theirs)
    except Exception as error:
        said = f"refused: {type(error).__name__}: {str(error)[:160]}"
    return Outcome(call, said, "refused" not in theirs)


def known() -> dict[str, str]:
    """What is known to differ: a pattern for "name: difference", and why."""
    lines = (Path(__file__).parent / "differences.txt").read_text().splitlines()
    listed = [line.partition(" # ") for line in lines if line and not line.startswith("#")]
    return {pattern.strip(): reason for pattern, _, reason in listed}


def reason_of(outcome: Outcome, listed: dict[str, str]) -> str:
    """The pattern under which a difference is known."""
    said = f"{outcome.call.name}: {outcome.call.form}: {outcome.said}"
    return next((pattern for pattern in listed if fnmatch(said, pattern)), "")


def rate(found: list[Outcome]) -> float:
    """The share of calls that agree, of those for which PyTorch has a kernel."""
    counted = [o for o in found if o.said != NO_KERNEL]
    return sum(not o.said for o in counted) / len(counted)


def report(found: list[Outcome], worst: int = 12) -> str:
    """The rate of agreement, and the names that differ most."""
    wrong = [o for o in found if o.said and o.said != NO_KERNEL]
    lines = [
        f"{rate(found):.2%} of {len(found)} calls agree; PyTorch computed {sum(o.done for o in found)}, and has no "
        f"kernel for {sum(o.said == NO_KERNEL for o in found)}"
    ]
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for o in wrong:
        by_name[o.call.name].append(o)
    for name, several in sorted(by_name.items(), key=lambda item: -len(item[1]))[:worst]:
        kinds = Counter(o.said.partition(":")[0] for o in several)
        lines.append(f"  {name}: {dict(kinds)}; {several[0].said} | {several[0].call}")
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
    new = [o for o in found if o.said and o.said != NO_KERNEL and not reason_of(o, listed)]
    assert not new, report(new, 100)


if __name__ == "__main__":
    import torch  # noqa: F401

    drawn = outcomes(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(report(drawn, 1000))
    print("not in differences.txt:")
    print(report([o for o in drawn if o.said and o.said != NO_KERNEL and not reason_of(o, known())] or drawn[:1], 1000))
