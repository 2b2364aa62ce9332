"""Names outside to which a traced function assigns: the tensors that stood there have the new elements afterwards."""

from __future__ import annotations

from ..autograd.modes import no_grad
from ..lazy.handle import Handle
from .tracing import NoProgram, Trace
from .watched import Outside


def write_assigned(outside: Outside) -> None:
    """Write what a traced function assigned in the place of a tensor outside to that tensor."""
    assigned = []
    for watched, found in outside.others:
        now = watched.read()
        if now is not found and isinstance(found, Handle) and isinstance(now, Handle):
            value, type = now.value, found.value.type
            if value.type != type or value.tracked:
                kind = "requires gradients" if value.tracked else "has another shape or type"
                name = "a variable" if watched.name is None else repr(watched.name)
                raise NoProgram(
                    f"it puts a tensor that {kind} where one was outside, at {name}: what is assigned to is updated in "
                    "place; detach() it, keep its type, or return it"
                )
            assigned.append((watched, found, value))
    for watched, found, value in assigned:
        watched.write(found)
        with no_grad():
            found.write(value, "assignment")


def put_back(trace: Trace, outside: Outside) -> None:
    """No placeholder stays where a tensor was before the function was traced."""
    for watched, found in outside.others:
        now = watched.read()
        if now is not found and isinstance(found, Handle) and id(now) in trace.own:
            watched.write(found)
