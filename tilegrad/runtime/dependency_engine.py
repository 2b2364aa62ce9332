"""Run functions concurrently in the order of what they read and mutate: a mutation-aware dependency engine.

A variable stands for a resource: an array, a block of memory, a random generator, a communicator. Each has a queue of
the functions that were pushed with it. Its head is either one function that mutates the variable, or all consecutive
ones that only read it. A function runs when it is in the head of all its queues: so writes of a variable are exclusive
and in push order, and reads between two writes are concurrent. All queues are in push order, so there is no deadlock.

>>> engine, x = Engine(workers=2), [1, 2, 3]
>>> a, total = engine.new_variable("a"), engine.new_variable("total")
>>> engine.push(x.reverse, mutate=[a])
>>> engine.push(lambda: x.append(sum(x)), read=[a], mutate=[total])
>>> engine.wait(total)
>>> x, total.version
([3, 2, 1, 6], 1)
>>> engine.close()
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ..errors import ArgumentError, RuntimeFault
from . import events
from .singletons import lock

_current = threading.local()
"""The queues whose function this thread runs."""


class _KeptError(NamedTuple):
    """The error of a function, and the number of its push."""

    number: int
    error: BaseException


class EngineVariable:
    """A resource of an engine; `version` counts the functions that have mutated it without an error."""

    def __init__(self, queues: _Queues, name: str) -> None:
        self.name = name
        self.version = 0
        self._queues = queues
        self._waiting: deque[tuple[_PushedFunction, bool]] = deque()
        self._readers = 0
        self._is_mutated = False
        self._failure: _KeptError | None = None
        self._is_deleted = False

    def __repr__(self) -> str:
        return f"EngineVariable({self.name!r}, version={self.version})"


class _PushedFunction:
    """A function, or without `fn` a caller that waits; `missing` counts its variables in whose heads it is not yet."""

    __slots__ = ("always", "fn", "missing", "mutate", "number", "read")

    def __init__(
        self,
        fn: Callable[[], object] | None,
        read: tuple[EngineVariable, ...],
        mutate: tuple[EngineVariable, ...],
        always: bool = False,
    ) -> None:
        self.fn, self.read, self.mutate, self.always = fn, read, mutate, always
        self.number = 0
        self.missing = len(read) + len(mutate)

    def __lt__(self, other: _PushedFunction) -> bool:
        return self.number < other.number

    def failure(self) -> _KeptError | None:
        """Return the first error on which it depends."""
        return min([v._failure for v in (*self.read, *self.mutate) if v._failure], default=None, key=lambda f: f.number)


class _Queues:
    """Share state between an engine and its workers, which must not keep the engine alive."""

    def __init__(self) -> None:
        own = lock()
        self.work, self.done = threading.Condition(own), threading.Condition(own)
        self.ready: list[_PushedFunction] = []
        self.pushed = self.unfinished = 0
        self.failed: set[EngineVariable] = set()
        self.errors: dict[int, BaseException] = {}
        """Errors that were not raised yet, by the number of the push."""
        self.is_closed = False
        self.process = os.getpid()

    def push(self, pushed: _PushedFunction) -> None:
        with self.work:
            self._check([*pushed.read, *pushed.mutate])
            self.pushed += 1
            self.unfinished += 1
            pushed.number = self.pushed
            for variables, mutates in ((pushed.read, False), (pushed.mutate, True)):
                for v in variables:
                    v._waiting.append((pushed, mutates))
            if not pushed.missing:
                self._start(pushed)
            for v in (*pushed.read, *pushed.mutate):
                self._admit(v)

    def _check(self, variables: Iterable[EngineVariable]) -> None:
        if self.process != os.getpid():
            raise RuntimeFault("an engine's threads do not survive a fork: make the engine in the process that uses it")
        if self.is_closed:
            raise RuntimeFault("the engine was closed: push before close()")
        for v in variables:
            if v._queues is not self:
                raise ArgumentError(f"the variable {v.name!r} is of another engine: use new_variable() of this one")
            if v._is_deleted:
                raise ArgumentError(f"the variable {v.name!r} was deleted")

    def _admit(self, v: EngineVariable) -> None:
        """Move the functions that may use a variable now from its queue to its head."""
        while v._waiting and not v._is_mutated:
            pushed, mutates = v._waiting[0]
            if mutates and v._readers:
                return
            v._waiting.popleft()
            v._is_mutated = mutates
            v._readers += not mutates
            pushed.missing -= 1
            if not pushed.missing:
                self._start(pushed)

    def _start(self, pushed: _PushedFunction) -> None:
        if pushed.fn is None:
            self.done.notify_all()
        else:
            heappush(self.ready, pushed)
            self.work.notify()

    def next(self) -> _PushedFunction | None:
        """Wait for a function that may run, the earliest pushed; None when the engine is closed."""
        with self.work:
            while not self.ready:
                if self.is_closed and not self.unfinished:
                    return None
                self.work.wait()
            return heappop(self.ready)

    def run(self, pushed: _PushedFunction) -> None:
        failure = None if pushed.always else pushed.failure()
        if failure is None and pushed.fn is not None:
            outer, _current.queues = getattr(_current, "queues", None), self
            start = events.now()
            try:
                pushed.fn()
            except BaseException as error:  # kept for whoever waits
                failure = _KeptError(pushed.number, error)
            finally:
                _current.queues = outer
            if events.listeners:
                name = getattr(pushed.fn, "__name__", type(pushed.fn).__name__)
                events.emit("launch", name, "engine", start, events.now())
        self.finish(pushed, failure)

    def finish(self, pushed: _PushedFunction, failure: _KeptError | None = None) -> None:
        """Take a function out of the heads of its queues and admit those behind it."""
        with self.work:
            if failure is not None and failure.number == pushed.number:
                self.errors[failure.number] = failure.error
            for v in pushed.read:
                v._readers -= 1
            for v in pushed.mutate:
                v._is_mutated = False
                if failure is None:
                    v.version += 1
                else:
                    v._failure = failure
                    self.failed.add(v)
            for v in (*pushed.read, *pushed.mutate):
                self._admit(v)
            self.unfinished -= 1
            if not self.unfinished:
                self.done.notify_all()
                self.work.notify_all()

    def wait(self, v: EngineVariable) -> None:
        """Wait for a variable as a reader of it, and raise its error."""
        awaited = _PushedFunction(None, (v,), ())
        self.push(awaited)
        with self.done:
            try:
                self.done.wait_for(lambda: not awaited.missing)
            except BaseException:  # an interrupt: nobody waits any more
                awaited.fn = _do_nothing
                if not awaited.missing:
                    self._start(awaited)
                raise
            failure, v._failure = v._failure, None
            self.failed.discard(v)
            self.finish(awaited)
        if failure is not None:
            self.errors.pop(failure.number, None)
            raise failure.error

    def wait_all(self) -> None:
        with self.done:
            self.done.wait_for(lambda: not self.unfinished)
            found = self.errors | {v._failure.number: v._failure.error for v in self.failed if v._failure}
            for v in self.failed:
                v._failure = None
            self.errors, self.failed = {}, set()
        if found:
            raise found[min(found)]

    def close(self) -> None:
        with self.work:
            self.is_closed = True
            self.work.notify_all()


def _do_nothing() -> None:
    pass


def _work(queues: _Queues) -> None:
    while (pushed := queues.next()) is not None:
        queues.run(pushed)
        del pushed


class Engine:
    """Run pushed functions on worker threads; writes of a variable are exclusive and in push order, reads are shared.

    `workers`: how many threads run functions; 0 runs each in the thread that pushes it, in push order, for debugging.
    The results are the same, as long as the functions name what they read and mutate.

    An error of a function is kept with the variables that it mutates. Functions that read or mutate one of them do not
    run, and pass the error on; `wait` and `wait_all` raise it once.
    """

    def __init__(self, workers: int = 2) -> None:
        if workers < 0:
            raise ArgumentError(f"workers={workers}: an engine has 0 or more threads")
        self.workers = workers
        self._queues = _Queues()
        self._threads = [
            threading.Thread(target=_work, args=(self._queues,), name=f"engine worker {n}", daemon=True)
            for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, self._queues.close)

    def new_variable(self, name: str = "") -> EngineVariable:
        """Make a variable for a resource; the name is for messages."""
        return EngineVariable(self._queues, name)

    def push(
        self, fn: Callable[[], object], read: Iterable[EngineVariable] = (), mutate: Iterable[EngineVariable] = ()
    ) -> None:
        """Run a function as soon as the variables that it reads and mutates permit.

        A variable in both lists is mutated. What the function returns is dropped.
        """
        mutated = dict.fromkeys(mutate)
        only_read = [v for v in dict.fromkeys(read) if v not in mutated]
        self._push(_PushedFunction(fn, tuple(only_read), tuple(mutated)))

    def delete_variable(self, variable: EngineVariable, fn: Callable[[], object] = _do_nothing) -> None:
        """Run `fn`, which frees the resource, after all functions that use it, also if one failed; refuse later ones.

        The call does not wait.
        """
        self._push(_PushedFunction(fn, (), (variable,), always=True), last=True)

    def _push(self, pushed: _PushedFunction, last: bool = False) -> None:
        queues = self._queues
        with queues.work:
            queues.push(pushed)
            if last:
                pushed.mutate[0]._is_deleted = True
        while not self.workers:
            with queues.work:
                if not queues.ready:
                    return
                following = heappop(queues.ready)
            queues.run(following)

    def wait(self, variable: EngineVariable) -> None:
        """Wait until all functions that were pushed with `mutate=[variable]` are done; raise the error of one.

        The variable may be used again after an error: its resource is as the function that failed left it.
        """
        self._refuse_inside("wait")
        self._queues.wait(variable)

    def wait_all(self) -> None:
        """Wait until all functions are done; raise the first error, in push order, that was not raised yet."""
        self._refuse_inside("wait_all")
        self._queues.wait_all()

    def close(self) -> None:
        """Wait until all functions are done, end the threads, and raise the first error that was not raised yet."""
        self._refuse_inside("close")
        self._queues.close()
        for thread in self._threads:
            thread.join()
        self._queues.wait_all()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self.close()
        except BaseException:
            if kind is None:  # else the error of the block is raised
                raise

    def _refuse_inside(self, method: str) -> None:
        if getattr(_current, "queues", None) is self._queues:
            raise RuntimeFault(f"{method}() inside a function of the engine may wait for itself: push what comes after")
