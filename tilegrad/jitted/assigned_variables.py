"""Handle variables outside that a function assigns tensors to: the old tensor is an input, the new one an output.

So each call assigns a new tensor, as in Python, and holders of the old one keep its elements. A variable that others
assign between calls (another jitted function, say) is handled in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.graph import Value
from ..lazy.handle import Handle
from ..tree import LEAF, Tree
from .captured_state import CapturedState
from .signature import CallArguments
from .tracing import NoProgram, Trace
from .variables import WatchedVariable

if TYPE_CHECKING:
    from .specialised import Specialised


class NewVariables(Exception):
    """Raised when a traced function has assigned to variables that are not inputs yet."""

    def __init__(self, places: Sequence[WatchedVariable]) -> None:
        self.places = places


def with_variables(
    call: CallArguments, places: Sequence[WatchedVariable], required_objects: Collection[int] = ()
) -> CallArguments | None:
    """Append the tensors in variables to the leaves of a call, each tensor once; None if a value is no tensor, or is
    also found where a program requires an identical object (`required_objects`).
    """
    if not places:
        return call
    leaves = list(call.leaves)
    known = {id(x): n for n, x in enumerate(leaves) if isinstance(x, Handle)}
    numbers: list[int] = []
    for watched in places:
        x = watched.read()
        if not isinstance(x, Handle) or id(x) in required_objects:
            return None
        n = known.setdefault(id(x), len(leaves))
        if n == len(leaves):
            leaves.append(x)
        numbers.append(n)
    added = [LEAF] * (len(leaves) - len(call.leaves))
    structure = Tree(tuple, tuple(numbers), (*call.structure.parts, *added))
    return CallArguments(structure, leaves, call.numbers, call.recorded, tuple(places))


def variables_for(
    outside: CapturedState, programs: Sequence[Specialised], more: Sequence[WatchedVariable]
) -> list[WatchedVariable]:
    """List the variables whose tensors become inputs: those of other programs, those that are repeatedly assigned
    tensors of one type, and `more`.
    """
    wanted = {w.key() for p in programs for w in p.signature.call.variables} | {w.key() for w in more}
    replaced = Counter(
        [key for p in programs for key in {w.key() for w, x in p.environment.variables if _is_replaced(p, w, x)}]
    )
    wanted |= {key for key, count in replaced.items() if count > 1}
    same = {id(w.read()) for w, x in outside.others if isinstance(x, Handle) and w.key() in wanted}
    wanted |= {w.key() for w, x in outside.others if isinstance(x, Handle) and id(w.read()) in same}
    found = {w.key(): w for w, x in outside.others if isinstance(x, Handle) and w.key() in wanted and w.writable}
    return [w for w in found.values() if isinstance(now := w.read(), Handle) and not now.own_value().tracked]


def _is_replaced(program: Specialised, watched: WatchedVariable, found: Any) -> bool:
    """Whether a variable that a program only reads holds another tensor."""
    if not isinstance(found, Handle) or (now := watched.read()) is found or not isinstance(now, Handle):
        return False
    if found._base is not None and any(c.base.storage is found._base.storage for c in program.environment.updated):
        return False
    before, after = found.own_value(), now.own_value()
    return before.type == after.type and not before.tracked and not after.tracked


def assigned_tensors(
    outside: CapturedState, standing: dict[tuple[int, Any], Handle]
) -> list[tuple[WatchedVariable, Handle]]:
    """List the variables that a traced function has assigned tensors to, with these; `standing` are the previous values
    of the variables that are inputs.
    """
    made: dict[tuple[int, Any], tuple[WatchedVariable, Handle]] = {}
    for watched, found in outside.others:
        if not isinstance(found, Handle):
            continue
        now, before = watched.read_actual(), standing.get(watched.key(), found)
        if now is before or not isinstance(now, Handle):
            continue
        _require_alike(watched, now.own_value(), before.own_value())
        made[watched.key()] = watched, now
    new = [watched for key, (watched, _) in made.items() if key not in standing]
    if new:
        assigned_later = {id(found) for watched, found in outside.others if watched.key() in made}
        for watched, found in outside.others:
            if watched.key() in made:
                watched.write(found)
        raise NewVariables([w for w, found in outside.others if id(found) in assigned_later])
    return list(made.values())


def _require_alike(watched: WatchedVariable, value: Value, was: Value) -> None:
    """Refuse a tensor that a program cannot put in the place of another."""
    name = "a variable" if watched.name is None else repr(watched.name)
    if was.tracked or not watched.writable:
        kind = "requires gradients" if was.tracked else "is only read"
        raise NoProgram(f"it puts another tensor in the place of one that {kind}, at {name}: change its elements")
    if value.type != was.type or value.tracked:
        kind = "requires gradients" if value.tracked else "has another shape or type"
        raise NoProgram(
            f"it puts a tensor that {kind} where one was outside, at {name}: detach() it, keep its type, or return it"
        )


def restore_variables(trace: Trace, outside: CapturedState, before: Sequence[tuple[WatchedVariable, Any]]) -> None:
    """Restore variables that held a tensor before the trace and hold a placeholder now."""
    for watched, found in outside.others:
        if isinstance(found, Handle) and (now := watched.read_actual()) is not found and id(now) in trace.own:
            watched.write(found)
    for watched, found in before:
        watched.write(found)
