"""Ctrl-C in the middle of compiling leaves locks, threads, the cache and pending work in order."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.verifier.net import not_watching
from tilegrad import compiler, config
from tilegrad.backend.cpu import build
from tilegrad.backend.cpu.kernels_ahead import KernelsAhead
from tilegrad.lazy.evaluation import pending
from tilegrad.runtime import announce
from tilegrad.runtime.private_folder import ASIDE

PACKAGE = os.path.dirname(tg.__file__)
POINTS = 32
"""Number of places, evenly over the calls of a compilation, at which one is interrupted."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.changed(cache=str(tmp_path)):
        yield tmp_path


class Work:
    """A program of several kernels that no other number has."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.given = np.linspace(-1, 1, 83 * 7, dtype=np.float32).reshape(83, 7)
        self.rows = np.arange(83) % 3

    def recorded(self) -> tg.Tensor:
        x = tg.tensor(self.given)
        y = (x - x.mean(0)).softmax(1)
        return (y[tg.tensor(self.rows) + 0] @ x.T).sum(0).roll(self.number)

    @property
    def wanted(self) -> np.ndarray[Any, Any]:
        x = np.exp(self.given - self.given.mean(0))
        y = x / x.sum(1, keepdims=True)
        return np.roll((y[self.rows] @ self.given.T).sum(0), self.number)


def calls_until(stop: int, action: Callable[[], object]) -> int:
    """Raise KeyboardInterrupt at a call of a function of the package; return the number of calls. Contexts that are
    being left, and generators, which Python may be closing, are let go on.
    """
    count = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        code = frame.f_code
        if event != "call" or code.co_flags & CO_GENERATOR or code.co_name == "__exit__":
            return
        if code.co_filename.startswith(PACKAGE):
            count += 1
            if count == stop:
                raise KeyboardInterrupt

    with not_watching():
        sys.setprofile(watch)
        try:
            action()
        finally:
            sys.setprofile(None)
    return count


def in_another_thread(action: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join(60)
    assert found, "a lock is held"
    return found[0]


def files_aside(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{ASIDE}"))


@pytest.mark.usefixtures("compiled")
def test_interrupts_everywhere(folder: Path) -> None:
    Work(1).recorded().realize()  # imports
    total = calls_until(0, Work(2).recorded().realize)
    assert total > 10_000
    threads, thresholds = set(threading.enumerate()), gc.get_threshold()
    for n in range(POINTS):
        work = Work(3 + n)
        y = work.recorded()
        with pytest.raises(KeyboardInterrupt):
            calls_until(total * n // (POINTS + 1) + 1, y.realize)
        assert set(threading.enumerate()) <= threads
        assert not announce._busy
        assert gc.get_threshold() == thresholds
        assert build.compiling.objects is build.kernel_objects
        assert not files_aside(folder)
        np.testing.assert_allclose(in_another_thread(Work(3 + n).recorded().numpy), work.wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(y.numpy(), work.wanted, rtol=1e-4, atol=1e-6)
        assert not pending.checks


def test_an_interrupt_drops_queued_kernels() -> None:
    """It waits for the kernel that LLVM works on, not for all others."""
    begun, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def first() -> bytes:
        begun.set()
        go_on.wait(60)
        return b""

    def other() -> bytes:
        ran.append(1)
        return b""

    def interrupted() -> None:
        with KernelsAhead() as ahead:
            ahead.codegen.submit(first)
            for _ in range(9):
                ahead.codegen.submit(other)
            assert begun.wait(60)
            threading.Timer(0.01, go_on.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not ran
    assert build.compiling.objects is build.kernel_objects


@pytest.mark.usefixtures("compiled")
def test_checks_of_indices_wait_for_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    y = tg.rand(3, 5).realize()[tg.arange(4) * 1]
    with monkeypatch.context() as patched:
        patched.setattr(compiler, "run_stages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.realize()
    with pytest.raises(IndexError, match="3"):
        y.realize()
