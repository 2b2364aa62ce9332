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
        """Return the structure of the arguments alone."""
        return Tree(tuple, (), self.structure.parts[:2])

    def argument_leaves(self, leaves: list[Any]) -> list[Any]:
        """Select the leaves that belong to the arguments."""
        return leaves[: len(leaves) - len(self.structure.parts) + 2]

    def variable_leaves(self) -> list[int]:
        """Pair the variables with their leaves."""
        return list(self.structure.keys)


MAX_SYMBOLIC_EXTENT = 2**31
"""Extents of symbolic axes are below this: kernels of users count in 32 bits."""


class TensorInput(Node):
    """An argument that is a tensor."""

    type: TensorType
    """Its type; varying sizes are symbols."""
    tracked: bool
    is_leaf: bool
    """Whether it is a leaf, if it has a gradient."""
    strides: Shape | None
    """Its strides, if it is not row-major."""

    def accepts(self, x: Any, sizes: dict[str, int]) -> bool:
        """Whether an argument is of this kind; adds the values of symbols to the sizes."""
        if not isinstance(x, Handle):
            return False
        value, type = x._value, self.type
        have = value.type
        if value.tracked is not self.tracked or not (have is type or have == type or _match_symbols(type, have, sizes)):
            return False
        if value.tracked and value.provenance.is_leaf is not self.is_leaf:
            return False
        return (x._strides is None and not x._moves and self.strides is None) or strides_of(x) == self.strides


class NumberInput(Node):
    """An argument that is a number, and an input because it varies."""

    number: float
    """The number of the traced call."""

    def accepts(self, x: Any, sizes: dict[str, int]) -> bool:
        return x.__class__ is self.number.__class__ and may_vary(x)


class ConstantArgument(Node):
    """An argument that is part of the program."""

    value: Any

    def accepts(self, x: Any, sizes: dict[str, int]) -> bool:
        return same(x, self.value)


class CallSignature(Node):
    """The calls that one program handles."""

    call: CallArguments
    """The call that was traced, without its tensors."""
    inputs: list[TensorInput | NumberInput | ConstantArgument]
    """The kind of each leaf among the arguments."""
    captured_inputs: frozenset[int]
    """Captured numbers that are inputs."""

    @property
    def types(self) -> list[TensorType | None]:
        """The types of tensors among the arguments."""
        return [kind.type if isinstance(kind, TensorInput) else None for kind in self.inputs]

    @property
    def number_inputs(self) -> set[int]:
        """Indices of number arguments that are inputs."""
        return {n for n, kind in enumerate(self.inputs) if isinstance(kind, NumberInput)}

    def sizes(self, call: CallArguments) -> dict[str, int] | None:
        """Match a call: return the values of the symbols, or None if it is of another kind."""
        known = self.call
        if call.structure != known.structure or call.recorded is not known.recorded:
            return None
        sizes: dict[str, int] = {}
        for x, kind in zip(call.leaves, self.inputs, strict=True):
            if not kind.accepts(x, sizes):
                return None
        for n, (x, before) in enumerate(zip(call.numbers, known.numbers, strict=True)):
            if not same(x, before) and (
                n not in self.captured_inputs or x.__class__ is not before.__class__ or not may_vary(x)
            ):
                return None
        return sizes


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
    inputs: list[TensorInput | NumberInput | ConstantArgument] = []
    for n, (x, type) in enumerate(zip(call.leaves, types, strict=True)):
        if type is not None:
            is_leaf = isinstance(x, Tensor) and x.is_leaf
            inputs.append(TensorInput(type, x._value.tracked, is_leaf, strides_of(x)))
        else:
            inputs.append(NumberInput(x) if n in number_inputs else ConstantArgument(x))
    kept = call.replaced(leaves=[None if isinstance(x, Handle) else x for x in call.leaves])
    return CallSignature(kept, inputs, frozenset(outside))


def generalise(
    known: CallSignature, call: CallArguments, types: list[TensorType | None]
) -> list[TensorType | None] | None:
    """Replace sizes that differ from those of a known kind by symbols; None if the kinds differ otherwise."""
    if (
        known.call.structure != call.structure
        or known.call.recorded is not call.recorded
        or any(isinstance(kind, TensorInput) and kind.strides for kind in known.inputs)
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
