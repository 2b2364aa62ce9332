"""Seeds faults in the compiler's passes, one at a time, and counts how many of them the tests notice.

    python tools/mutate.py --record             once, and after many changes: which tests execute which statements
    python tools/mutate.py --count 300 --seed 1 --log build/mutation/log.jsonl

A fault is a change of the syntax tree of one module of `tilegrad/transform/` or `tilegrad/schedule/` (a comparison by
its neighbour, a condition left out, a number off by one, arguments swapped, ...: `tools/faults.py`). Tests that execute
the changed statement run, quickest first, until one fails; where none does within `--seconds`, the others and those
scheduled as for a GPU follow, within `--thorough`. Nothing is written to the sources: all tests are collected once,
and a process that is forked for each fault puts the changed code in its place and runs them.

What survives is printed as a line of the module before and after: a test is missing, or the code is dead, or the fault
is equivalent (it changes what is chosen, not what is computed). Those that are equivalent are kept in
`tools/equivalent.toml`, with the reason, by their words and not by line; they are not run again.

`--only PART` takes the modules whose path has that part, `--leave NAMES` leaves some out, `--again LOG` takes the
faults that survived in a log. Tests that are named run whole for each fault, whatever they execute.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import covered
from faults import ROOT, Fault, faults_of, seeded

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
TESTS = ("tilegrad/transform", "tilegrad/schedule", "tests/transform", "tests/schedule", "tests/fuzz/test_fuzz.py")
TESTS += ("tests/ops", "tests/backend", "tests/verifier", "tests/geometries", "tests/nn", "tests/optim", "tests/items")
TESTS += ("tests/profile", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_*.py")))
FOR_GPU = ("tests/nn/test_conv.py", "tests/nn/test_attention.py")
"""Also run scheduled as for a GPU (`make gpu-schedules`)."""
LEFT_OUT = ("test_documents", "test_layers", "test_limits", "test_import_time", "test_threads_and_forks", "test_names")
LEFT_OUT += ("test_raw_errors", "test_wrong_calls", "test_timing", "test_command_line", "test_memory_errors")
NEAR = ("tests/transform", "tests/schedule", "tilegrad/")
"""Tests of one pass find more for their time than those of a whole network."""
MEMORY = 6 << 30
"""Bytes that a fault may ask for: more, and something grows for ever."""


class Found(NamedTuple):
    """Outcome of the tests with a fault: `test` failed, if any did."""

    caught: bool
    test: str
    ran: int


class Mutation:
    """Run the tests for each fault, in a process of its own."""

    def __init__(self, faults: list[Fault], given: argparse.Namespace, out: int) -> None:
        self.faults, self.given, self.out = faults, given, out
        self.record, self.as_gpu = covered.Record(covered.RECORD), covered.Record(covered.FOR_GPU)
        self.proved: set[str] = set()
        self.pipe = -1
        self.current = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.pipe >= 0:
            os.write(self.pipe, self.current.encode())
            os._exit(1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.functions, self.caches = _alive()
        caught = total = 0
        for fault in self.faults:
            start = time.monotonic()
            found = self.judged(fault)
            total, caught = total + 1, caught + found.caught
            self.tell(fault, found, f"{caught}/{total}", time.monotonic() - start)
        self.say(f"{caught} of {total} faults were noticed: {caught / max(1, total):.1%}")
        return True

    def say(self, line: str) -> None:
        os.write(self.out, f"{line}\n".encode())

    def tell(self, fault: Fault, found: Found, count: str, seconds: float) -> None:
        if self.given.log:
            line = {**fault._asdict(), **found._asdict(), "seconds": round(seconds, 1)}
            with open(self.given.log, "a") as log:
                log.write(json.dumps(line) + "\n")
        mark = "caught" if found.caught else "SURVIVES"
        self.say(f"{count} {mark} {seconds:.0f}s {fault.path}:{fault.line} {fault.kind} {found.test or found.ran}")
        if not found.caught:
            self.say(f"    {fault.before}\n ->  {fault.after}")

    def judged(self, fault: Fault) -> Found:
        first = self.tests_of(fault, self.record)
        few = _within(first, self.given.seconds)
        rest = _within(first[len(few) :], self.given.thorough)
        as_gpu = _within(self.tests_of(fault, self.as_gpu), self.given.thorough)
        ran = 0
        for tests, target in ((few, "cpu"), (rest, "cpu"), (as_gpu, "gpu")):
            names = [test for test, _ in tests]
            while names:
                failed = self.forked(fault, tests, target)
                if not failed:
                    break
                if failed in self.proved or self.holds(names, failed, tests, target):
                    self.proved.add(failed)
                    return Found(True, failed, ran)
                for record in (self.record, self.as_gpu):
                    record.tests.pop(failed, None)
                self.say(f"{failed} fails without a fault, too")
                tests = [t for t in tests if t[0] != failed]
                names = [test for test, _ in tests]
            ran += len(names)
        return Found(False, "", ran)

    def holds(self, names: list[str], failed: str, tests: list[tuple[str, float]], target: str) -> bool:
        """Whether the tests up to one that failed pass without a fault."""
        last = names.index(failed) if failed in names else len(names) - 1
        return self.forked(None, tests[: last + 1], target) == ""

    def tests_of(self, fault: Fault, record: covered.Record) -> list[tuple[str, float]]:
        """List the tests that execute a statement, with their seconds, best first; the cases of a test that the record
        does not know (which are drawn depends on what is imported) take the place of those that are not there.
        """
        executing = record.executing(fault.covered)
        typical = {t.partition("[")[0]: s for t, s in executing.items()}
        unknown = {t: t.partition("[")[0] for t in self.items if t not in record.tests}
        executing = {t: s for t, s in executing.items() if t in self.items}
        executing |= {t: typical[function] for t, function in unknown.items() if function in typical}
        if self.given.tests:
            executing = {t: record.tests.get(t, (1.0, 0))[0] for t in self.items}
        times: Counter[str] = Counter()
        scored = []
        for test in sorted(executing, key=lambda t: executing[t]):
            seconds, function = executing[test] + 0.01, test.partition("[")[0]
            near = 0.2 if test.startswith(NEAR) else 1.0
            scored.append((seconds * near * (1 + times[function] / 4), test, seconds))
            times[function] += 1
        return [(test, seconds) for _, test, seconds in sorted(scored)]

    def forked(self, fault: Fault | None, tests: list[tuple[str, float]], target: str) -> str:
        """Run tests in a process of its own; return the name of the one that failed, or an empty text."""
        end, beginning = os.pipe()
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.close(end)
                self.pipe = beginning
                self.run(fault, tests, target)
                code = 0
            finally:
                os._exit(code)
        os.close(beginning)
        with open(end) as read:
            said = read.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return "" if code == 0 else said or f"process ended with {code}"

    def run(self, fault: Fault | None, tests: list[tuple[str, float]], target: str) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        if fault is not None:
            self.replace(fault)
        items = [self.items[test] for test, _ in tests]
        for n, (item, (_, seconds)) in enumerate(zip(items, tests, strict=True)):
            item.config.option.target = target
            self.current = item.nodeid
            signal.setitimer(signal.ITIMER_PROF, 15 + 20 * seconds)  # what goes on for ever is ended
            signal.setitimer(signal.ITIMER_REAL, 120 + 60 * seconds)
            following = items[n + 1] if n + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def replace(self, fault: Fault) -> None:
        """Put the code of a module with a fault in the place of its code."""
        path = str(ROOT / fault.path)
        changed = dict(_codes(compile(seeded(fault), path, "exec")))
        for function in self.functions:
            code = function.__code__
            if code.co_filename == path and (code.co_qualname, code.co_firstlineno) in changed:
                function.__code__ = changed[code.co_qualname, code.co_firstlineno]
        for cache in self.caches:
            cache.cache_clear()


def _within(tests: list[tuple[str, float]], seconds: float) -> list[tuple[str, float]]:
    kept, total = [], 0.0
    for test, each in tests:
        total += each
        if total > seconds:
            break
        kept.append((test, each))
    return kept


def _alive() -> tuple[list[FunctionType], list[Any]]:
    """The functions of the passes, and everything of ours that remembers results."""
    gc.unfreeze()
    objects = gc.get_objects()
    folders = tuple(str(ROOT / folder) for folder in covered.FOLDERS)
    functions = [x for x in objects if type(x) is FunctionType and x.__code__.co_filename.startswith(folders)]
    wrapper = functools._lru_cache_wrapper
    caches = [x for x in objects if type(x) is wrapper and x.__wrapped__.__module__.startswith("tilegrad")]
    gc.freeze()
    return functions, caches


def _codes(code: CodeType) -> list[tuple[tuple[str, int], CodeType]]:
    """List the code of all functions of a module."""
    found = [((code.co_qualname, code.co_firstlineno), code)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _codes(constant)
    return found


def equivalent() -> dict[str, str]:
    """Read which faults change no result, and why."""
    faults = tomllib.loads(EQUIVALENT.read_text()).get("fault", []) if EQUIVALENT.exists() else []
    names = ("path", "function", "statement", "before", "after")
    return {" | ".join([*(x[n] for n in names), str(x.get("nth", 0))]): x["reason"] for x in faults}


def chosen(given: argparse.Namespace) -> list[Fault]:
    """Draw faults of all modules, each as likely as any other, or take those that survived in a log."""
    paths = sorted(str(p.relative_to(ROOT)) for f in covered.FOLDERS for p in (ROOT / f).glob("*.py"))
    paths = [p for p in paths if given.only in p and Path(p).stem not in given.leave.split(",")]
    every = [fault for p in paths for fault in faults_of(p)]
    if given.again:
        lines = [json.loads(line) for line in Path(given.again).read_text().splitlines()]
        keys = {Fault(*(x[name] for name in Fault._fields)).key for x in lines if not x["caught"]}
        return [fault for fault in every if fault.key in keys]
    return random.Random(given.seed).sample(every, min(given.count, len(every)))[given.start :]


def _given() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="how many seeded faults the tests notice")
    options.add_argument("--record", action="store_true", help="note which tests execute which statements")
    options.add_argument("--gpu", action="store_true", help="with --record: scheduled as for a GPU")
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--start", type=int, default=0, help="how many of them to leave out at the beginning")
    options.add_argument("--only", default="")
    options.add_argument("--leave", default="", help="modules to leave out, by name, separated by commas")
    options.add_argument("--seconds", type=float, default=30, help="of tests for a fault, at first")
    options.add_argument("--thorough", type=float, default=120, help="of tests for a fault that survives those")
    options.add_argument("--again", default="", help="a log: run those that survived")
    options.add_argument("--log", default="")
    options.add_argument("tests", nargs="*", help="files of tests to record, or all that is run for a fault")
    return options.parse_args()


def main() -> None:
    given = _given()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["TILEGRAD_CACHE"] = "off"  # what a faulty compiler makes is not kept for others
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    target = ["--target", "gpu"] if given.gpu else []
    # plain assertions: pytest would read the modules itself, to rewrite their assertions
    options = ["-q", "-s", "-p", "no:cacheprovider", "--assert=plain", "-W", "ignore", *target]
    options += [f"--basetemp={ROOT / 'build' / 'mutation' / 'temporary'}"]
    options += [f"--ignore={p}" for p in (ROOT / "tests").rglob("test_*.py") if p.stem in LEFT_OUT]
    if given.record:
        covered.install()
        plugin: object = covered.Recorder(covered.FOR_GPU if given.gpu else covered.RECORD, out)
        pytest.main([*options, *(given.tests or (FOR_GPU if given.gpu else TESTS))], plugins=[plugin])
        return
    known, drawn = equivalent(), chosen(given)
    faults = [fault for fault in drawn if fault.key not in known]
    os.write(out, f"{len(drawn) - len(faults)} of {len(drawn)} faults are known to be equivalent\n".encode())
    files = {
        t.partition("::")[0] for t in [*covered.Record(covered.RECORD).tests, *covered.Record(covered.FOR_GPU).tests]
    }
    pytest.main([*options, *(given.tests or sorted(files))], plugins=[Mutation(faults, given, out)])


if __name__ == "__main__":
    main()
