"""The native runtime of the CPU device (`runtime.ll`): its worker threads and the functions it exposes to Python."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...config import settings
from ...runtime.singletons import once
from . import objects

WORD_BYTES = 8
"""Bytes of a word."""
TIMED_PAUSES = 300
"""Pause instructions whose time is measured at once."""
LINE_WORDS = 8
"""Words of a cache line."""


class InstructionSet(NamedTuple):
    """Constants of `runtime.ll` that depend on the instruction set (Linux)."""

    pause: str
    futex: int
    nanosleep: int
    gettid: int


INSTRUCTION_SETS = {"x86_64": InstructionSet("pause", 202, 35, 186), "aarch64": InstructionSet("yield", 98, 101, 178)}

API = (
    "PyLong_AsLongLong",
    "PyErr_Occurred",
    "PyErr_SetString",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "Py_IncRef",
    "Py_DecRef",
    "PyType_GenericAlloc",
    "PyList_Size",
    "PyList_GetItem",
    "PyList_SetSlice",
    "PyList_Append",
    "PyObject_CallFunctionObjArgs",
)
"""Functions of Python's stable ABI that `runtime.ll` calls."""


class AlignedWords:
    """Memory of 8-byte words, aligned to a cache line, shared by native code and Python."""

    def __init__(self, count: int) -> None:
        self._owner = ctypes.create_string_buffer((count + LINE_WORDS) * WORD_BYTES)
        start = ctypes.addressof(self._owner)
        self.address = -(-start // (LINE_WORDS * WORD_BYTES)) * (LINE_WORDS * WORD_BYTES)
        offset = self.address - start
        self.view = memoryview(self._owner).cast("B")[offset : offset + count * WORD_BYTES].cast("q")

    def at(self, word: int) -> int:
        """Address of a word."""
        return self.address + word * WORD_BYTES


@cache
def has_threads() -> bool:
    """Whether worker threads are supported: they wait on Linux futexes."""
    return sys.platform == "linux" and platform.machine() in INSTRUCTION_SETS


LINUX_ONLY = {
    "declare i64 @syscall(i64, ...)": "define private i64 @syscall(i64, ...) {\n  ret i64 0\n}",
    "declare i32 @sched_yield()": "define private i32 @sched_yield() {\n  ret i32 0\n}",
    "declare i32 @sched_getcpu()": "define private i32 @sched_getcpu() {\n  ret i32 0\n}",
    "declare i32 @sched_setaffinity(i32, i64, ptr)":
        "define private i32 @sched_setaffinity(i32, i64, ptr) {\n  ret i32 0\n}",
    "declare i32 @clock_gettime(i32, ptr)":
        "define private i32 @clock_gettime(i32 %clock, ptr %now) {\n  store i128 0, ptr %now\n  ret i32 0\n}",
}  # fmt: skip
"""Definitions that replace Linux functions on other systems, where there is one thread and nothing waits."""


def source() -> str:
    """Return the text of `runtime.ll` for this machine."""
    text = (Path(__file__).parent / "runtime.ll").read_text()
    machine = INSTRUCTION_SETS["x86_64" if platform.machine().lower() in ("x86_64", "amd64") else "aarch64"]
    for name, value in machine._asdict().items():
        text = text.replace("{" + name + "}", str(value))
    if not has_threads():
        for declared, defined in LINUX_ONLY.items():
            text = text.replace(declared, defined)
    return text


@once
def code() -> objects.LinkedCode:
    """Compile and link the native runtime."""
    names = ["run_tasks", "copy_bytes", "call_outside", "pauses", "work", "wake", "retire", "call", "make", "drop"]
    names += [f"at_{slot}" for slot in ("address", "blocks", "bytes", "device", "memory")]
    python = ctypes.pythonapi
    symbols = {name: _address_of(getattr(python, name)) for name in API}
    symbols["none"] = id(None)
    symbols["type_error"] = ctypes.addressof(ctypes.c_void_p.in_dll(python, "PyExc_TypeError"))
    image = objects.cached_object("the runtime", source(), objects.host(), optimise="inline")
    linked = objects.link([image], names, symbols)
    python.Py_IncRef(ctypes.py_object(linked))  # buffers may outlive all other objects of the interpreter
    return linked


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_NOARGS, METH_FASTCALL = 0x04, 0x80


@once
def _run_method() -> _MethodDef:
    return _MethodDef(b"run", code().addresses["call"], METH_FASTCALL, b"run(address, ...): runs a program")


@once
def _make_method() -> _MethodDef:
    return _MethodDef(b"make", code().addresses["make"], METH_NOARGS, b"make(): a buffer on a free block")


def run_function(program: int) -> Callable[..., None]:
    """Create the Python function that runs the program at an address: `run(*addresses of its inputs and outputs)`."""
    return _builtin(_run_method(), program)


def factory_function(record: int) -> Callable[[], Any]:
    """Create the Python function that allocates buffers as the factory record at an address says."""
    return _builtin(_make_method(), record)


def _builtin(method: _MethodDef, self: int) -> Callable[..., Any]:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make.restype = ctypes.py_object
    return make(ctypes.addressof(method), self, None)  # type: ignore[no-any-return]


# Words of a team in `runtime.ll`.
GENERATION, PROGRAM, SLEEPERS = 8, 9, 10
STOP, THREADS, SPARE, SPINS, WORKERS, WAKES, FOLLOW = 16, 17, 18, 19, 20, 21, 22
HEAD, WORKER = 24, 8


class Team:
    """The caller and its worker threads, each worker pinned to its own core.

    Workers know nothing of Python. They start when the first program has work for them, end with the interpreter, and
    start again in a forked child, which inherits none.
    """

    def __init__(self, threads: int, cores: Sequence[int]) -> None:
        self.threads = threads
        self.cores = list(cores)
        self.words = AlignedWords(HEAD + WORKER * max(1, threads))
        self._handles: list[int] = []
        self._lock = threading.Lock()
        self._lay_out()

    @property
    def address(self) -> int:
        return self.words.address

    @property
    def wakes(self) -> int:
        """Number of times sleeping workers had to be woken."""
        return self.words.view[WAKES]

    def _lay_out(self) -> None:
        view = self.words.view
        for n in range(len(view)):
            view[n] = 0
        view[THREADS] = self.threads
        view[WORKERS] = self.words.at(HEAD)
        pinned = self.threads > 1 and len(self.cores) >= self.threads
        view[SPARE] = self.cores[0] if pinned else -1
        view[FOLLOW] = pinned
        for n in range(self.threads - 1):
            at = HEAD + WORKER * n
            view[at + 1] = self.cores[n + 1] if pinned else -1
            view[at + 3], view[at + 4] = self.address, n + 1

    def start(self) -> None:
        """Start the workers, unless they run."""
        with self._lock:
            if self._handles or self.threads < 2:
                return
            self.words.view[SPINS] = _spins(settings().spin)
            libc = ctypes.CDLL(None)
            create, work = libc.pthread_create, code().addresses["work"]
            create.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
            with _signals_blocked():
                for n in range(self.threads - 1):
                    handle = ctypes.c_ulong()
                    worker = self.words.at(HEAD + WORKER * n)
                    if create(ctypes.addressof(handle), None, work, worker) != 0:
                        break  # the system allows no more threads: the caller does their work
                    self._handles.append(handle.value)
            self._pin()

    def _pin(self) -> None:
        if not self.words.view[FOLLOW]:
            return
        for n in range(len(self._handles)):
            at = HEAD + WORKER * n
            while not self.words.view[at + 2]:  # until the thread has published its id
                time.sleep(0)
            try:
                os.sched_setaffinity(self.words.view[at + 2], {self.words.view[at + 1]})
            except OSError:
                self.words.view[FOLLOW] = 0

    def stop(self) -> None:
        """Stop the workers; programs still run, on their callers' threads."""
        with self._lock:
            if not self._handles:
                return
            self.words.view[STOP] = 1
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code().addresses["wake"])(self.address)
            join = ctypes.CDLL(None).pthread_join
            join.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
            for handle in self._handles:
                join(handle, None)
            self._handles.clear()
            self.words.view[STOP] = 0

    def reset_after_fork(self) -> None:
        """Reset the state in a forked child: the workers belong to the parent, and nobody holds the lock."""
        running = bool(self._handles)
        self._handles.clear()
        self._lock = threading.Lock()
        self._lay_out()
        if running:
            self.start()

    @property
    def running(self) -> int:
        """Number of worker threads."""
        return len(self._handles)


class _signals_blocked:
    """Block signals in threads started within: Python's own threads handle them; faults still end the process."""

    FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})

    def __enter__(self) -> None:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - self.FAULTS)

    def __exit__(self, *error: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def _spins(microseconds: int) -> int:
    """Return the number of pause instructions that last this long: one takes 10 to 140 cycles."""
    pauses = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code().addresses["pauses"])
    shortest = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        pauses(TIMED_PAUSES)
        shortest = min(shortest, time.perf_counter() - start)
    wanted = microseconds * 1e-6
    return max(1, int(wanted * TIMED_PAUSES / shortest))


def cores() -> list[int]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def threads() -> int:
    """Return the number of threads that run programs."""
    return (settings().threads or len(cores())) if has_threads() else 1


@once
def team() -> Team:
    """Return the thread team of this process."""
    made = Team(threads(), cores())
    atexit.register(made.stop)  # their code is unmapped with the interpreter
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.reset_after_fork)
    return made
