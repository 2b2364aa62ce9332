"""Make the values of tensors of a few elements when they are first asked for: chains of operations on Python numbers
(`few_elements.py`) need none.
"""

from __future__ import annotations

from typing import Any

from .handle import Handle


class DeferredValue:
    """The attribute `_value` of tensors that have numbers instead."""

    def __get__(self, tensor: Handle | None, owner: type[Handle]) -> Any:
        if tensor is None:
            return self
        numbers, own = tensor._numbers, tensor.__dict__
        if numbers is not None:
            own.setdefault("_value", tensor._kind.value(numbers))  # another thread may have been faster
            tensor._numbers = None
        elif "_value" not in own:
            raise AttributeError("the tensor has no value yet", name="_value", obj=tensor)
        return own["_value"]


setattr(Handle, "_value", DeferredValue())  # noqa: B010 - a plain assignment has another type
