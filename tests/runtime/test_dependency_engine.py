"""The engine: random programs equal their sequential run, the lecture's resources, errors, waits, threads."""

import gc
import os
import random
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.checklist import checklist
from tilegrad.errors import ArgumentError, RuntimeFault
from tilegrad.runtime import Engine, EngineVariable, events

PROGRAMS = 10_000
TOGETHER = 500
"""Random programs that run at the same time."""


class Call(NamedTuple):
    read: tuple[int, ...]
    mutate: tuple[int, ...]


def random_program(draw: random.Random) -> list[Call]:
    """Draw functions of up to four variables; a variable may be in both lists."""
    count = draw.randint(1, 4)

    def some() -> tuple[int, ...]:
        return tuple(draw.choices(range(count), k=draw.randint(0, 2)))

    return [Call(some(), some()) for _ in range(draw.randint(1, 9))]


class Run:
    """A program in an engine: cells with the values of its variables, and what happened in which order."""

    def __init__(self, program: list[Call], engine: Engine) -> None:
        count = 1 + max([v for call in program for v in (*call.read, *call.mutate)], default=0)
        self.program = program
        self.cells = [0] * count
        self.variables = [engine.new_variable(f"v{n}") for n in range(count)]
        self.log: list[tuple[int, str]] = []
        self.versions: dict[int, list[int]] = {}
        for number, call in enumerate(program):
            engine.push(
                self._function(number, call),
                [self.variables[v] for v in call.read],
                [self.variables[v] for v in call.mutate],
            )

    def _function(self, number: int, call: Call) -> Callable[[], None]:
        def function() -> None:
            self.log.append((number, "begins"))
            used = sorted({*call.read, *call.mutate})
            self.versions[number] = [self.variables[v].version for v in used]
            found = hash((number, *[self.cells[v] for v in used]))
            for v in call.mutate:
                self.cells[v] = hash((found, v))
            self.log.append((number, "ends"))

        return function

    def check(self, sequential: "Run") -> None:
        assert self.cells == sequential.cells
        assert [v.version for v in self.variables] == [v.version for v in sequential.variables]
        assert self.versions == sequential.versions
        at = {entry: n for n, entry in enumerate(self.log)}
        for b, later in enumerate(self.program):
            for a, earlier in enumerate(self.program[:b]):
                mine, others = {*later.read, *later.mutate}, {*earlier.read, *earlier.mutate}
                if mine & set(earlier.mutate) or others & set(later.mutate):
                    assert at[a, "ends"] < at[b, "begins"]


@checklist(10, 184)
@pytest.mark.parametrize("workers", [1, 3])
def test_random_programs_equal_their_sequential_run(workers: int) -> None:
    draw = random.Random(workers)
    for _ in range(PROGRAMS // 2 // TOGETHER):
        programs = [random_program(draw) for _ in range(TOGETHER)]
        with Engine(workers) as engine, Engine(workers=0) as in_order:
            runs = [Run(program, engine) for program in programs]
            engine.wait_all()
            for run in runs:
                run.check(Run(run.program, in_order))


@checklist(4, 10)
def test_functions_without_common_variables_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)
    with Engine(workers=2) as engine:
        a, b, source = [engine.new_variable() for _ in range(3)]
        engine.push(meeting.wait, read=[source], mutate=[a])
        engine.push(meeting.wait, read=[source], mutate=[b])
        engine.wait_all()
        engine.push(meeting.wait, read=[a])  # reads are shared, too
        engine.push(meeting.wait, read=[a])


@checklist(184)
def test_what_is_written_after_it_is_read() -> None:
    """B = A + 1; C = A + 2; A = C * 2; D = A + 3: the third waits for both readers of A, the fourth for the third."""
    data = {"A": 2}
    reading = threading.Event()

    def first() -> None:
        reading.wait(30)
        data["B"] = data["A"] + 1

    with Engine(workers=3) as engine:
        a, b, c, d = [engine.new_variable(name) for name in "ABCD"]
        engine.push(first, read=[a], mutate=[b])
        engine.push(lambda: data.update(C=data["A"] + 2), read=[a], mutate=[c])
        engine.push(lambda: data.update(A=data["C"] * 2), read=[c], mutate=[a])
        engine.push(lambda: data.update(D=data["A"] + 3), read=[a], mutate=[d])
        engine.wait(c)
        assert data == {"A": 2, "C": 4}
        reading.set()
        engine.wait(d)
        assert data == {"A": 8, "B": 3, "C": 4, "D": 11}


@checklist(184)
def test_memory_is_recycled_when_nobody_uses_it() -> None:
    memory, sums = {"a": [1, 2, 3]}, list[int]()
    with Engine(workers=2) as engine:
        a, total = engine.new_variable("a"), engine.new_variable("total")
        engine.push(lambda: sums.append(sum(memory["a"])), read=[a], mutate=[total])
        engine.delete_variable(a, lambda: memory.pop("a"))
        with pytest.raises(ArgumentError, match="'a' was deleted"):
            engine.push(print, read=[a])
        engine.wait_all()
        assert sums == [6]
        assert not memory


@checklist(184)
@pytest.mark.parametrize("resource", ["random numbers", "a communicator"])
def test_a_generator_and_a_communicator_are_resources(resource: str) -> None:
    """Functions that draw, or send, mutate the resource: so they do it in push order, and do not overlap."""
    generator, drawn = random.Random(0), list[float]()
    with Engine(workers=4) as engine:
        state = engine.new_variable(resource)
        for _ in range(200):
            engine.push(lambda: drawn.append(generator.random()), mutate=[state])
    expected = random.Random(0)
    assert drawn == [expected.random() for _ in range(200)]
    assert state.version == 200


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_are_raised_where_somebody_waits(workers: int) -> None:
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("no such file")

    engine = Engine(workers)
    a, b, c, other = [engine.new_variable(name) for name in ("a", "b", "c", "other")]
    engine.push(fail, mutate=[a])
    engine.push(lambda: ran.append("b"), read=[a], mutate=[b])
    engine.push(lambda: ran.append("c"), mutate=[b, c])
    engine.push(lambda: ran.append("other"), mutate=[other])
    engine.wait(other)
    for v in (a, b, c):
        with pytest.raises(ValueError, match="no such file"):
            engine.wait(v)
        engine.wait(v)  # raised once
    engine.wait_all()
    assert ran == ["other"]
    assert [v.version for v in (a, b, c, other)] == [0, 0, 0, 1]
    engine.push(lambda: ran.append("again"), read=[b], mutate=[a])
    engine.wait(a)
    engine.push(fail)  # nothing waits for it but wait_all
    engine.push(lambda: 1 / 0, mutate=[a])
    engine.delete_variable(a, lambda: ran.append("freed"))
    with pytest.raises(ValueError, match="no such file"):
        engine.wait_all()
    engine.close()
    assert ran == ["other", "again", "freed"]


def test_close_raises_what_nobody_has_seen() -> None:
    with pytest.raises(ZeroDivisionError), Engine(workers=1) as engine:
        engine.push(lambda: 1 / 0)
    engine = Engine(workers=1)
    engine.push(lambda: 1 / 0)
    with pytest.raises(KeyError, match="the block"), engine:
        raise KeyError("the block")
    with pytest.raises(RuntimeFault, match="closed"):
        engine.push(print)


def test_misuse_is_told() -> None:
    with pytest.raises(ArgumentError, match="workers=-1"):
        Engine(-1)
    with Engine(1) as engine, Engine(1) as another:
        with pytest.raises(ArgumentError, match="'theirs' is of another engine"):
            engine.push(print, read=[another.new_variable("theirs")])
        own = engine.new_variable()
        engine.push(lambda: engine.wait(own), mutate=[own])
        with pytest.raises(RuntimeFault, match="wait\\(\\) inside a function"):
            engine.wait(own)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_functions_may_push_functions(workers: int) -> None:
    """The inner function mutates what the outer one mutates: it runs after it."""
    ran: list[str] = []
    with Engine(workers) as engine:
        v = engine.new_variable()

        def outer() -> None:
            engine.push(lambda: ran.append("inner"), mutate=[v])
            ran.append("outer")

        engine.push(outer, mutate=[v])
        engine.wait(v)
        engine.wait_all()
    assert ran == ["outer", "inner"]


def test_several_threads_push_and_wait() -> None:
    counts = [0, 0]
    with Engine(workers=2) as engine:
        variables = [engine.new_variable() for _ in counts]

        def add(n: int) -> None:
            counts[n] += 1

        def pushes() -> None:
            for k in range(200):
                engine.push(lambda n=k % 2: add(n), read=[variables[1 - k % 2]], mutate=[variables[k % 2]])  # type: ignore[misc]
            engine.wait(variables[0])

        threads = [threading.Thread(target=pushes) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        engine.wait_all()
    assert counts == [400, 400]


def test_an_interrupted_wait_leaves_no_trace() -> None:
    go, variables = threading.Event(), list[EngineVariable]()

    class Interrupt(BaseException):
        pass

    with Engine(workers=1) as engine:
        v = engine.new_variable()
        variables.append(v)
        engine.push(lambda: go.wait(30), mutate=[v])
        wait_for = engine._queues.done.wait_for

        def interrupted(*_: object) -> None:
            raise Interrupt

        engine._queues.done.wait_for = interrupted  # type: ignore[assignment, method-assign]
        with pytest.raises(Interrupt):
            engine.wait(v)
        engine._queues.done.wait_for = wait_for  # type: ignore[method-assign]
        go.set()
        engine.push(lambda: None, mutate=[v])
        engine.wait(v)
        assert v.version == 2


def test_an_engine_that_is_dropped_ends_its_threads() -> None:
    engine = Engine(workers=2)
    threads = list(engine._threads)
    engine.push(lambda: None)
    del engine
    gc.collect()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_is_told() -> None:
    with Engine(workers=1) as engine:
        child = os.fork()
        if not child:
            try:
                engine.push(print)
            except RuntimeFault as fault:
                os._exit(0 if "fork" in str(fault) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_functions_are_events() -> None:
    """Listeners, such as profiles, hear of each function with its times."""
    seen: list[tuple[str, str]] = []
    with (
        events.listening(lambda event: seen.append((event.device, event.name))),
        Engine(workers=0) as engine,
    ):  # type: ignore[attr-defined]
        engine.push(gc.get_count)
    assert seen == [("engine", "get_count")]
