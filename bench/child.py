"""Run one contender in a process of its own: build its work, check it, time slices on request.

The protocol is one JSON object a line over pipes: {"check": FILE} runs the work a few times and stores its outputs,
{"gradients": FILE} stores all gradients of a training step, {"slice": SECONDS} runs it for about that long and answers
with the time of each call. The parent stops the process between its turns, so that spinning thread pools do not disturb
the others.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

from bench.contenders import CONTENDERS
from bench.networks import Step
from bench.workloads import WORKLOADS

CHECKED_CALLS = 3
"""Calls after which outputs are compared: training steps must agree after several."""
PARENT_DEATH_SIGNAL = 1
"""The option of Linux's `prctl`."""
SHORTEST = 1e-3
"""Seconds; shorter calls are timed in groups."""


class Child:
    """The work of one contender for one workload and size."""

    def __init__(self, name: str, workload: str, size: tuple[int, ...]) -> None:
        contender = next(c for c in CONTENDERS if c.name == name)
        self.library: Any = importlib.import_module(f"bench.contenders.{contender.module}")
        self.start = lambda: getattr(self.library, workload)(WORKLOADS[workload].inputs(size), contender.variant)
        self.call = self.start()
        self.together = 1

    def check(self, file: str) -> dict[str, Any]:
        start = time.perf_counter()
        result = self.call()
        first = time.perf_counter() - start
        for _ in range(CHECKED_CALLS - 1):
            result = self.call()
        arrays = self.library.outputs(result)
        np.savez(file, *[np.asarray(x, np.float32) for x in arrays])
        self._settle()
        return {"first_call_s": first}

    def gradients(self, file: str) -> dict[str, Any]:
        """Store all gradients of a step, as its update uses them; None for work that is no training step."""
        step = self.start()
        arrays = step.gradients() if isinstance(step, Step) else []
        np.savez(file, *arrays)
        return {"gradients": len(arrays)}

    def _settle(self) -> None:
        """Find the number of calls that are timed together."""
        while self._timed(self.together) < SHORTEST and self.together < 1 << 20:
            self.together *= 2

    def _timed(self, calls: int) -> float:
        call = self.call
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    def slice(self, seconds: float) -> dict[str, Any]:
        self._timed(self.together)  # wakes threads, fills caches
        times: list[float] = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(self._timed(self.together) / self.together)
        return {"times": times, "cpu_s": time.process_time()}


def _ends_with_its_parent() -> None:
    """End this process with its parent, even if it is stopped then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def main() -> None:
    _ends_with_its_parent()
    name, workload, size = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        child = Child(name, workload, tuple(json.loads(size)))
        answer({"ready": True})
        for line in sys.stdin:
            match json.loads(line):
                case {"check": str(file)}:
                    answer(child.check(file))
                case {"gradients": str(file)}:
                    answer(child.gradients(file))
                case {"slice": seconds}:
                    answer(child.slice(float(seconds)))
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"[:400]})


if __name__ == "__main__":
    main()
