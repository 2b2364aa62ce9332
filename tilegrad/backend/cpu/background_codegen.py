"""A thread that works beside its caller: LLVM makes code of one kernel while the next one is lowered.

Not one of `concurrent.futures`: those take no work once the main thread has ended, while others still compile.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """Something to do, and what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = Event()
        self.made: list[T] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        """Does it."""
        try:
            self.made.append(self.work())
        except BaseException as problem:  # noqa: BLE001 - raised where the result is wanted
            self.problem = problem
        self.done.set()

    def result(self) -> T:
        """Wait for the result."""
        self.done.wait()
        if self.problem is not None:
            raise self.problem
        return self.made[0]


class Beside:
    """The thread, as long as the block lasts; where no thread can be started, the caller does the work itself."""

    def __enter__(self) -> Beside:
        self.queue: SimpleQueue[Work[bytes] | None] = SimpleQueue()
        self.thread: Thread | None = Thread(target=self._loop, daemon=True)
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter ends, or the system allows no more
            self.thread = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.queue.put(None)
        if self.thread is not None:
            self.thread.join()

    def submit(self, work: Callable[[], bytes]) -> Work[bytes]:
        """Has something done, after what came before."""
        made = Work(work)
        if self.thread is None:
            made.run()
        else:
            self.queue.put(made)
        return made

    def _loop(self) -> None:
        while (work := self.queue.get()) is not None:
            work.run()
