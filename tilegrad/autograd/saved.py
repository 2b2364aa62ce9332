"""Check that no value saved for a gradient has been modified in place since it was recorded.

Values are immutable, so the gradient could still be computed; but it would not be the gradient of the program as
written (and PyTorch raises an error). So it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InPlaceError
from ..ir.graph import Input, Value, topological
from ..lazy.storage import WriteRecord
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Cast
from ..transform.autodiff import is_leaf


def check_saved(outputs: Sequence[Value]) -> None:
    """Raise if the gradient of the outputs reads a value that its tensor no longer has."""
    for value in topological(outputs, lambda v: not v.tracked or is_leaf(v)):
        if not value.tracked or is_leaf(value) or value.provenance.joint is not None:
            continue
        knew: Sequence[WriteRecord] = value.provenance.known_changes or ()
        changed = {x: c for x in (value, *value.inputs) if (c := _change(x)) and c not in knew and not _by(c, value)}
        if changed:
            _refuse_if_read(value, changed)


def accept_changes(gradients: Sequence[Value], outputs: Sequence[Value]) -> None:
    """Mark gradients that are differentiated later with the modifications known when they were made: they read the
    original values. So does all that was recomputed for them (`jit`).
    """
    stack, seen = list(gradients), set(topological(outputs))
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.provenance.known_changes is None:
            value.note().known_changes = [change for x in (value, *value.inputs) if (change := _change(x))]
        stack.extend(value.inputs)


def _change(x: Value) -> WriteRecord | None:
    """Return the modification of a value's memory, or of the base it is a view of."""
    while True:
        known = x.provenance
        change: WriteRecord | None = known.change
        if change is None and known.epoch is not None:
            change = known.epoch.change
        if change is not None:
            return change
        if not known.shares_memory or not x.inputs:
            return None
        x = x.inputs[0]


def _by(change: WriteRecord, value: Value) -> bool:
    """Whether the value is the result of that very write."""
    written = change.by()
    while written is not value:
        if not isinstance(written, (Cast, Expand, Reshape)):
            return False
        written = written.inputs[0]
    return True


def _led_to(value: Value, change: WriteRecord) -> bool:
    """Whether a value is part of what was written: an in-place operation may consist of several."""
    written = change.by()
    ends = lambda v: v.provenance.change is not None or is_leaf(v)  # noqa: E731
    return written is not None and value in topological([written], ends)


def _refuse_if_read(value: Value, changed: dict[Value, WriteRecord]) -> None:
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
