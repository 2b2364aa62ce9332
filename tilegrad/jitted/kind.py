"""The calls that one program is for: their structure, the types of tensors, and what numbers are."""

from __future__ import annotations

from typing import Any

from ..ir.graph import TensorType
from ..ir.node import Node
from ..ir.size import Shape, Size
from ..lazy.handle import Handle
from ..lazy.layout import strides_of
from ..tree import Tree
from .numbers import may_vary
from .places import same


class Call(Node):
    """The arguments of a call: their structure, their leaves, and the numbers that the function reads outside."""

    structure: Tree
    leaves: list[Any]
    numbers: list[Any]
    recorded: bool
    """Whether gradients can be taken of what is computed."""


MOST_EXTENT = 2**31
"""An axis that varies is shorter: kernels of users count along it in 32 bits."""


class Kind(Node):
    """The calls that one program is for."""

    call: Call
    """The call that it was traced for (without its tensors)."""
    types: list[TensorType | None]
    """For tensors; sizes that vary are symbols."""
    tracked: list[bool]
    leaf: list[bool]
    """Tells leaves from tracked tensors that were computed from others."""
    strides: list[Shape | None]
    """Those of tensors that do not lie row by row."""
    inputs: frozenset[int]
    """The numbers among the arguments that are inputs."""
    watched: frozenset[int]
    """The numbers from outside that are inputs."""

    def sizes(self, call: Call) -> dict[str, int] | None:
        """The values of the symbols in a call, or None if it is of another kind."""
        known = self.call
        if call.structure != known.structure or call.recorded is not known.recorded:
            return None
        sizes: dict[str, int] = {}
        for n, (x, type) in enumerate(zip(call.leaves, self.types, strict=True)):
            if type is not None:
                if not isinstance(x, Handle):
                    return None
                value = x._value
                have = value.type
                if value.tracked is not self.tracked[n] or not (
                    have is type or have == type or _binds(type, have, sizes)
                ):
                    return None
                if value.tracked and ("leaf" in value.__dict__) is not self.leaf[n]:
                    return None
                if (x._strides is not None or x._moves or self.strides[n]) and not self._lies(x, n):
                    return None
            elif n in self.inputs:
                if x.__class__ is not known.leaves[n].__class__ or not may_vary(x):
                    return None
            elif not same(x, known.leaves[n]):
                return None
        for n, (x, before) in enumerate(zip(call.numbers, known.numbers, strict=True)):
            if not same(x, before) and (
                n not in self.watched or x.__class__ is not before.__class__ or not may_vary(x)
            ):
                return None
        return sizes

    def _lies(self, x: Handle, n: int) -> bool:
        """Whether a tensor has the strides that the program is for; one for all sizes is for tensors row by row."""
        return strides_of(x) == self.strides[n]


def _binds(type: TensorType, have: TensorType, sizes: dict[str, int]) -> bool:
    """Whether a type with symbols fits one without, and what the symbols then are."""
    if type.dtype is not have.dtype or len(type.shape) != len(have.shape) or type.device != have.device:
        return False
    for wanted, extent in zip(type.shape, have.shape, strict=True):
        if isinstance(wanted, Size):
            (name,) = wanted.names()
            if not isinstance(extent, int) or not 2 <= extent < MOST_EXTENT or sizes.setdefault(name, extent) != extent:
                return False
        elif wanted != extent:
            return False
    return True
