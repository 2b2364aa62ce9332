"""Define `Parameter`, a tensor that a module trains, and `Buffer`, one that it does not."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..functions.creation import empty
from ..lazy.handle import Handle, state
from ..tensor import Tensor

EXTRA_STATE = "_extra_state"
"""Name in a state of what a module adds to it (`get_extra_state`)."""


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module to which it is assigned as an attribute.

    It shares the elements of the tensor that it is made from.
    """

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        given = empty(0) if data is None else data
        if not isinstance(given, Handle):
            raise ArgumentError(f"Buffer: give a tensor, not a {type(data).__name__}; tilegrad.tensor makes one")
        self.__dict__.update(given.__dict__)
        if state.trace is not None:
            state.trace.made(self)
        self.persistent = persistent


class Parameter(Tensor):
    """A tensor that requires gradients and becomes a parameter of the module to which it is assigned.

    It shares the elements of the tensor that it is made from.
    """

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        given = empty(0) if data is None else data
        if not isinstance(given, Handle):
            raise ArgumentError(f"Parameter: give a tensor, not a {type(data).__name__}; tilegrad.tensor makes one")
        self.__dict__.update(given.detach().__dict__)  # type: ignore[attr-defined]
        if state.trace is not None:
            state.trace.made(self)
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
