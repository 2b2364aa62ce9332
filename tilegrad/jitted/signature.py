"""Describe the calls that one program handles: argument structure, tensor types, and numbers."""

from __future__ import annotations

from typing import Any

from ..ir.graph import TensorType
from ..ir.node import Node
from ..ir.size import Dim, Shape, Size
from ..lazy.handle import Handle
from ..lazy.layout import strides_of
from ..tensor import Tensor
from ..tree import Tree
from .numbers import may_vary, same_number
from .variables import WatchedVariable, same


class CallArguments(Node):
    """The arguments of a call: their structure, their leaves, and the captured numbers."""

    structure: Tree
    leaves: list[Any]
    numbers: list[Any]
    recorded: bool
    """Whether operations are recorded for gradients."""
    variables: tuple[WatchedVariable, ...]
    """Variables outside whose tensors are leaves, too (`assigned_variables.py`)."""

    def arguments(self) -> Tree:
        """The structure of the arguments alone."""
        return Tree(tuple, (), self.structure.parts[:2])

    def argument_leaves(self, leaves: list[Any]) -> list[Any]:
        """Select the leaves that belong to the arguments."""
        return leaves[: len(leaves) - len(self.structure.parts) + 2]

    def variable_leaves(self) -> list[int]:
        """Pair the variables with their leaves."""
        return list(self.structure.keys)


MAX_SYMBOLIC_EXTENT = 2**31
"""Extents of symbolic axes are below this: kernels of users count in 32 bits."""


class CallSignature(Node):
    """The calls that one program handles."""

    call: CallArguments
    """The call that was traced, without its tensors."""
    types: list[TensorType | None]
    """Types of tensors; varying sizes are symbols."""
    tracked: list[bool]
    leaf: list[bool]
    """Whether each tensor with a gradient is a leaf."""
    strides: list[Shape | None]
    """Strides of tensors that are not row-major."""
    number_inputs: frozenset[int]
    """Indices of number arguments that are inputs."""
    captured_inputs: frozenset[int]
    """Captured numbers that are inputs."""

    def sizes(self, call: CallArguments) -> dict[str, int] | None:
        """Match a call: return the values of the symbols, or None if it is of another kind."""
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
                    have is type or have == type or _match_symbols(type, have, sizes)
                ):
                    return None
                if value.tracked and value.provenance.is_leaf is not self.leaf[n]:
                    return None
                if (x._strides is not None or x._moves or self.strides[n]) and not self._has_strides(x, n):
                    return None
            elif n in self.number_inputs:
                if x.__class__ is not known.leaves[n].__class__ or not may_vary(x):
                    return None
            elif not same(x, known.leaves[n]):
                return None
        for n, (x, before) in enumerate(zip(call.numbers, known.numbers, strict=True)):
            if not same(x, before) and (
                n not in self.captured_inputs or x.__class__ is not before.__class__ or not may_vary(x)
            ):
                return None
        return sizes

    def _has_strides(self, x: Handle, n: int) -> bool:
        """Whether a tensor has the strides of the kind; symbolic programs need row-major tensors."""
        return strides_of(x) == self.strides[n]


def _match_symbols(type: TensorType, have: TensorType, sizes: dict[str, int]) -> bool:
    """Match a type with symbols against a static one; return the values of the symbols."""
    if type.dtype is not have.dtype or len(type.shape) != len(have.shape) or type.device != have.device:
        return False
    for wanted, extent in zip(type.shape, have.shape, strict=True):
        if isinstance(wanted, Size):
            (name,) = wanted.names()
            if (
                not isinstance(extent, int)
                or not 2 <= extent < MAX_SYMBOLIC_EXTENT
                or sizes.setdefault(name, extent) != extent
            ):
                return False
        elif wanted != extent:
            return False
    return True


def signature_of(
    call: CallArguments, types: list[TensorType | None], number_inputs: set[int], outside: set[int]
) -> CallSignature:
    """Make the kind of a call, with some of its number arguments and captured numbers as inputs."""
    kept = call.replaced(leaves=[None if isinstance(x, Handle) else x for x in call.leaves])
    tracked = [isinstance(x, Handle) and x._value.tracked for x in call.leaves]
    leaf = [isinstance(x, Tensor) and x.is_leaf for x in call.leaves]
    strides = [strides_of(x) if isinstance(x, Handle) else None for x in call.leaves]
    return CallSignature(kept, types, tracked, leaf, strides, frozenset(number_inputs), frozenset(outside))


def generalise(
    known: CallSignature, call: CallArguments, types: list[TensorType | None]
) -> list[TensorType | None] | None:
    """Replace sizes that differ from those of a known kind by symbols; None if the kinds differ otherwise."""
    if (
        known.call.structure != call.structure
        or known.call.recorded is not call.recorded
        or any(known.strides)
        or any(isinstance(x, Handle) and strides_of(x) for x in call.leaves)
    ):
        return None
    names: dict[tuple[Dim, Dim], Size] = {}
    result: list[TensorType | None] = []
    for type, before in zip(types, known.types, strict=True):
        if type is None and before is None:
            result.append(None)
            continue
        if type is None or before is None or type.dtype is not before.dtype or len(type.shape) != len(before.shape):
            return None
        extents = _generalise_shape(type.shape, before.shape, names)
        if extents is None:
            return None
        result.append(type.with_shape(extents))
    return result if names else None


def _generalise_shape(
    shape: tuple[Dim, ...], before: tuple[Dim, ...], names: dict[tuple[Dim, Dim], Size]
) -> tuple[Dim, ...] | None:
    """Replace sizes that differ by symbols, one for each pair of sizes; 0 and 1 have no symbol."""
    extents: list[Dim] = []
    for new, old in zip(shape, before, strict=True):
        if new == old:
            extents.append(new)
        elif isinstance(old, Size) or isinstance(new, Size) or old < 2 or new < 2:
            return None
        else:
            extents.append(names.setdefault((old, new), Size.named("nmpq"[len(names) % 4] * (1 + len(names) // 4))))
    return tuple(extents)


def varies(x: Any, before: Any) -> bool:
    """Whether a number differs from that of an earlier call, so that it becomes an input."""
    return before.__class__ is x.__class__ and may_vary(x) and not same_number(x, before)


def differs_in_numbers(signature: CallSignature, call: CallArguments, types: list[TensorType | None]) -> bool:
    """Whether a call may be of a signature except for the values of numbers."""
    known = signature.call
    if signature.types != types or known.structure != call.structure or known.recorded is not call.recorded:
        return False
    pairs = zip([*known.leaves, *known.numbers], [*call.leaves, *call.numbers], strict=True)
    return all(x.__class__ is y.__class__ or isinstance(y, Tensor) for x, y in pairs)
