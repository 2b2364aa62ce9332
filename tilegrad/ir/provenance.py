"""Record what the holders of tensors know of a value: where its gradients go, and what has become of its memory.

A value is frozen: its op, its inputs and its type never change. What changes while tensors use it is in its
`Provenance`, which only values with something to record have (`Value.note`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .graph import Value


class Provenance:
    """The mutable facts about a value; the class has the defaults."""

    is_leaf: bool = False
    """Whether history ends here, although the value was computed from others (an updated parameter)."""
    holder: Any = None
    """Weak reference to the tensor that keeps the gradient of a leaf."""
    hooks: list[Any] | None = None
    """Functions that see the accumulated gradient and may replace it."""
    joint: Any = None
    """The rule for the gradients of a value and its siblings (`ops/joint.py`)."""
    renews: Value | None = None
    """The value that the tensor had before its elements were replaced unrecorded."""
    is_released: bool = False
    """Whether a gradient without `retain_graph` has released the value."""
    spent: str = ""
    """The message for a history that was released."""
    severed: str = ""
    """The kernel that wrote the memory, and through which no gradient flows."""
    is_differentiated: bool = False
    """Whether it is the placeholder of an active transform."""
    change: Any = None
    """The write that replaced the elements of its tensor."""
    epoch: Any = None
    """The period of its storage in which it has the storage's elements (`lazy/storage.py`)."""
    known_changes: list[Any] | None = None
    """The writes that had happened when it was recorded, and that it may ignore."""
    shares_memory: bool = False
    """Whether it is a view of its input rather than a copy."""
    is_reordered: bool = False
    """Whether it is the memory of its input in the order of strides."""
    is_number: bool = False
    """Whether it stands for a Python number: kernels take a number where a tensor would be a pointer."""
    is_weak: bool = False
    """Whether it is promoted as a Python number."""
    is_uninitialised: bool = False
    """Whether its elements do not matter (`empty`)."""
    is_interned: bool = False
    """Whether it is a constant that tensors share."""
    was_intermediate: bool = False
    """Whether it was computed on the way to other values, and not kept though a tensor held it."""
    attempt: str = ""
    """`failed` or `done`, after it was computed: timing does not compute it again."""

    def copied(self) -> Provenance:
        made = Provenance()
        made.__dict__.update(self.__dict__)
        return made


class _Nothing(Provenance):
    """Shared by all values without provenance."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} is set on `value.note()`, the value's own provenance")


NOTHING: Provenance = _Nothing()
