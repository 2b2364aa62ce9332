"""Wrong calls of every public signature end in errors of ours, or in Python's about the arguments, at the user's line.

What PyTorch refuses is refused here too, or stands in `accepted_calls.txt` with a reason. Where PyTorch is installed it
is asked; otherwise what it said is read from `recorded/wrong_calls.json` (`pytest --record` writes it). The
calls run in a process of their own, with bounded memory, and with a bound on the time of each.
`TILEGRAD_WRONG_CALLS=40` draws forty for each function, `TILEGRAD_WRONG_CALLS_SEED` others than usual.
"""

import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests import recorded
from tests.wrong_calls import Target, fault, outcome, targets, wrong
from tilegrad.ops.broadcasting import normal_axis

DRAWN = 3
COUNT = int(os.environ.get("TILEGRAD_WRONG_CALLS", str(DRAWN)))
SEED = os.environ.get("TILEGRAD_WRONG_CALLS_SEED", "")
BYTES, SECONDS = 16 << 30, 20
"""Address space of the process, and the longest that one call may take."""


RECORD = Path(__file__).parent / "recorded" / "wrong_calls.json"
REASONS = Path(__file__).parent / "accepted_calls.txt"
"""Patterns of calls that we take and PyTorch refuses, each with the reason."""
MAX_ACCEPTED = 0.025
"""The share of the calls that PyTorch refuses which we may take."""


class TooLong(Exception):
    """A call that does not end."""


def interrupted(*_: Any) -> None:
    raise TooLong(f"more than {SECONDS} s")


def report() -> None:
    """The faults of all drawn calls, and what PyTorch says of them, for the process that asked."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, interrupted)
    theirs: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    faults, accepted, refused = [], [], {}
    for target in targets(tg):
        has_peer = theirs is not None and _is_there(target, theirs)
        for call in wrong(target, random.Random(target.name + SEED), COUNT):
            signal.alarm(SECONDS)
            error = outcome(call, tg)
            signal.alarm(0)
            if found := fault(error):
                faults.append(f"{call}: {found}")
            if error is None:
                accepted.append(str(call))
            if has_peer:
                signal.alarm(SECONDS)
                said = outcome(call, theirs)
                signal.alarm(0)
                refused[str(call)] = "" if said is None or type(said) is TooLong else type(said).__name__
    print(json.dumps({"faults": faults, "accepted": accepted, "refused": refused}))


def _is_there(target: Target, library: Any) -> bool:
    try:
        return callable(target.find(library))
    except AttributeError:
        return False


@cache
def reported() -> dict[str, Any]:
    """Run all wrong calls in a process of its own and an empty folder; return its report."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", "from tests.test_wrong_calls import report; report()"],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            cwd=folder,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_errors_of_wrong_calls_are_told_in_words() -> None:
    assert not reported()["faults"], "\n".join(reported()["faults"])


def test_what_pytorch_refuses_is_refused() -> None:
    refused = reported()["refused"]
    if recorded.State.recording:
        assert refused
        RECORD.write_text(json.dumps({k: v for k, v in sorted(refused.items()) if v}, indent=0) + "\n")
    refused = refused or json.loads(RECORD.read_text())
    reasons = [line.partition(" | ")[0] for line in REASONS.read_text().splitlines() if " | " in line]
    wrong = [call for call in reported()["accepted"] if refused.get(call)]
    unasked = [call for call in wrong if not any(fnmatchcase(call, pattern) for pattern in reasons)]
    assert not unasked, "\n".join(f"{call}: PyTorch raises {refused[call]}" for call in unasked)
    assert len(wrong) < MAX_ACCEPTED * sum(map(bool, refused.values()))


def test_reasons_for_what_is_accepted_are_used_and_said() -> None:
    """A pattern that matches no call any more is taken out of the file: drawn calls are always the same."""
    lines = [line for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    wrong = {call for call, kind in json.loads(RECORD.read_text()).items() if kind}
    for line in lines:
        pattern, _, reason = line.partition(" | ")
        assert len(reason.split()) > 3, f"{pattern}: why?"
        assert SEED or COUNT != DRAWN or any(fnmatchcase(call, pattern) for call in wrong), f"{pattern}: of no use"


def test_the_generator_sees_errors_from_inside() -> None:
    with pytest.raises(TypeError) as caught:
        normal_axis(None, 2, "sum")  # type: ignore[arg-type]
    assert "tilegrad/ops/broadcasting.py" in fault(caught.value)
    assert fault(None) == ""
    assert "AttributeError" in fault(AttributeError("x"))
