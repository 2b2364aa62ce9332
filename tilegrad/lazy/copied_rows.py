"""Copy a few rows of a tensor in memory, so that programs do not depend on which rows they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.graph import Value
from ..ir.size import product
from ..ops.broadcasting import Reshape
from ..ops.movement import Slice
from ..runtime.device import device

MAX_COPIED_BYTES = 1 << 26
"""Size up to which sliced rows are copied before a program is looked for, in bytes."""
MAX_GENERATING_OPS, MAX_INPUT_NUMBERS, MAX_GENERATED_BYTES = 64, 64, 1 << 28
"""Limits for computing a generated tensor as a whole when only rows of it are read: operations, input numbers, and
bytes.
"""


def copy_rows(cut: Slice, realize: Callable[[Sequence[Value]], None]) -> None:
    """Copy a few rows of a tensor in memory instead of reading them in the program: their position would belong to the
    program, and every batch of a loop would have its own. Many rows are not copied: that would double the traffic.
    """
    whole = cut.x
    shape: Any = whole.shape
    rows: Any = cut.sizes[0]
    start: Any = cut.starts[0]
    bytes: Any = cut.type.bytes
    if whole.tracked or any(step != 1 for step in cut.steps) or cut.sizes[1:] != shape[1:]:
        return
    if rows * 2 > shape[0] or bytes > MAX_COPIED_BYTES:
        return
    while isinstance(whole, Reshape) and whole.buffer is None:
        whole = whole.x
    if whole.buffer is None and _is_made_of_numbers(whole):
        realize([whole])
    if whole.buffer is None:
        return
    place = device(whole.device)
    array = place.view(whole.buffer, whole.dtype, shape)
    if array is not None:
        cut.hold(place.from_host(array[start : start + rows]))


def _is_made_of_numbers(x: Value) -> bool:
    """Whether a tensor is generated (random or arange) by few operations: it is then computed as a whole, once."""
    bytes: Any = x.type.bytes
    if bytes > MAX_GENERATED_BYTES:
        return False
    stack, seen = [x], set[Value]()
    while stack and len(seen) <= MAX_GENERATING_OPS:
        value = stack.pop()
        if value.buffer is not None:
            count: Any = product(value.shape)
            if count > MAX_INPUT_NUMBERS:
                return False
        elif value not in seen:
            seen.add(value)
            stack.extend(value.inputs)
    return not stack
