"""Objects are listed without disturbing other threads."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from tests.source import ROOT
from tilegrad.runtime.live_objects import live_objects


class Base:
    pass


class Derived(Base):
    pass


class Liar:
    """Claims another class, as proxies do."""

    @property
    def __class__(self):  # type: ignore[no-untyped-def]
        raise AssertionError("asked for its class")


def test_instances_and_those_of_subclasses() -> None:
    liar, base, derived = Liar(), Base(), Derived()
    assert {id(x) for x in live_objects(Base)} == {id(base), id(derived)}
    assert live_objects(Derived) == [derived]
    assert len(live_objects(Base, Derived)) == 2
    assert live_objects() == []
    assert type(liar) is Liar


def test_nothing_is_kept() -> None:
    x = Base()
    dead = weakref.ref(x)
    live_objects(Base)
    del x
    assert dead() is None


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        live_objects(Base)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_tuples_that_another_thread_is_making() -> None:
    """Python raises SystemError in a thread whose unfinished tuple somebody else refers to."""
    failures: list[BaseException] = []
    ended = threading.Event()

    def make_tuples() -> None:
        try:
            while not ended.is_set():
                tuple(object() for _ in range(200))
        except BaseException as problem:
            failures.append(problem)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=make_tuples)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(20):
            live_objects(Base)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failures


def test_the_package_asks_the_collector_in_one_place() -> None:
    found = subprocess.run(
        ["grep", "-rlE", r"gc\.get_(objects|referrers)", "--include=*.py", "tilegrad"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    ).stdout.split()
    assert found == ["tilegrad/runtime/live_objects.py"]
