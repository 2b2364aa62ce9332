"""Run LLVM code generation of one kernel in a thread while the next kernel is lowered.

`concurrent.futures` does not serve: it accepts no work once the main thread has ended, while other threads may still
compile.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class CodegenTask(Generic[T]):
    """A task of the code generation thread, with its result or its exception."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = Event()
        self.made: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the task and keep its result or its exception."""
        try:
            self.made.append(self.work())
        except BaseException as error:
            self.error = error
        self.done.set()

    def result(self) -> T:
        """Wait for the result; raise the exception of the task if there was one."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.made[0]


class CodegenThread:
    """Context manager that owns the thread, which starts with the first task; where no thread can be started, the
    caller runs the tasks itself. On an error the tasks that have not begun are dropped.
    """

    def __enter__(self) -> CodegenThread:
        self.queue: SimpleQueue[CodegenTask[bytes] | None] = SimpleQueue()
        self.thread: Thread | None = None
        self.dropped = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.dropped = error is not None
        if self.thread is not None:
            self.queue.put(None)
            self.thread.join()

    def submit(self, work: Callable[[], bytes]) -> CodegenTask[bytes]:
        """Queue a task behind those submitted before."""
        made = CodegenTask(work)
        if self.thread is None and not self._starts():
            made.run()
        else:
            self.queue.put(made)
        return made

    def _starts(self) -> bool:
        """Start the thread, if the interpreter is not shutting down and the system allows one more."""
        thread = Thread(target=self._loop, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self.thread = thread
        return True

    def _loop(self) -> None:
        while (work := self.queue.get()) is not None and not self.dropped:
            work.run()
