"""Prepare batches in workers: threads, or processes.

Threads are enough where the work is numpy's, reading or decoding, which let other threads run. A data set that computes
in Python needs processes: `multiprocessing_context="fork"` (or "spawn", "forkserver"). Either way the batches come in
one order, and each worker makes the same batches in every run.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from ..errors import DataError

STOP = None
PATIENCE = 0.5
"""Time for which a process may finish its work before it is terminated, in seconds."""


class WorkerInfo(NamedTuple):
    """The worker in which a data set runs: its number, the number of workers, the seed."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Current(threading.local):
    info: WorkerInfo | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """Return the worker of the caller; None outside of workers. An iterable data set divides its samples by it."""
    return _current.info


class Begin(NamedTuple):
    """A message that begins an epoch."""

    epoch: int
    seed: int


class Make(NamedTuple):
    """A request for one batch (or sample)."""

    wanted: Any


class Failure(NamedTuple):
    """An error in a worker."""

    error: BaseException | None
    """None if it cannot be pickled."""
    text: str


class Ended(NamedTuple):
    """The end of an iterable data set."""


class WorkerTask(NamedTuple):
    """The task of a worker."""

    dataset: Any
    begin: Callable[[], Callable[[Any], Any]]
    """Returns the maker of batches for one epoch."""
    start: Callable[[int], None] | None
    """The user's worker_init_fn."""
    workers: int


class Link(Protocol):
    """A connection to a worker."""

    def send(self, task: Any) -> None: ...

    def receive(self, timeout: float) -> Any:
        """Return the next answer; raise Empty after the timeout (0: wait without limit)."""

    def stop(self) -> None:
        """Request the end of the worker."""

    def close(self) -> None:
        """Wait until the worker has ended, or terminate it."""


def work(
    number: int, job: WorkerTask, next_task: Callable[[], Any], answer: Callable[[Any], None], in_thread: bool
) -> None:
    """Answer requests until the worker is stopped: its main loop."""
    epoch, make, started = -1, None, False
    while (task := next_task()) is not STOP:
        try:
            if isinstance(task, Begin):
                epoch = task.epoch
                _current.info = WorkerInfo(number, job.workers, task.seed + number, job.dataset)
                if not in_thread:
                    _seed(task.seed + number)
                if job.start is not None and not started:
                    job.start(number)
                started = True
                make = job.begin()
                continue
            assert make is not None
            result = make(task.wanted)
        except StopIteration:
            result = Ended()
        except BaseException as error:
            if not (in_thread or isinstance(error, Exception)):
                raise
            # who waits for a thread would never hear that it has ended, as after sys.exit() in a data set
            result = Failure(error, traceback.format_exc())
        answer((epoch, result))


def _seed(seed: int) -> None:
    """Seed the random numbers of a process, the same in every run."""
    import random

    import numpy

    from ..random import manual_seed

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    manual_seed(seed)


class ThreadLink:
    """A worker in a thread of this process."""

    def __init__(self, number: int, job: WorkerTask) -> None:
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.stopped = False
        name = f"tilegrad-data-{number}"
        arguments = (number, job, self._next, self.answers.put, True)
        self.thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
        self.thread.start()

    def _next(self) -> Any:
        task = self.tasks.get()
        return STOP if self.stopped else task

    def send(self, task: Any) -> None:
        self.tasks.put(task)

    def receive(self, timeout: float) -> Any:
        return self.answers.get(timeout=timeout or None)

    def stop(self) -> None:
        self.stopped = True
        self.tasks.put(STOP)

    def close(self) -> None:
        """Leave the thread: a batch in progress is dropped."""


class ProcessLink:
    """A worker in a process. Arrays are sent as raw memory, separately from their description."""

    def __init__(self, number: int, job: WorkerTask, context: Any) -> None:
        self.number = number
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(number, job, other), name=f"tilegrad-data-{number}", daemon=True
        )
        try:
            self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise DataError(
                f"DataLoader: the data set cannot be sent to a worker process: {error}. Define its class and its "
                "functions at the top of a module, or take multiprocessing_context='fork', or threads (None)"
            ) from error
        other.close()

    def send(self, task: Any) -> None:
        try:
            self.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None

    def receive(self, timeout: float) -> Any:
        if timeout and not self.pipe.poll(timeout):
            raise Empty
        try:
            return _received(self.pipe)
        except (EOFError, ConnectionResetError):
            raise self._died() from None

    def _died(self) -> DataError:
        self.process.join(10 * PATIENCE)
        code = self.process.exitcode
        how = f"was ended by signal {signal.Signals(-code).name}" if code and code < 0 else f"exited with {code}"
        return DataError(
            f"DataLoader: worker {self.number} (process {self.process.pid}) {how} while it made a batch. If memory ran "
            "out, use fewer workers or a smaller prefetch_factor; to see its error use num_workers=0"
        )

    def stop(self) -> None:
        with suppress(OSError):
            self.pipe.send(STOP)
        self.pipe.close()

    def close(self) -> None:
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.terminate()
            self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def _serve(number: int, job: WorkerTask, pipe: Any) -> None:
    """Run the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the first one ends the others
    tasks: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    with suppress(EOFError, OSError):
        work(number, job, tasks.get, lambda answer: _sent(pipe, answer), in_thread=False)


def _listen(pipe: Any, tasks: SimpleQueue[Any]) -> None:
    """Receive requests even while an answer waits to be read, which avoids a deadlock."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    assert parent is not None
    task: Any = ()
    while task is not STOP:
        if pipe not in wait([pipe, parent.sentinel]):
            os._exit(1)  # the process that asked is gone: nobody would read an answer
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            task = STOP
        tasks.put(task)


def _sent(pipe: Any, answer: Any) -> None:
    """Send an answer; an error that cannot be pickled is sent as text."""
    epoch, result = answer
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
        if isinstance(result, Failure):
            pickle.loads(head)
    except Exception:
        buffers.clear()
        text = result.text if isinstance(result, Failure) else traceback.format_exc()
        head = pickle.dumps((epoch, Failure(None, text)))
    pipe.send_bytes(pickle.dumps((head, [len(b.raw()) for b in buffers])))
    for buffer in buffers:
        if len(buffer.raw()):
            pipe.send_bytes(buffer.raw())


def _received(pipe: Any) -> Any:
    head, sizes = pickle.loads(pipe.recv_bytes())
    buffers = []
    for size in sizes:
        buffer = bytearray(size)
        if size:
            pipe.recv_bytes_into(buffer)
        buffers.append(buffer)
    return pickle.loads(head, buffers=buffers)


class WorkerPool:
    """The workers of a loader."""

    def __init__(self, job: WorkerTask, context: Any, ahead: int, timeout: float) -> None:
        self.context = context
        self.ahead = ahead
        self.timeout = timeout
        self.epoch = 0
        self.links: list[Link] = []
        self.open = True
        self.taken = threading.Lock()
        """Held during a loop over the batches."""
        try:
            for n in range(job.workers):
                self.links.append(ThreadLink(n, job) if context is None else ProcessLink(n, job, context))
        except BaseException:
            self.close()
            raise

    def take(self) -> bool:
        """Reserve the workers for a loop, if they are free."""
        return self.taken.acquire(blocking=False) and self.open

    def batches(self, wanted: Iterator[Any], seed: int) -> Iterator[Any]:
        """Yield the answers to all requests in order; requests go to the workers round-robin."""
        self.epoch += 1
        epoch = self.epoch
        for link in self.links:
            link.send(Begin(epoch, seed))
        busy: deque[int] = deque()
        """Workers with pending requests, in the order of the requests."""
        over: set[int] = set()

        def ask(number: int) -> None:
            for item in islice(wanted, 1):
                self.links[number].send(Make(item))
                busy.append(number)

        for _ in range(self.ahead):
            for number in range(len(self.links)):
                ask(number)
        while busy:
            number = busy.popleft()
            result = self._answer(number, epoch)
            if isinstance(result, Ended):
                over.add(number)
                continue
            if number not in over:
                ask(number)
            yield result

    def _answer(self, number: int, epoch: int) -> Any:
        """Return the next answer of a worker for an epoch; answers for abandoned epochs are dropped."""
        while True:
            try:
                made, result = self.links[number].receive(self.timeout)
            except Empty:
                raise DataError(
                    f"DataLoader: worker {number} made no batch within timeout={self.timeout} seconds"
                ) from None
            if made != epoch:
                continue
            if isinstance(result, Failure):
                self._raise(number, result)
            return result

    def _raise(self, number: int, failure: Failure) -> None:
        kind = "thread" if self.context is None else "process"
        error = failure.error
        if error is None:
            error = DataError(f"DataLoader: worker {number} failed, with an error that cannot be sent:\n{failure.text}")
        elif self.context is not None:
            error.add_note(f"in worker {number} of the DataLoader, a {kind}:\n{failure.text}")
        raise error

    def close(self) -> None:
        """Stop the workers."""
        if self.open:
            self.open = False
            for link in self.links:
                link.stop()
            for link in self.links:
                link.close()
