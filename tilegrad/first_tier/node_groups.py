"""Group recorded values for the first tier: views are inlined in their readers, and so are pointwise values that one
value reads, or that are as cheap to compute again as to read.

    values ──► NodeGroup(roots, members, sources) ──► one step of a plan each

A group is a small graph: `roots` are stored, `members` are computed on the way, `sources` are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

from ..ir.graph import Graph, Input, TensorType, Value
from ..ir.node import amend
from ..ops.base import Elementwise
from ..ops.broadcasting import Reduction, Reshape, StridedView
from ..ops.movement import Cat
from .strided_sources import IDENTITIES, StridedSource, stored_source, view_of

Key: TypeAlias = tuple[Any, ...]

MAX_GROUP_MEMBERS = 24
"""Values that one group computes: more do not run faster, and make more different groups."""
MAX_REPEATED_MEMBERS = 6
"""Values that each reader computes again: more take longer than memory does to store and read their result."""
MIN_SHARE_OF_ELEMENTS = 8
"""Share of a value's elements from which on an operand counts as of its size: one part in so many."""


class NodeGroup(NamedTuple):
    """Values that one step of a plan computes, by their numbers in the structure."""

    roots: tuple[int, ...]
    """Values that get memory: one, or the outputs of one call of a user's kernel or operator."""
    members: tuple[int, ...]
    """The roots and the values inlined in them, producers first."""
    sources: tuple[int, ...]
    """Values in memory that the members read, in order of first use."""


class RecordedStructure:
    """A recorded structure: its values by number, with their edges and uses."""

    def __init__(self, key: Key, order: Sequence[Value]) -> None:
        self.values = order
        self.wanted: tuple[int, ...] = key[-1]
        self.inputs: list[tuple[int, ...]] = []
        self.is_source = [is_given(entry) for entry in key[:-1]]
        """Whether a value is in memory or a number of the call."""
        for given, entry in zip(self.is_source, key, strict=False):
            self.inputs.append(() if given else edges_of(entry))
        self.sources: list[StridedSource | None] = [None] * len(order)
        """Where the elements of stored values and of their views are."""
        self.readers: list[list[int]] = [[] for _ in order]
        for number, inputs in enumerate(self.inputs):
            for x in dict.fromkeys(inputs):
                self.readers[x].append(number)


def is_given(entry: Any) -> bool:
    """Whether an entry of a key stands for a value in memory, or for a number of the call."""
    return isinstance(entry, TensorType) or isinstance(entry[1], TensorType)


def given_values(key: Key) -> list[int]:
    """List the values in memory, then the numbers of the call."""
    given = [n for n, entry in enumerate(key[:-1]) if is_given(entry)]
    return sorted(given, key=lambda n: not isinstance(key[n], TensorType))


def edges_of(entry: Any) -> tuple[int, ...]:
    """List the inputs whose elements an entry of a key reads: the others of an identity only order its computation."""
    inputs: tuple[int, ...] = entry[2:]
    return inputs[:1] if traits_of(entry[0]).is_identity else inputs


class OpTraits(NamedTuple):
    """Hold the facts of an op that grouping asks for, by class: an abstract class takes long to tell its instances."""

    is_identity: bool
    is_view: bool
    is_pointwise: bool
    is_reduction: bool
    reads_strides: bool
    """Whether it reads memory at strides: products and concatenations."""


@cache
def traits_of(cls: type[Value]) -> OpTraits:
    """Return the traits of a class of values."""
    is_identity = issubclass(cls, IDENTITIES)
    return OpTraits(
        is_identity,
        is_identity or issubclass(cls, StridedView),
        issubclass(cls, Elementwise),
        issubclass(cls, Reduction),
        cls.contracts or issubclass(cls, Cat),
    )


def is_view(value: Value) -> bool:
    """Whether a value has elements of its input at other positions, and needs no memory of its own."""
    return traits_of(type(value)).is_view


def is_generated(value: Value) -> bool:
    """Whether a value is made from nothing: a constant, a range of numbers."""
    return not value.inputs and value.cost == "free"


def groups(recorded: RecordedStructure) -> list[NodeGroup]:
    """Partition the values of a structure into groups, in order of execution."""
    stored = _stored(recorded)
    found: dict[Any, list[int]] = {}
    for root, is_root in enumerate(stored):
        if is_root and not recorded.is_source[root]:
            found.setdefault(_call_of(recorded, root), []).append(root)
    return [NodeGroup(tuple(roots), *_inlined(recorded, roots, stored)) for roots in found.values()]


def _call_of(recorded: RecordedStructure, number: int) -> Any:
    """Return what the outputs of one call of a user's kernel or operator have in common; other values are alone."""
    value = recorded.values[number]
    if not (value.external or value.user_defined):
        return number
    own = value.__dict__
    return (type(value), recorded.inputs[number], *[own[name] for name in value.attribute_fields if name != "place"])


def _stored(recorded: RecordedStructure) -> list[bool]:
    """Decide which values get memory."""
    values, stored = recorded.values, list(recorded.is_source)
    for number in recorded.wanted:
        stored[number] = True
    sizes = [0] * len(values)
    """Members that a value adds to its readers."""
    for number, value in enumerate(values):
        if not stored[number]:
            sizes[number] = 1 + sum([sizes[x] for x in recorded.inputs[number]])
            if sizes[number] >= MAX_GROUP_MEMBERS:
                stored[number] = True
            elif is_view(value):
                source = recorded.sources[recorded.inputs[number][0]]
                recorded.sources[number] = found = None if source is None else view_of(value, source)
                stored[number] = found is None and _is_read_at_strides(recorded, number)
            elif is_generated(value):
                stored[number] = _is_read_at_strides(recorded, number)
            else:
                stored[number] = not (
                    _is_fused_into_reader(recorded, number) or _is_repeated(recorded, number, stored, sizes[number])
                )
        if stored[number]:
            recorded.sources[number] = stored_source(number, value)
            sizes[number] = 0
    return stored


def _is_read_at_strides(recorded: RecordedStructure, number: int) -> bool:
    """Whether a value is an operand of a product or a concatenation, which read memory at strides."""
    return any(traits_of(type(recorded.values[n])).reads_strides for n in recorded.readers[number])


def _is_fused_into_reader(recorded: RecordedStructure, number: int) -> bool:
    """Whether a value is pointwise and computed where its only reader needs it, once for each element."""
    readers, value = recorded.readers[number], recorded.values[number]
    return len(readers) == 1 and traits_of(type(value)).is_pointwise and _computes(recorded, readers[0], value)


def _computes(recorded: RecordedStructure, reader: int, value: Value) -> bool:
    """Whether a reader can compute a pointwise value, once for each element."""
    own = recorded.values[reader]
    traits = traits_of(type(own))
    return traits.is_reduction or (traits.is_pointwise and own.type.shape == value.type.shape)


def _is_repeated(recorded: RecordedStructure, number: int, stored: Sequence[bool], size: int) -> bool:
    """Whether several readers compute a value anew: it is cheap, and made from one tensor of its size, which they read
    in its place. Its memory is saved.
    """
    value = recorded.values[number]
    if not traits_of(type(value)).is_pointwise or value.cost == "expensive" or size > MAX_REPEATED_MEMBERS:
        return False
    shape: Any = value.shape
    if not all(_computes(recorded, n, value) for n in recorded.readers[number]):
        return False
    large, stack = set[int](), list(recorded.inputs[number])
    while stack:
        x = stack.pop()
        source = recorded.sources[x]
        if source is None:
            if recorded.values[x].cost == "expensive":
                return False
            stack += recorded.inputs[x]
        elif prod(recorded.values[source.source].shape) * MIN_SHARE_OF_ELEMENTS > prod(shape):
            large.add(source.source)
    return len(large) == 1


def _inlined(
    recorded: RecordedStructure, roots: Sequence[int], stored: Sequence[bool]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """List the roots and the values inlined in them, producers first, and the values in memory that they read."""
    seen: set[int] = set()
    members: list[int] = []
    sources: dict[int, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        number, ready = stack.pop()
        if ready:
            members.append(number)
        elif stored[number] and number not in roots:
            sources[number] = None
        elif number not in seen:
            seen.add(number)
            stack.append((number, True))
            stack += [(x, False) for x in reversed(recorded.inputs[number])]
    return tuple(members), tuple(sources)


def same_memory(recorded: RecordedStructure, group: NodeGroup) -> bool:
    """Whether a group has the elements of its source in the same order, so that both may have one memory."""
    values = [recorded.values[n] for n in group.members]
    return len(group.sources) == 1 and all(isinstance(v, (Reshape, *IDENTITIES)) for v in values)


def group_key(recorded: RecordedStructure, group: NodeGroup) -> Key:
    """Return what groups that compute the same have in common: ops, attributes, edges, types of what they read."""
    place = {number: n for n, number in enumerate(group.sources)}
    key: list[Any] = [recorded.values[n].type for n in group.sources]
    for number in group.members:
        value = recorded.values[number]
        place[number] = len(place)
        key.append((type(value), value.attributes, *[place[x] for x in recorded.inputs[number]]))
    return (*key, tuple([place[n] for n in group.roots]))


def graph_of(recorded: RecordedStructure, group: NodeGroup) -> Graph:
    """Build the graph of a group on plain inputs."""
    inputs = [Input(recorded.values[n].type, f"x{k}") for k, n in enumerate(group.sources)]
    made: dict[int, Value] = dict(zip(group.sources, inputs, strict=True))
    for number in group.members:
        value = recorded.values[number]
        if isinstance(value, IDENTITIES):
            made[number] = made[recorded.inputs[number][0]]
        else:
            made[number] = _remade(value, [made[n] for n in recorded.inputs[number]])
    return Graph(tuple(inputs), tuple([made[n] for n in group.roots]))


def _remade(value: Value, inputs: Sequence[Value]) -> Value:
    """Copy an op to other inputs, without the user's line: groups of different lines share a program."""
    made: Value = value.with_inputs(inputs) if inputs else value.replaced()
    amend(made, location=None)
    return made
