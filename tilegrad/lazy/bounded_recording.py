"""Compute recorded work when there is much of it, so that a loop that nobody looks at runs, and keeps little.

Operations are counted since the last evaluation, never timed, so that results and programs are those of every other
run. A loop has to find its program again: from the second time on, work is computed at the instruction of the user's
code at which it was the first time, so that equal iterations make equal programs, however many operations they have.

What depends on work that a gradient may still need is left alone: computing it separately would do that work twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

from ..ir.graph import Input, Value, topological
from ..ir.node import amend
from ..ops.cast import Detach
from .evaluation import after_evaluations, array_of, drop_history, forget, is_known, live_bytes, pending, refuse_outside
from .handle import Handle, handle_on, recorders, state, written
from .held_intermediates import after_keeping, held_tensors
from .storage import NEVER

CHECKED_OPS = 16
"""Number of operations between two looks at the memory in use."""
MAX_RECORDED_OPS = 256
"""Number of operations after which recorded work is computed. Fewer: calls of programs cost more than their work; more:
the programs of a loop take long to compile, and its history takes memory.
"""
MAX_RECORDED_BYTES = 1 << 28
"""Number of bytes by which the memory in use may grow while work is recorded: what is recorded keeps what it reads."""
MAX_LEFTOVERS = 1024
"""Number of recorded values up to which tensors may wait while others are evaluated again and again."""
MIN_COMPUTED_SHARE = 16
"""Values that can be computed are few if they are less than one in so many of the waiting tensors."""
MAX_WAITING_TENSORS = 1024
"""Number of recorded tensors that may wait before those that are gone, computed or large are looked for."""


class RecordedTensors(threading.local):
    """Per thread: the tensors that were recorded and may wait for an evaluation."""

    def __init__(self) -> None:
        self.tensors: list[ref[Handle]] = []
        self.first = 0
        """The number of tensors at the last evaluation."""
        self.most = MAX_RECORDED_OPS
        """The number of operations after it at which the recorded work is examined."""
        self.room = MAX_RECORDED_OPS
        """The number of tensors at which it is examined next."""
        self.cut: object = None
        """The instruction of the user's code at which recorded work was computed last since an evaluation."""
        self.bytes = 0
        """The memory in use at the last evaluation."""

    def restart(self, bytes: int) -> None:
        """Count from here."""
        self.first, self.most, self.cut, self.bytes = len(self.tensors), MAX_RECORDED_OPS, None, bytes
        self.room = self.first + CHECKED_OPS


recorded = RecordedTensors()


def note_recorded(tensor: Handle, value: Value) -> None:
    """Count an operation without gradient history that was recorded; compute recorded work when there is much of it."""
    if value.buffer is not None:
        return
    reference = ref(tensor)
    held = held_tensors.found
    held.recent.append(reference)
    if len(held.recent) >= held.room:
        held.prune()
    if value.tracked:
        return
    tensors = recorded.tensors
    tensors.append(reference)
    if len(tensors) >= recorded.room:
        compute_recorded(value)


def note_evaluation() -> None:
    """Count operations from here; compute what still waits if it has grown while other things were evaluated."""
    if state.trace is None:
        recorded.restart(live_bytes())
        if recorded.first >= MAX_WAITING_TENSORS:
            values, handles = _waiting()
            if len(topological(values, _is_computed)) >= MAX_LEFTOVERS:
                _compute_waiting(values, handles)
            recorded.restart(live_bytes())


def recorded_tensors() -> list[Handle]:
    """List the live tensors without gradient history that this thread has recorded, but for views."""
    return [x for found in recorded.tensors if (x := found()) is not None and not x._moves and not x._value.tracked]


def is_recorded(given: Sequence[Any]) -> bool:
    """Whether work on elements is deferred: a function is being traced, or a tensor depends on a placeholder."""
    tensors = [x for x in given if isinstance(x, Handle)]
    if state.trace is not None:
        return bool(tensors)
    return not is_known([v for x in tensors if (v := x.value).buffer is None])


def compute_leaves(leaves: Iterable[Value]) -> None:
    """Compute leaves that are recorded only: the next step does not hold, and repeat, the steps before."""
    if state.trace is None and not state.stand_ins:
        waiting = [v for v in leaves if v.buffer is None and isinstance(v, Detach) and is_known([v])]
        if waiting:
            from .realize import realize  # loads the compiler

            realize(waiting)  # and nothing of the step that is being recorded
            for value in waiting:
                forget(value)


def compute_recorded(latest: Value) -> None:
    """Compute what tensors of this thread wait for, if there is much of it and no function is traced or mapped: a loop
    that nobody looks at runs, and keeps little.

    `latest` is the value recorded last.
    """
    count = len(recorded.tensors) - recorded.first
    recorded.room = len(recorded.tensors) + CHECKED_OPS
    if state.trace is not None or state.stand_ins:
        return
    if count < recorded.most and live_bytes() - recorded.bytes < MAX_RECORDED_BYTES:
        return
    at = latest.location
    here = None if at is None else (at.code, at.instruction, type(latest))
    if recorded.cut is not None and recorded.cut != here and count < recorded.most + MAX_RECORDED_OPS:
        recorded.room = 0  # the next operation may be the one
        return
    most = 2 * recorded.most  # where little can be computed, in a training step, it is examined more and more seldom
    values, handles = _waiting()
    if _compute_waiting(values, handles) and len(values) * MIN_COMPUTED_SHARE >= len(recorded.tensors):
        most = MAX_RECORDED_OPS
    recorded.restart(live_bytes())
    recorded.most, recorded.cut = most, here


def _compute_waiting(values: Sequence[Value], handles: Sequence[Handle]) -> bool:
    """Compute values in one program, and drop their history; return whether there were any."""
    if values:
        from .realize import realize  # loads the compiler

        realize(values)
        for x in handles:
            _drop_shared_history(x)
        for value in values:
            forget(value)
        checks, pending.checks = pending.checks, []
        known = [check for check in checks if all(map(_is_computed, check.bounds))]
        pending.checks = [check for check in checks if check not in known]
        for check in known:
            low, high = (int(array_of(handle_on(bound))) for bound in check.bounds)
            refuse_outside(low, high, check)
    return bool(values)


def _drop_histories(kept: Mapping[Value, Handle | Value]) -> None:
    """Drop the history of intermediates that were kept, for the tensors that hold them or the work that reads them."""
    for value, holder in kept.items():
        if isinstance(holder, Handle):
            _drop_shared_history(holder)
        elif not (value.tracked or holder.tracked):
            memory = Input(value.type)
            memory.hold(value.buffer)
            made = holder.with_inputs([memory if x is value else x for x in holder.inputs])
            amend(holder, inputs=made.inputs, **{name: vars(made)[name] for name in made.input_fields})


def _drop_shared_history(x: Handle) -> None:
    """Drop the history of a computed tensor, or of the memory that a view shares."""
    base = x._base
    if base is None or not x._moves:
        drop_history(x)
        return
    whole = base.value
    if whole.buffer is not None and whole.inputs and not whole.tracked:
        base.value = Input(whole.type)
        base.value.hold(whole.buffer)
        if base.storage.value is whole:
            base.storage.value = base.value
    x._seen = NEVER


def _waiting() -> tuple[list[Value], list[Handle]]:
    """List the values to compute, and the tensors that have them; forget tensors that are gone or computed."""
    handles: list[Handle] = []
    wanted: dict[Value, None] = {}
    left = []
    for reference in recorded.tensors:
        x = reference()
        if x is None:
            continue
        value = _whole(x)
        if value.buffer is None and value.provenance.attempt != "failed":
            left.append(reference)
            handles.append(x)
            wanted[value] = None
    recorded.tensors = left
    for storage in list(written.storages.values()):
        if storage.owned is None and storage.value.buffer is None:
            wanted[storage.value] = None
    wanted.update((v, None) for check in pending.checks for v in check.bounds if v.buffer is None)
    excluded = _excluded(topological(list(wanted), _is_computed))
    values = [v for v in wanted if id(v) not in excluded]
    return values, [x for x in handles if id(_whole(x)) not in excluded]


def _whole(x: Handle) -> Value:
    """Return the value to compute for a tensor: that of all memory which it shares."""
    base = x._base
    return x._value if base is None else base.storage.value if base.storage.owned is not None else base.current()


def _is_computed(value: Value) -> bool:
    return value.buffer is not None


def _excluded(order: Iterable[Value]) -> set[int]:
    """List the values that depend on a placeholder, or on a tensor whose history a gradient may need."""
    found: set[int] = set()
    for v in order:
        if v.buffer is None and (
            isinstance(v, Input) or (v.tracked and v.is_held) or any(id(x) in found for x in v.inputs)
        ):
            found.add(id(v))
    return found


recorders.append(note_recorded)
after_evaluations.append(note_evaluation)
after_keeping.append(_drop_histories)
