"""Modes of running calls: the same results in the same order, bounded numbers of calls, errors where they belong."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, network
from tilegrad.engines.engine import Engine
from tilegrad.errors import TilegradError
from tilegrad.tree import flatten

MODES = ["sequential", "double", "threads", "pipeline"]


def engine_of(name: str) -> tuple[Engine, list[tuple[Any, ...]]]:
    model, example = network(name)
    return tg.engine(model, example(4), max_batch=4), [example(1 + n % 4) for n in range(12)]


@pytest.mark.parametrize("callers", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_single_calls(name: str, mode: str, callers: int) -> None:
    engine, calls = engine_of(name)
    infer = engine.inferencer()
    found = list(engine.map(calls, mode, callers))
    assert len(found) == len(calls)
    for call, results in zip(calls, found, strict=True):
        for have, wanted in zip(flatten(results)[0], flatten(infer(*call))[0], strict=True):
            np.testing.assert_allclose(have, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_failing_call_ends_in_its_error(mode: str) -> None:
    engine, calls = engine_of("convolutions")
    running = engine.map([*calls[:3], np.ones((2, 1, 8, 7), np.float32), *calls], mode)
    with pytest.raises(TilegradError, match=r"has shape \(2, 1, 8, 7\)"):
        list(running)


@pytest.mark.parametrize("mode", MODES)
def test_few_calls_are_taken_ahead_and_what_is_left_ends(mode: str) -> None:
    engine, calls = engine_of("convolutions")
    threads, taken = threading.active_count(), 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield calls[0]

    running = engine.map(endless(), mode)
    for _ in range(5):
        next(running)
    assert taken <= 5 + 16
    running.close()  # type: ignore[attr-defined]
    for _ in range(100):
        if threading.active_count() <= threads:
            return
        time.sleep(0.05)
    pytest.fail("threads are left")


def test_a_pool_has_at_most_its_cap_and_reuses() -> None:
    engine, calls = engine_of("convolutions")
    pool, running, most, lock = engine.pool(2), 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        for call in calls:
            with pool.inferencer() as infer:
                with lock:
                    running += 1
                    most = max(most, running)
                infer(*call)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 2
    assert pool.made <= 2


def test_a_report_compares_the_modes() -> None:
    engine, _ = engine_of("pair")
    report = engine.report(seconds=0.2)
    assert [m.mode for m in report.modes] == MODES
    assert report.best in MODES
    text = str(report)
    assert all(f"| {mode} |" in text for mode in MODES)
    assert "first call with n = 4" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.map([], "fast"), "the modes are sequential, double, threads and pipeline, not 'fast'"),
        (lambda e: e.pool(0), "at least 1 inferencer, not 0"),
        (lambda e: e.stages(0), "at least 1 stage, not 0"),
    ],
)
def test_bad_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TilegradError, match=message):
        make(engine_of("pair")[0])
