"""Ways to run many calls: one after the other, double-buffered, on several threads, through a pipeline of stages.

Results come in the order of the calls. All ways hold a bounded number of calls at a time.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..errors import ArgumentError
from .inferencer_pool import InferencerPool

Call = Callable[..., Any]
QUEUED_CALLS = 2
"""Calls that may wait before each stage of a pipeline: one that is computed next, and one for delays."""


def arguments_of(call: Any) -> tuple[Any, ...]:
    """Return the arguments of a call, which are a tuple or a single one."""
    return call if isinstance(call, tuple) else (call,)


def run_sequentially(infer: Call, calls: Iterable[Any]) -> Iterator[Any]:
    """Run calls one after the other on one set of activations, each on all cores: the least memory."""
    for call in calls:
        yield infer(*arguments_of(call))


def run_double_buffered(pair: Sequence[Call], calls: Iterable[Any]) -> Iterator[Any]:
    """Compute on one set of activations while the caller makes the next call ready, and uses the last result."""
    with ThreadPoolExecutor(1, "double-buffered") as worker:
        running: deque[Future[Any]] = deque()
        for n, call in enumerate(calls):
            running.append(worker.submit(pair[n % 2], *arguments_of(call)))
            if len(running) == 2:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def run_in_threads(pool: InferencerPool, calls: Iterable[Any]) -> Iterator[Any]:
    """Run as many calls at a time as a pool has inferencers, each on one core."""
    with ThreadPoolExecutor(pool.cap, "inferencers") as workers:
        running: deque[Future[Any]] = deque()
        for call in calls:
            if len(running) == 2 * pool.cap:
                yield running.popleft().result()
            running.append(workers.submit(pool, *arguments_of(call)))
        while running:
            yield running.popleft().result()


def run_pipelined(stages: Sequence[Call], calls: Iterable[Any]) -> Iterator[Any]:
    """Run the stages of a network at the same time, each on the result of the stage before it."""
    if not stages:
        raise ArgumentError("a pipeline has at least 1 stage, not 0")
    queues: list[queue.Queue[Any]] = [queue.Queue(QUEUED_CALLS) for _ in range(len(stages) + 1)]
    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(calls, queues[0], stop), daemon=True)
    workers = [
        threading.Thread(target=_work, args=(stage, *queues[n : n + 2], stop), daemon=True)
        for n, stage in enumerate(stages)
    ]
    for thread in (feeder, *workers):
        thread.start()
    try:
        while (item := _take(queues[-1], stop)) is not END:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        for thread in workers:
            thread.join()


END = object()
"""Follows the last call through a pipeline."""
POLL_SECONDS = 0.05
"""Interval in which a thread that waits for a queue looks whether the pipeline has been left."""


def _feed(calls: Iterable[Any], first: queue.Queue[Any], stop: threading.Event) -> None:
    try:
        for call in calls:
            if not _put(first, arguments_of(call), stop):
                return
        _put(first, END, stop)
    except BaseException as problem:  # raised where the results are taken
        _put(first, problem, stop)


def _work(stage: Call, before: queue.Queue[Any], after: queue.Queue[Any], stop: threading.Event) -> None:
    """Run one stage until the calls end, or one fails."""
    while not stop.is_set():
        item = _take(before, stop)
        if item is not END and not isinstance(item, BaseException):
            try:
                item = stage(*item)
            except BaseException as problem:  # raised where the results are taken
                item = problem
        if not _put(after, item, stop) or item is END or isinstance(item, BaseException):
            return


def _take(source: queue.Queue[Any], stop: threading.Event) -> Any:
    while not stop.is_set():
        try:
            return source.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
    return END


def _put(target: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Put an item into a queue; return whether the pipeline still runs."""
    while not stop.is_set():
        try:
            target.put(item, timeout=POLL_SECONDS)
            return True
        except queue.Full:
            continue
    return False
