"""Runs drawn graphs on the CPU in another process: `python -m tests.fuzz.worker` answers a line for each."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import traceback
from typing import Any

import numpy as np

from tests.fuzz.check import backward, meaning
from tests.fuzz.graphs import Drawn, compare, drawn, tolerance

PATIENCE = 60.0
"""Seconds to wait for an answer."""


class Workers:
    """One process at a time; a new one after a crash."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, choices: list[int], smooth: bool, gradients: bool) -> str:
        """Whether a graph was computed right, or what went wrong."""
        if self.process is None:
            command = [sys.executable, "-m", "tests.fuzz.worker"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([choices, smooth, gradients]) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                self.process.kill()
                self.process = None
                return f"no answer within {PATIENCE:.0f} seconds"
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return str(json.loads(answer))
        code, self.process = self.process.wait(PATIENCE), None
        return f"the process that ran it ended with {code}"

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(PATIENCE)
            self.process = None


def on_cpu(d: Drawn, gradients: bool) -> None:
    """Compiles a graph for the CPU, runs it twice, and compares with what it means."""
    from tilegrad.compiler import compile
    from tilegrad.runtime.device import device

    cpu, graph, exact = device("cpu"), d.graph, d.exact
    if gradients:
        graph = backward(graph)
        exact = (False,) * len(graph.outputs)
    if not graph.outputs:
        return
    compiled = compile(graph)
    wanted = meaning(graph, d.arrays, d.sizes)
    for _ in range(2):
        given = [cpu.from_host(a) for a in d.arrays]
        made = compiled.executable.bound(d.sizes)(given)
        for buffer, value, want, e in zip(made, graph.outputs, wanted, exact, strict=True):
            compare(cpu.to_host(buffer, value.dtype, want.shape), want, e, tolerance(graph), f"{d}\n{compiled.program}")


def main() -> None:
    for line in sys.stdin:
        answer: Any = "right"
        choices, smooth, gradients = json.loads(line)
        try:
            with np.errstate(all="ignore"):
                on_cpu(drawn(choices, smooth), gradients)
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
