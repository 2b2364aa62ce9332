"""A process that answers questions, one line of JSON each; a new one takes its place after a crash or a hang."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

PATIENCE = 60.0
"""Seconds of the processor that an answer may take."""
ROUNDS = 10
"""Factor of the time limit on a busy machine, or while nothing happens."""


class Ended(Exception):
    """The process ended, or did not answer in time."""


class Child:
    """One process at a time, which runs a module. It answers each line of its input with one line."""

    def __init__(self, module: str, environment: Mapping[str, str] = {}, patience: float = PATIENCE) -> None:
        self.module, self.environment, self.patience = module, dict(environment), patience
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: Any = None

    def ask(self, question: Any) -> Any:
        """The answer to a question; raises `Ended`, with the last that the process said, where there is none."""
        process = self.process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            if not self._answers(process):
                process.kill()
                self._forget()
                raise Ended(f"no answer within {self.patience:.0f} seconds")
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if answer:
            return json.loads(answer)
        code, said = process.wait(self.patience), self._said()
        self._forget()
        raise Ended(f"the process that ran it ended with {code}\n{said}".rstrip())

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until there is something to read; on a machine that is busy with others longer than the patience."""
        begun = _processor_seconds(process.pid)
        for _ in range(ROUNDS):
            if select.select([process.stdout], [], [], self.patience)[0]:
                return True
            if _processor_seconds(process.pid) - begun >= self.patience:
                break
        return False

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", self.module]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **self.environment},
        )
        return self.process

    def _said(self) -> str:
        """The end of what the process has written to its standard error."""
        self.errors.seek(0)
        return str(self.errors.read().decode(errors="replace")[-2000:])

    def _forget(self) -> None:
        process, self.process = self.process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"{self.module} did not end within {PATIENCE:.0f} seconds after its last question", file=sys.stderr)
            process.kill()
            process.wait()
        process.stdout.close()
        self.errors.close()

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self._forget()


def serve(answer: Any) -> None:
    """Answers questions until there are no more: the other side of `Child`."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed while a question is answered is no answer
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


def _processor_seconds(pid: int) -> float:
    """Read the processor time of all threads of a process; the clock where nothing tells."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            used = file.read().rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return time.monotonic()
