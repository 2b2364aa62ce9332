"""Wrong calls of every public signature end in errors of ours, or in Python's about the arguments, at the user's line.

The calls run in a process of their own, with bounded memory, and with a bound on the time of each.
`TILEGRAD_WRONG_CALLS=40` draws forty for each function, `TILEGRAD_WRONG_CALLS_SEED` others than usual.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.wrong_calls import fault, outcome, targets, wrong
from tilegrad.ops.broadcasting import normal_axis

COUNT = int(os.environ.get("TILEGRAD_WRONG_CALLS", "3"))
SEED = os.environ.get("TILEGRAD_WRONG_CALLS_SEED", "")
BYTES, SECONDS = 16 << 30, 20
"""Address space of the process, and the longest that one call may take."""


class TooLong(Exception):
    """A call that does not end."""


def interrupted(*_: Any) -> None:
    raise TooLong(f"more than {SECONDS} s")


def report() -> None:
    """The faults of all drawn calls, for the process that asked."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, interrupted)
    drawn, faults = 0, []
    for target in targets(tg):
        for call in wrong(target, random.Random(target.name + SEED), COUNT):
            signal.alarm(SECONDS)
            found = fault(outcome(call, tg))
            signal.alarm(0)
            drawn += 1
            if found:
                faults.append(f"{call}: {found}")
    print(json.dumps({"drawn": drawn, "faults": faults}))


def test_errors_of_wrong_calls_are_told_in_words() -> None:
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", "from tests.test_wrong_calls import report; report()"],
        env=os.environ | {"PYTHONPATH": str(folder.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["drawn"] > 900 * COUNT
    assert not result["faults"], "\n".join(result["faults"])


def test_the_generator_sees_errors_from_inside() -> None:
    with pytest.raises(TypeError) as caught:
        normal_axis(None, 2, "sum")  # type: ignore[arg-type]
    assert "tilegrad/ops/broadcasting.py" in fault(caught.value)
    assert fault(None) == ""
    assert "AttributeError" in fault(AttributeError("x"))
