"""Generate the guards of a program: straight-line source that compares captured state before every call.

A network of some layers depends on hundreds of objects that might be replaced: layers, functions, parameters. A loop
over them takes as long as a small network itself. If a comparison fails, `is_current` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ir.graph import Value
from ..lazy.storage import Base
from ..runtime.buffer import DeviceBuffer
from ..runtime.guarded import GuardedCall, packed

if TYPE_CHECKING:
    from .specialised import Specialised

Guards = Callable[[], "tuple[DeviceBuffer, ...] | None"]
"""Returns the buffers of captured storages and numbers if all guards hold; None otherwise."""


def make_guards(program: Specialised) -> Guards | None:
    """Generate the guards of a program; None if a storage that it updates does not own its memory yet."""
    captured = program.captured
    if any(n >= len(captured) or captured[n].storage.owned is None for n in {*program.updated, *program.lent}):
        return None
    values = [base.standing() for base in captured]
    if any(base.storage.owned is None and v.buffer is None for base, v in zip(captured, values, strict=True)):
        return None
    call = GuardedCall("check")
    with call.missing("LookupError", "ValueError"):
        conditions = [watched.guard_source(call, found) for watched, found in program.outside]
        for base, value in zip(captured, values, strict=True):
            conditions += _base_conditions(call, base, value)
        conditions += [
            f"{call.bind('read', read)}() == {call.bind('before', before)}" for read, before in program.guards
        ]
        for n in program.updated:
            storage = call.bind("storage", captured[n].storage)
            conditions.append(f"((lent := {storage}.lent) is None or lent() is None)")
        call.guard(*conditions)
        memory = [
            _memory_source(call, base, value, n in program.lent)
            for n, (base, value) in enumerate(zip(captured, values, strict=True))
        ]
        memory += [f"{call.bind('number', program.number_at(n))}()" for n in range(len(program.host))]
        call.add(f"return {packed(memory)}")
    return call.made()


def _base_conditions(call: GuardedCall, base: Base, value: Value) -> list[str]:
    """Compare the history of a captured storage, and its elements if it does not own memory."""
    base_name, storage = call.bind("base", base), call.bind("storage", base.storage)
    found = [f"{base_name}.value is {call.bind('value', value)}"]
    found.append(f"{storage}.value is {call.bind('whole', base.storage.value)}")
    return found if base.storage.owned is not None else [*found, f"{base_name}.seen == {storage}.changes"]


def _memory_source(call: GuardedCall, base: Base, value: Value, lent: bool) -> str:
    """Look up the memory of a captured storage; `lent`: it is shared with results."""
    if base.storage.owned is None:
        return f"{call.bind('value', value)}.buffer"
    return f"{call.bind('storage', base.storage)}.{'loan()' if lent else 'owned'}"
