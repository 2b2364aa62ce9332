"""Profile one operation at a time, as an eager framework runs them: `profile(one_by_one=True)`.

Elsewhere tilegrad fuses operations; a profile without `one_by_one` shows what is really run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..errors import TraceError
from ..ir.graph import Value, topological
from ..lazy.evaluation import compute
from ..lazy.handle import state
from ..lazy.storage import Storage
from ..ops.broadcasting import fill
from ..runtime import events
from .recorder import Range


class OneByOne:
    """Computes each operation of a thread as soon as it is made (see `lazy.handle.Trace`), and records its time.

    Compiling is not counted, nor is what computing the operation launches: the operation is the record.
    """

    at_once = True

    def __init__(self, record: Callable[[Range], None]) -> None:
        self.record = record
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
        ran: list[int] = []
        start = events.now()
        state.trace = None
        try:
            with quiet(), events.listening(lambda e: ran.append(e.stop - e.start) if e.kind == "run" else None):
                compute(tensor)
        except TraceError:
            return  # it stands for nothing outside of a function that is mapped
        finally:
            state.trace = self
        if value.buffer is not None:
            self.record(Range("operation", name, start, start + sum(ran), value.device, tuple(value.shape)))

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


def _named(value: Value) -> str:
    """What an operation that is not computed yet is called: its product, if it has one, else what comes last.

    A mere view has no name: nothing is computed for it.
    """
    if value.buffer is not None:
        return ""
    made = [v for v in topological([value], lambda v: v.buffer is not None) if v.buffer is None and v.inputs]
    working = [v for v in made if type(v).__module__.rpartition(".")[2] not in MOVING and type(v).__name__ not in MOVES]
    heavy = [v for v in working if type(v).__module__.rpartition(".")[2] in HEAVY]
    return (heavy or working)[-1].op if working else ""


HEAVY = {"contraction", "convolution", "batched", "attention", "recurrence", "pooling"}
"""Modules of operators next to which a sum or a bias does not count."""
MOVING = {"movement", "creation"}
MOVES = {"Reshape", "Detach", "Expand", "Fill"}


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block nobody listens to events but who begins to."""
    others = list(events.listeners)
    events.listeners.clear()
    try:
        yield
    finally:
        events.listeners[:0] = others
