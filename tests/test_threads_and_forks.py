"""Concurrent reads and writes; threads that compile while the main thread ends or forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.ir.node import Node


def together(*works: tuple[Callable[[], Any], int]) -> None:
    """Does things so often, each in a thread."""
    wrong: list[BaseException] = []

    def run(work: Callable[[], Any], times: int) -> None:
        try:
            for _ in range(times):
                work()
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=run, args=each) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for problem in wrong:
        raise problem


def added(p: Any) -> None:
    p.add_(1)
    p.realize()


def added_to_a_part(p: Any) -> None:
    p[:50].add_(1)
    p[50:].add_(1)
    p.realize()


WRITES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "in place": lambda p: lambda: added(p),
    "to parts": lambda p: lambda: added_to_a_part(p),
    "jitted": lambda p: tg.jit(lambda: p.add_(1)),
    "jitted anew": lambda p: lambda: tg.jit(lambda: p.add_(1))(),
    "by data": lambda p: lambda: (p.data.add_(1), p.realize()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_updates_under_a_lock_beside_reads(write: Callable[[Any], Callable[[], Any]]) -> None:
    p, lock = tg.zeros(100).realize(), threading.Lock()
    bump, total = write(p), tg.jit(lambda: p.sum())
    times = 20 if write is WRITES["jitted anew"] else 60

    def update() -> None:
        with lock:
            bump()

    def look() -> None:
        found = p.tolist()
        assert all(0 <= x <= 2 * times for x in found)
        p[40:60].sum().item()
        (p.detach() * 2).tolist()
        total().item()

    together((update, times), (update, times), (look, times), (look, times))
    assert p.tolist() == [2.0 * times] * 100


LATE = """
import threading, time
def late():
    time.sleep(0.3)
    import tilegrad as tg
    x = tg.arange(7).float()
    print([y.tolist() for y in tg.jit(lambda x: ((x * 3.25).tanh().sum() + x.max(), x.cumsum(0), x.sort()[0]))(x)])
threading.Thread(target=late).start()
"""

FORKS = """
import faulthandler, os, signal, sys, threading, time
import tilegrad as tg
stop = threading.Event()
def work(k):
    n = k
    while not stop.is_set():
        n += 7
        x = tg.ones(n % 97 + 2, n % 89 + 2)
        tg.jit(lambda x: ((x * n).exp().sum(0) + x.max()).tanh())(x).tolist()
        (x.sum(1) * n + x[:, 0]).tolist()
threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(3)]
for thread in threads:
    thread.start()
failed = 0
for n in range(8):
    time.sleep(0.04)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(50, exit=True)
        x = tg.ones(5, n + 3)
        tg.jit(lambda x: (x.sin() + n).sum(0))(x).tolist()
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
print("failed:", failed)
"""


def run(program: str, tmp_path: Path) -> str:
    environment = {**os.environ, "TILEGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(Path(tg.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_compiles_after_the_main_thread_ended(tmp_path: Path) -> None:
    assert "[0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0]" in run(LATE, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_children_compile_that_forked_off_while_threads_compiled(tmp_path: Path) -> None:
    assert run(FORKS, tmp_path) == "failed: 0\n"


class Outer(Node):
    first: int


class Inner(Outer):
    second: int


class Own(Outer):
    def __init__(self, first: int) -> None:
        super().__init__(first * 2)


def test_the_first_nodes_of_a_class_may_be_made_by_two_threads() -> None:
    """One finds the `__init__` that is to be written, and comes to write it when the other has done that."""
    late = Inner.__init__
    assert (Inner(1, 2).first, Inner(1, 2).second) == (1, 2)
    node = object.__new__(Inner)
    late(node, 3, 4)
    assert (node.first, node.second, Own(5).first, Outer(6).first) == (3, 4, 10, 6)
