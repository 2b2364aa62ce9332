"""The check that nothing which a gradient needs has been changed in place since it was recorded.

Values do not change, so the gradient could still be computed; but what the user wrote would mean something
else than it says (and, in PyTorch, fails). So it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InPlaceError
from ..ir.graph import Input, Value, topological
from ..lazy.storage import Change
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Cast
from ..transform.autodiff import is_leaf


def check_saved(outputs: Sequence[Value]) -> None:
    """Raises if the gradient of the outputs would read a value that a tensor no longer has."""
    for value in topological(outputs, lambda v: not v.tracked or is_leaf(v)):
        if not value.tracked or is_leaf(value) or "joint" in value.__dict__:
            continue
        knew: Sequence[Change] = value.__dict__.get("knew", ())
        changed = {x: c for x in (value, *value.inputs) if (c := _change(x)) and c not in knew and not _by(c, value)}
        if changed:
            _refuse_if_read(value, changed)


def accept_changes(gradients: Sequence[Value], outputs: Sequence[Value]) -> None:
    """Notes at gradients of outputs, which are differentiated later, what had been changed when they were made: they
    read what an operation in place has replaced, as it was. So does all that was computed again for them (`jit`)."""
    stack, seen = list(gradients), set(topological(outputs))
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if "knew" not in value.__dict__:
            value.__dict__["knew"] = [change for x in (value, *value.inputs) if (change := _change(x))]
        stack.extend(value.inputs)


def _change(x: Value) -> Change | None:
    """What happened to the memory of a value, or of the whole that it is a view of."""
    while True:
        own = x.__dict__
        change: Change | None = own.get("changed")
        if change is None and "epoch" in own:
            change = own["epoch"].change
        if change is not None:
            return change
        if "within" not in x.__dict__ or not x.inputs:
            return None
        x = x.inputs[0]


def _by(change: Change, value: Value) -> bool:
    """Whether the value is the very one that was written."""
    written = change.by()
    while written is not value:
        if not isinstance(written, (Cast, Expand, Reshape)):
            return False
        written = written.inputs[0]
    return True


def _led_to(value: Value, change: Change) -> bool:
    """Whether a value is a part of what was written: an operation in place may consist of several."""
    written = change.by()
    return written is not None and value in topological([written], lambda v: "changed" in v.__dict__ or is_leaf(v))


def _refuse_if_read(value: Value, changed: dict[Value, Change]) -> None:
    shares = value.gradient(Input(value.type))
    known = {value, *value.inputs}
    stack = [share for x, share in zip(value.inputs, shares, strict=True) if share is not None and x.tracked]
    while stack:
        part = stack.pop()
        change = changed.get(part)
        if change is not None and (part is value or not _led_to(value, change)):
            what = "its result" if part is value else f"an operand of shape {list(part.shape)}"
            raise InPlaceError(
                f"the gradient of {value.op} (recorded at {value.location}) needs {what}, which was changed in place "
                f"by {change.op} at {change.location}. Use the operation without underscore there, or change a clone()"
            )
        if part not in known:
            known.add(part)
            stack.extend(part.inputs)
