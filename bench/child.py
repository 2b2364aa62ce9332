"""A contender in a process of its own: builds its work, checks it, and runs slices when it is told to.

Spoken over pipes, a JSON object a line: {"check": FILE} runs the work a few times and stores its outputs,
{"gradients": FILE} stores all gradients of a training step, {"slice": SECONDS} runs it for about that long and gives
times per call. Between its turns the process is stopped by the parent, so that no pool of threads that spins or sleeps
disturbs the others.
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
"""Training steps must agree after some of them, not only after one."""
PARENT_DEATH_SIGNAL = 1
"""Of Linux's `prctl`."""
SHORTEST = 1e-3
"""Seconds: calls shorter than this are timed several at once."""


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
        """Stores all gradients of a step, as its update has them; nothing of work that is no training step."""
        step = self.start()
        arrays = step.gradients() if isinstance(step, Step) else []
        np.savez(file, *arrays)
        return {"gradients": len(arrays)}

    def _settle(self) -> None:
        """Finds how many calls are timed at once."""
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
    """Also where it is stopped when the parent is ended."""
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
