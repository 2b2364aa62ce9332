"""Profile one operation at a time, as an eager framework runs them: `profile(one_by_one=True)`.

Elsewhere tilegrad fuses operations; a profile without `one_by_one` shows the fused programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from types import FrameType
from typing import Any

from ..errors import TraceError
from ..ir.graph import Value, topological
from ..ir.location import is_inside
from ..lazy.evaluation import compute
from ..lazy.handle import state
from ..lazy.storage import Storage
from ..ops.broadcasting import fill
from ..runtime import events
from .recorder import Range


class Runs:
    """Collects the runs of programs, and no other events."""

    def __init__(self) -> None:
        self.runs: list[events.Run] = []

    def __call__(self, event: events.TimedEvent) -> None: ...

    def run(self, run: events.Run) -> None:
        self.runs.append(run)


class OneByOne:
    """Computes each operation of a thread as soon as it is made (see `lazy.handle.Tracer`), and records its time.

    Compiling is not counted, nor is what computing the operation launches: the operation is the record.
    """

    at_once = True

    def __init__(self, record: Callable[[Range, Range | None], None]) -> None:
        self.record = record
        self.last: tuple[FrameType | None, Range, Value] | None = None
        """The call of the library that the last operation belongs to, its record, and its result."""
        self.guards: list[Any] = []

    def read(self, tensor: Any) -> Value:
        return tensor.own_value()  # type: ignore[no-any-return]

    def read_whole(self, base: Any) -> Value:
        return base.current()  # type: ignore[no-any-return]

    def made(self, tensor: Any) -> None:
        value = tensor._value
        name = _named(value)
        if not name:
            return
        ran = Runs()
        given = [v for v in topological([value], lambda v: v.buffer is not None) if v.buffer is not None and v.shape]
        start = events.now()
        state.trace = None
        try:
            with quiet(), events.listening(ran):
                compute(tensor)
        except TraceError:
            return  # it stands for nothing outside of a function that is mapped
        finally:
            state.trace = self
        if value.buffer is not None:
            took = sum(run.stamps[-1] - run.stamps[0] for run in ran.runs if run.stamps)
            function, frame = called()
            what = Range("operation", function or name, start, start + took, value.device, (), tuple(ran.runs))
            self._note(what, frame, value, given)

    def _note(self, what: Range, frame: FrameType | None, value: Value, given: Sequence[Value]) -> None:
        """Record an operation; what one call of the library computes in parts is one record."""
        before, shapes = None, tuple(_known_shape(v) for v in given)
        if self.last is not None and frame is not None and self.last[0] is frame and self.last[1].name == what.name:
            before = self.last[1]
            stop = before.stop + what.stop - what.start
            result = self.last[2]
            shapes = (*before.shapes, *(_known_shape(v) for v in given if v is not result))
            what = what._replace(start=before.start, stop=stop, runs=before.runs + what.runs)
        what = what._replace(shapes=shapes)
        self.record(what, before)
        self.last = frame, what, value

    def stored(self, tensor: Any, storage: Any) -> None: ...

    def writing(self, tensor: Any, base: Any) -> None: ...

    def gradient_read(self, tensor: Any) -> None: ...

    def gradient_set(self, tensor: Any) -> None: ...

    def reformed(self, tensor: Any, what: str) -> None: ...

    def takes(self, tensor: Any, elements: Any) -> bool:
        return True

    def within(self, op: str) -> AbstractContextManager[None]:
        return nullcontext()

    def making(self, op: str) -> AbstractContextManager[set[Storage]]:
        return nullcontext(set())

    def number(self, read: Callable[[], float], type: Any) -> Value:
        return fill(read(), type.shape, type.dtype, type.device)


def called() -> tuple[str, FrameType | None]:
    """Return the name of the outermost function of the library on the stack, as `square` or `matmul`, with its frame;
    an empty name if there is none.

    An operator has the name of its function: `*` is `mul`.
    """
    public = _public()
    frame: FrameType | None = sys._getframe(2)
    found, own = "", None
    while frame is not None and is_inside(frame.f_code.co_filename):
        name = frame.f_code.co_name
        if name.startswith("__"):
            plain = name.strip("_")
            name = plain if plain in public else OPERATORS.get(plain.lstrip("ri"), plain)
        if name in public:
            found, own = name, frame
        elif name in ("backward", "step"):
            return "", None
        frame = frame.f_back
    return found, own


def _known_shape(value: Value) -> tuple[int, ...]:
    return tuple(n for n in value.shape if isinstance(n, int))


OPERATORS = {
    "truediv": "div", "add": "add", "sub": "sub", "mul": "mul", "matmul": "matmul", "pow": "pow",
    "floordiv": "floor_divide",
}  # fmt: skip
"""The functions of operators, without the `r` or `i` that marks the reflected and the in-place ones."""


@cache
def _public() -> frozenset[str]:
    """List the names of public functions."""
    from .. import functional
    from ..nn import functional as layers

    return frozenset(functional.__all__) | {name for name in dir(layers) if not name.startswith("_")}


def _named(value: Value) -> str:
    """Name an operation that is not computed yet: by its product, if it has one, else by its last operation.

    A mere view has no name: nothing is computed for it.
    """
    if value.buffer is not None:
        return ""
    made = [v for v in topological([value], lambda v: v.buffer is not None) if v.buffer is None and v.inputs]
    working = [v for v in made if type(v).__module__.rpartition(".")[2] not in MOVING and type(v).__name__ not in MOVES]
    heavy = [v for v in working if type(v).__module__.rpartition(".")[2] in HEAVY]
    return (heavy or working)[-1].op if working else ""


HEAVY = {"contraction", "convolution", "batched", "attention", "recurrence", "pooling"}
"""Modules of operators beside which a sum or a bias does not count."""
MOVING = {"movement", "creation"}
MOVES = {"Reshape", "Detach", "Expand", "Fill"}


@contextmanager
def quiet() -> Iterator[None]:
    """Suspend all listeners within the block."""
    others = list(events.listeners)
    events.listeners.clear()
    try:
        yield
    finally:
        events.listeners[:0] = others
