"""Run requests in batches: those that wait are concatenated along the first axis, and their results are split.

Requests come and are answered on the event loop; batches run in threads, each with an inferencer of its own. While all
of these are busy requests wait, so that batches get larger with the load, and `wait` is only needed to let them
get larger than that. A batch that fails is halved until the request is found that fails.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import RequestFault, overloaded, refused
from .metrics import ModelMetrics
from .tensor_data import Elements

Inferencer = Callable[..., Any]
"""Called with the arrays of the inputs in their order; returns a list of the arrays of the outputs. It may use the
memory of its results again in the next call."""
AVERAGED_CALLS = 8
"""The weight of a new time in the average is the inverse of this."""


@dataclass(frozen=True)
class BatchSettings:
    """How requests for a model are put together."""

    max_batch: int = 32
    """Rows that run together; 1: each request runs alone, and may have any number of rows."""
    wait: float = 0.0
    """Seconds that a request may wait for others while an inferencer is idle."""
    sla: float | None = None
    """Seconds in which a request is to be answered: one that cannot be is refused at once, and batches stay so small
    that their oldest request can be."""
    max_queue: int = 1024
    """Requests that may wait; more are refused."""


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request that waits for its results."""

    inputs: tuple[Elements, ...]
    rows: int
    key: tuple[tuple[int, ...], ...]
    result: asyncio.Future[list[Elements]]
    arrival: float
    deadline: float


class CallTimes:
    """Estimate how long batches take, from averages by powers of 2 of their rows."""

    def __init__(self) -> None:
        self.averages: dict[int, float] = {}

    def note(self, rows: int, seconds: float) -> None:
        """Take a call into account."""
        n = rows.bit_length()
        old = self.averages.get(n, seconds)
        self.averages[n] = old + (seconds - old) / AVERAGED_CALLS

    def estimate(self, rows: int) -> float:
        """Estimate a call: one of unknown size takes as long as the next larger, or grows from the next smaller."""
        n = rows.bit_length()
        larger = [m for m in self.averages if m >= n]
        if larger:
            return self.averages[min(larger)]
        smaller = max(self.averages, default=0)
        return self.averages.get(smaller, 0.0) * 2.0 ** (n - smaller)


class Batcher:
    """The queue of one model. All methods are called on the event loop, after `start`."""

    def __init__(
        self, inferencers: Sequence[Inferencer], batched: bool, settings: BatchSettings, metrics: ModelMetrics
    ) -> None:
        self.inferencers = list(inferencers)
        self.idle = list(inferencers)
        self.max_batch = settings.max_batch if batched else 1
        self.settings = settings
        self.metrics = metrics
        self.times = CallTimes()
        self.waiting: deque[QueuedRequest] = deque()
        self.waiting_rows = 0
        self.running = 0
        """Requests that inferencers work on."""
        self.is_closed = False
        self._threads = ThreadPoolExecutor(len(self.inferencers), "tilegrad-serve")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def run(self, inputs: tuple[Elements, ...], deadline: float) -> list[Elements]:
        """Return the results for one request. `deadline` is a time of `time.monotonic`."""
        loop = self._loop = asyncio.get_running_loop()
        now = time.monotonic()
        rows = inputs[0].shape[0] if self.max_batch > 1 else 1
        self._admit(rows, now, deadline)
        key = tuple(x.shape[1:] for x in inputs) if self.max_batch > 1 else ()
        request = QueuedRequest(inputs, rows, key, loop.create_future(), now, deadline)
        self.waiting.append(request)
        self.waiting_rows += rows
        self._is_empty.clear()
        self._schedule()
        timer = loop.call_later(deadline - now, _expire, request) if deadline < math.inf else None
        try:
            return await request.result
        finally:
            if timer is not None:
                timer.cancel()

    def _admit(self, rows: int, now: float, deadline: float) -> None:
        """Refuse a request that cannot be answered in time."""
        if self.is_closed:
            raise RequestFault(503, "the model is being unloaded", 1.0)
        if rows > self.max_batch:
            raise refused(f"the request has {rows} rows; the model takes at most {self.max_batch} at once")
        ahead = self.delay()
        if len(self.waiting) >= self.settings.max_queue:
            raise overloaded(f"{len(self.waiting)} requests wait already", ahead)
        available = min(deadline - now, self.settings.sla or math.inf)
        if self.waiting and ahead + self.times.estimate(rows) > available:
            raise overloaded(f"the answer would take longer than {available:.3g} s", ahead - available)

    def delay(self) -> float:
        """Estimate the seconds until a new request would run."""
        if self.idle and not self.waiting:
            return 0.0
        batches = self.waiting_rows / self.max_batch + (0 if self.idle else 1)
        return batches * self.times.estimate(self.max_batch) / len(self.inferencers)

    def _schedule(self) -> None:
        """Start batches when the event loop has read all requests that are there already."""
        if not self._is_scheduled and self.idle and self._loop is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._start_batches)

    def _start_batches(self) -> None:
        self._is_scheduled = False
        while self.idle and self.waiting:
            now = time.monotonic()
            batch, later = self._next_batch(now)
            if later is not None:
                if self._timer is None and self._loop is not None:
                    self._timer = self._loop.call_later(later, self._on_timer)
                return
            if batch:
                self._start(batch, now)
        if not self.waiting and not self.running:
            self._is_empty.set()

    def _on_timer(self) -> None:
        self._timer = None
        self._schedule()

    def _next_batch(self, now: float) -> tuple[list[QueuedRequest], float | None]:
        """Take the next batch from the queue; or return how long it should still wait for more requests."""
        while self.waiting and self.waiting[0].result.done():  # expired, or its client has gone
            self.waiting_rows -= self.waiting.popleft().rows
        if not self.waiting:
            return [], None
        first = self.waiting[0]
        most = self._rows_in_time(first, now)
        if self.settings.wait and self.waiting_rows < most and not self.is_closed:
            left = first.arrival + self._patience(first) - now
            if left > 0:
                return [], left
        batch: list[QueuedRequest] = []
        others: list[QueuedRequest] = []
        rows = 0
        while self.waiting and rows < most:
            request = self.waiting.popleft()
            if request.result.done():
                self.waiting_rows -= request.rows
            elif request.key == first.key and (not batch or rows + request.rows <= most):
                batch.append(request)
                rows += request.rows
            else:
                others.append(request)
        self.waiting.extendleft(reversed(others))
        self.waiting_rows -= rows
        return batch, None

    def _patience(self, first: QueuedRequest) -> float:
        """Return the seconds that a request may wait, so that it is still answered in time."""
        latest = min(first.deadline - first.arrival, self.settings.sla or math.inf)
        return min(self.settings.wait, latest - self.times.estimate(self.max_batch))

    def _rows_in_time(self, first: QueuedRequest, now: float) -> int:
        """Return how many rows the oldest request may run with: fewer if it would be late with all."""
        available = min(first.deadline, first.arrival + (self.settings.sla or math.inf)) - now
        rows = self.max_batch
        while rows > first.rows and self.times.estimate(rows) > available:
            rows //= 2
        return max(rows, first.rows)

    def _start(self, batch: list[QueuedRequest], now: float) -> None:
        assert self._loop is not None
        inferencer = self.idle.pop()
        self.running += len(batch)
        for request in batch:
            self.metrics.queue_seconds.add(now - request.arrival)
        self._threads.submit(self._work, inferencer, batch, self._loop)

    def _work(self, inferencer: Inferencer, batch: list[QueuedRequest], loop: asyncio.AbstractEventLoop) -> None:
        """Run a batch, in a thread."""
        start = time.perf_counter()
        results: list[list[Elements] | Exception] = []
        try:
            results = run_halving(inferencer, [x.inputs for x in batch], self.max_batch > 1)
        finally:
            seconds = time.perf_counter() - start
            try:
                loop.call_soon_threadsafe(self._finish, inferencer, batch, results, seconds)
            except RuntimeError:  # the loop was closed before the batch was done: nobody waits for it
                pass

    def _finish(
        self,
        inferencer: Inferencer,
        batch: list[QueuedRequest],
        results: list[list[Elements] | Exception],
        seconds: float,
    ) -> None:
        self.idle.append(inferencer)
        self.running -= len(batch)
        rows = sum(x.rows for x in batch)
        self.metrics.compute_seconds.add(seconds)
        self.metrics.batch_rows.add(rows)
        if all(isinstance(x, list) for x in results):
            self.times.note(rows, seconds)
        for n, request in enumerate(batch):
            if not request.result.done():
                result = results[n] if n < len(results) else RuntimeError("the thread of the model ended")
                if isinstance(result, list):
                    request.result.set_result(result)
                else:
                    request.result.set_exception(result)
        self._start_batches()

    async def close(self, seconds: float | None = None) -> None:
        """Take no more requests, and end when those that wait are answered; after some seconds these fail."""
        self.is_closed = True
        self._schedule()
        try:
            await asyncio.wait_for(self._is_empty.wait(), seconds)
        except TimeoutError:
            for request in self.waiting:
                if not request.result.done():
                    request.result.set_exception(RequestFault(503, "the server ended first", 1.0))
        self._threads.shutdown(wait=False, cancel_futures=True)


def _expire(request: QueuedRequest) -> None:
    if not request.result.done():
        request.result.set_exception(RequestFault(504, "there was no result before the deadline"))


def run_halving(
    inferencer: Inferencer, requests: Sequence[tuple[Elements, ...]], batched: bool
) -> list[list[Elements] | Exception]:
    """Call a model with requests together; if that fails, with each half, so that only those fail that must.

    >>> def model(x):
    ...     if (x < 0).any(): raise ValueError("negative")
    ...     return [x + 1]
    >>> run_halving(model, [(np.array([1]),), (np.array([-1]),), (np.array([5]),)], True)
    [[array([2])], ValueError('negative'), [array([6])]]
    """
    try:
        return [*run_together(inferencer, requests, batched)]
    except BaseException as problem:  # whatever ends a call ends these requests, not the thread
        if len(requests) == 1:
            return [problem if isinstance(problem, Exception) else RuntimeError(f"{problem!r} ended the call")]
    half = len(requests) // 2
    return [
        *run_halving(inferencer, requests[:half], batched),
        *run_halving(inferencer, requests[half:], batched),
    ]


def run_together(
    inferencer: Inferencer, requests: Sequence[tuple[Elements, ...]], batched: bool
) -> list[list[Elements]]:
    """Call a model once with the rows of all requests, and give each its rows of the results."""
    if len(requests) == 1:
        outputs = inferencer(*(np.require(x, requirements=["A", "C"]) for x in requests[0]))
    else:
        outputs = inferencer(*(np.concatenate(rows) for rows in zip(*requests, strict=True)))
    if not batched:
        return [[np.array(x) for x in outputs]]
    total = sum(x[0].shape[0] for x in requests)
    for x in outputs:
        if x.ndim < 1 or x.shape[0] != total:
            raise RuntimeError(f"the model returned an output of shape {x.shape} for {total} rows")
    results, start = [], 0
    for inputs in requests:
        stop = start + inputs[0].shape[0]
        results.append([np.array(x[start:stop]) for x in outputs])
        start = stop
    return results
