"""Runs many random programs in worker processes: `python -m tests.fuzz.program_runs 100000`.

Each program is a number. A worker that crashes or hangs is a finding, and a new one takes its place. What fails is
shrunk, printed once for each family of failures, and written to a log; a run that was interrupted goes on where its
log ends.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tests.fuzz.child import Child, Ended
from tests.fuzz.program_shrinking import shrunk
from tests.fuzz.programs import Program, from_plain, to_plain

WORKER = "tests.fuzz.program_worker"
FAILURES = ("wrong", "refused", "crash")
SHRUNK_PER_FAMILY = 2
PROGRAMS_PER_PROCESS = 2000
DEFAULT_SEED = 1_000_000
"""The first seed of a checkout without git."""

KNOWN_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"the gradient of (max|min) \(", "PyTorch saves where extremes stand, tilegrad the elements that it compares"),
    (r"the gradient of contract .* of shape \[1(, 1)*\]", "PyTorch's tensordot sums axes of extent 1 before it saves"),
    (r"_loss: the input has the shape .* and the target", "PyTorch broadcasts with a warning"),
    (r"several of its elements may be one element of the base", "PyTorch allows it where the elements are distinct"),
    (r"elements of a tensor are asked for while a jitted function is traced", "an index that depends on data"),
    (r"`out` has shape .*: within a traced function they must be equal", "an `out` that is enlarged within jit"),
    (r"where another instance stores another value", "interpreted, tiles that overlap: numpy rounds by the shape"),
)
"""Patterns of what tilegrad refuses though PyTorch computes it, and why."""


class Question(NamedTuple):
    """A program to check: its number, its mode (empty: drawn), and where it runs."""

    seed: int
    mode: str = ""
    device: str = "cpu"

    @property
    def asked(self) -> dict[str, Any]:
        return {"seed": self.seed, "mode": self.mode or None, "device": self.device}


class Finding(NamedTuple):
    """A failing program with its failure."""

    question: Question
    verdict: str
    text: str
    program: Program | None

    @property
    def family(self) -> str:
        """The failure without the numbers in it."""
        return self.verdict + " " + re.sub(r"\d[\d.e+-]*|\[.*\]|\(.*?\)|v\d+|x\d+", "#", self.text.split("\n")[0])[:90]

    @property
    def known(self) -> bool:
        return self.verdict == "refused" and any(re.search(pattern, self.text) for pattern, _ in KNOWN_REFUSALS)

    def __str__(self) -> str:
        return f"{'-' * 100}\n{self.verdict}: {self.text[:600]}\n{self.program or self.question}"


def asked(child: Child, question: Mapping[str, Any]) -> tuple[str, str, Program | None]:
    """The verdict of a worker; its end is one, too, if drawing the program does not end it: PyTorch does that then."""
    try:
        answer = child.ask(question)
    except Ended as e:
        try:
            child.ask({**question, "only drawn": True})
        except Ended:
            return "unfit", "PyTorch ended the process", None
        return "crash", str(e), None
    return answer["verdict"], answer["text"], answer.get("program") and from_plain(answer["program"])


def made_smaller(child: Child, found: Finding, end: float = math.inf) -> Finding:
    """The same failure in fewer lines, as far as that goes until a time of the clock."""
    from tests.fuzz.programs import drawn

    p = found.program or drawn(found.question.seed, found.question.mode or None)
    texts = {str(p): found.text}

    def fails(smaller: Program) -> bool:
        if time.monotonic() > end:
            return False
        question = {"program": to_plain(smaller), "device": found.question.device}
        verdict, text, _ = asked(child, question)
        alike = found._replace(verdict=verdict, text=text).family == found.family or found.verdict == "wrong"
        if verdict == found.verdict and alike:
            texts[str(smaller)] = text
            return True
        return False

    small = shrunk(p, fails)
    return found._replace(program=small, text=texts[str(small)])


def work(
    questions: Iterable[Question], environment: Mapping[str, str] = {}
) -> Iterator[tuple[Question, str, Finding | None]]:
    """Asks a process after each program."""
    child = Child(WORKER, {"TILEGRAD_THREADS": "1", "TILEGRAD_CACHE": "off", **environment})
    try:
        for n, q in enumerate(questions):
            if n % PROGRAMS_PER_PROCESS == PROGRAMS_PER_PROCESS - 1:
                child.close()
            verdict, text, program = asked(child, q.asked)
            yield q, verdict, Finding(q, verdict, text, program) if verdict in FAILURES else None
    finally:
        child.close()


class Run:
    """A long run: what is done, what was found, and the log of both."""

    def __init__(
        self, first: int, count: int, log: Path, device: str, mode: str, shrink: bool, seconds: float = math.inf
    ) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.families: Counter[str] = Counter()
        done = self.read(log)
        self.left = (Question(s, mode, device) for s in range(first, first + count) if s not in done)
        self.log: TextIO = log.open("a")
        self.shrink = shrink
        self.end = time.monotonic() + seconds
        """No program is begun after it, and nothing is made smaller."""

    def read(self, log: Path) -> set[int]:
        """The numbers of the programs that a log has."""
        done = set()
        for line in log.read_text().splitlines() if log.exists() else ():
            entry = json.loads(line)
            done.add(entry["seed"])
            self.counts[entry["verdict"]] += 1
            if "family" in entry:
                self.families[entry["family"]] += 1
        return done

    def questions(self) -> Iterator[Question]:
        while True:
            with self.lock:
                q = next(self.left, None)
            if q is None or time.monotonic() > self.end:
                return
            yield q

    def work(self) -> None:
        """Run programs in a process of one thread each."""
        shrinker = Child(WORKER, {"TILEGRAD_THREADS": "1", "TILEGRAD_CACHE": "off"})
        for q, verdict, found in work(self.questions()):
            if found is not None and not found.known:
                with self.lock:
                    self.families[found.family] += 1
                    new = self.families[found.family] <= SHRUNK_PER_FAMILY
                if new and self.shrink:
                    found = made_smaller(shrinker, found, self.end)
                if new:
                    print(f"{found}\n", flush=True)
                self.note(q, verdict, found)
            else:
                self.note(q, verdict if found is None else "known", None)
        shrinker.close()

    def note(self, q: Question, verdict: str, found: Finding | None) -> None:
        entry: dict[str, Any] = {"seed": q.seed, "verdict": verdict}
        if found is not None:
            entry |= {
                "family": found.family,
                "text": found.text[:1000],
                "program": found.program and to_plain(found.program),
            }
        with self.lock:
            self.counts[verdict] += 1
            self.log.write(json.dumps(entry) + "\n")
            self.log.flush()
            if sum(self.counts.values()) % 1000 == 0:
                print(dict(self.counts), file=sys.stderr, flush=True)


def seed_of_commit() -> int:
    """The first seed of a commit: each commit draws other programs."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return DEFAULT_SEED
    return int(said.stdout.strip()[:7], 16)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--device", default="cpu", help="cpu, cuda, reference; or of tests alone: checked, simulated, emulated"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no program later than that")
    parser.add_argument(
        "--mode", default="", help="plain, looks, jit, gradient, jit gradient or threads; drawn if there is none"
    )
    parser.add_argument("--log", type=Path, default=Path("fuzz.jsonl"), help="a line for each program; a run goes on")
    parser.add_argument("--as-drawn", action="store_true", help="do not shrink what fails")
    a = parser.parse_args()
    run = Run(a.first, a.count, a.log, a.device, a.mode, not a.as_drawn, a.seconds)
    team = [threading.Thread(target=run.work) for _ in range(a.workers)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    print("\n".join(f"{n:7} {family}" for family, n in run.families.most_common()))
    print(", ".join(f"{n:,} {verdict}" for verdict, n in run.counts.most_common()))
    return any(run.counts[verdict] for verdict in FAILURES)


if __name__ == "__main__":
    sys.exit(main())
