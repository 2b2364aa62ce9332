"""Batched ops, and graphs rebuilt with a batch axis (`vmap`).

Nothing here is specific to an op. The element of a batched op is the element of the repeated op, read at the batch
index; its gradient is the batched gradient; the kernel of an opaque op runs once for each entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final
from weakref import WeakValueDictionary

import numpy as np

from ..ir.graph import Input, Reader, TensorType, Value, topological
from ..ir.location import working_for
from ..ir.node import amend
from ..ir.scalar import Expr, Position
from ..ir.size import Dim
from .base import Elementwise
from .bind_sizes import bind_attributes
from .broadcasting import Expand, Reduction, Reshape, expand, reduce_sum, reshape
from .declared import Declared
from .external_call import ExternalCall
from .external_call import batched_call as mapped_call
from .joint import Joint, JointOutput, joint_output
from .opaque import Opaque
from .tile_code import TileCode, repeat_kernel

OpTemplate: TypeAlias = "Value"
"""An op on placeholders, as an attribute of a batched op."""


@final
class Batched(Value):
    """An op applied to each entry of the leading axis of mapped arguments."""

    arguments: tuple[Value, ...]
    mapped: tuple[bool, ...]
    inner: OpTemplate

    def infer(self) -> TensorType:
        inner = self.inner
        amend(self, opaque=inner.opaque, cost=inner.cost, differentiable=inner.differentiable)
        return inner.type.with_shape((self.entries, *inner.shape))

    @property
    def entries(self) -> Dim:
        """Number of entries."""
        return self.arguments[self.mapped.index(True)].shape[0]

    def element(self, position: Position, read: Reader) -> Expr:
        entry, inside = position[0], position[1:]
        place = {x: n for n, x in enumerate(self.inner.inputs)}

        def read_inner(x: Value, at: Position) -> Expr:
            n = place[x]
            return read(self.arguments[n], (entry, *at) if self.mapped[n] else at)

        return self.inner.element(inside, read_inner)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        inner = self.inner
        one = placeholder(inner.type)
        shares = inner.gradient(one)
        given = {x: BatchedValue(a, m) for x, a, m in zip(inner.inputs, self.arguments, self.mapped, strict=True)}
        given[one] = BatchedValue(upstream, True)
        return summed_shares(shares, given, self.mapped, self.entries)

    def reference(self, *arrays: Any) -> Any:
        assert isinstance(self.inner, (Opaque, Batched))
        entries = next(len(a) for a, m in zip(arrays, self.mapped, strict=True) if m)
        done = [
            self.inner.reference(*(a[k] if m else a for a, m in zip(arrays, self.mapped, strict=True)))
            for k in range(entries)
        ]
        return np.stack(done) if done else np.zeros((0, *self.shape[1:]), self.dtype.numpy)

    def kernel(self) -> TileCode:
        assert isinstance(self.inner, (Opaque, Batched))
        types = [x.type for x in (*self.inner.inputs, self.inner)]
        return repeat_kernel(self.inner.kernel(), types, [*self.mapped, True], self.entries)

    def __str__(self) -> str:
        return f"each[{self.inner}]"


class BatchedValue(NamedTuple):
    """A value of the unbatched graph after batching."""

    value: Value
    mapped: bool
    """Whether the value has the batch as leading axis."""


def placeholder(type: TensorType) -> Input:
    """Make a tracked input to build templates with."""
    made = Input(type)
    amend(made, tracked=type.dtype.is_float)
    return made


_templates: WeakValueDictionary[Any, Value] = WeakValueDictionary()


def template(value: Value) -> Value:
    """Return the op of a value on placeholders; equal ops share one object."""
    counts = tuple(len(v) if isinstance(v := value.__dict__[n], tuple) else -1 for n in value.input_fields)
    key = (type(value), value.attributes, counts, tuple(x.type for x in value.inputs))
    found = _templates.get(key)
    if found is None:
        found = _templates[key] = value.with_inputs([placeholder(x.type) for x in value.inputs])
    return found


def rebuilt(
    values: Sequence[Value], given: Mapping[Value, BatchedValue], sizes: Mapping[str, int] = {}
) -> list[BatchedValue]:
    """Recompute values from replacements of the values they depend on.

    `sizes` replaces symbolic sizes in ops by numbers; the replacements have the numbers already.
    """
    building = _Rebuilding(given, sizes)
    return [building.part(value) for value in values]


class _Rebuilding:
    """The values rebuilt so far."""

    def __init__(self, given: Mapping[Value, BatchedValue], sizes: Mapping[str, int]) -> None:
        self.parts: dict[Value, BatchedValue] = dict(given)
        self.sizes = sizes
        self.joints: dict[int, Joint] = {}

    def part(self, wanted: Value) -> BatchedValue:
        parts = self.parts
        for value in topological([wanted], lambda v: v in parts or v.provenance.is_leaf):
            if value not in parts:
                inputs = [] if value.provenance.is_leaf else [parts[x] for x in value.inputs]
                with working_for(value.location):
                    parts[value] = self.made(value, inputs)
        return parts[wanted]

    def made(self, value: Value, inputs: Sequence[BatchedValue]) -> BatchedValue:
        changes = bind_attributes(value, self.sizes) if self.sizes else {}
        if not changes and all(x is p.value for x, p in zip(value.inputs, inputs, strict=False)):
            return BatchedValue(value, False)
        batched_call = any(p.mapped for p in inputs)
        if batched_call and isinstance(value, Declared):  # its reference, made of other values, is batched
            meant = value.meaning.reference()
            return rebuilt([meant.outputs[value.place]], dict(zip(meant.inputs, inputs, strict=True)))[0]
        if isinstance(value, JointOutput):
            new = self.sibling(value, inputs)
        else:
            new = _batched(value, inputs) if batched_call else value.with_inputs([p.value for p in inputs], **changes)
        if new.tracked and not value.tracked and any(x.tracked for x in value.inputs):
            amend(new, tracked=False)  # recorded without gradients
        if not batched_call and value.provenance.hooks is not None:
            new.note().hooks = value.provenance.hooks
        return BatchedValue(new, batched_call)

    def sibling(self, value: JointOutput, inputs: Sequence[BatchedValue]) -> Value:
        old = value.joint
        flags = [p.mapped for p in inputs[1:]]
        joint = self.joints.get(id(old))
        if joint is None:
            joint = self.joints[id(old)] = Joint([p.value for p in inputs[1:]], self.rule(old, flags))
        x = inputs[0]
        if any(flags) and not x.mapped:
            entries = inputs[1 + flags.index(True)].value.shape[0]
            x = BatchedValue(expand(x.value, (entries, *x.value.shape)), True)
        return joint_output(x.value, joint, old.outputs.index(value))

    def rule(self, old: Joint, batched_call: Sequence[bool]) -> Any:
        """Return the gradient rule of a joint with mapped arguments."""

        def gradient(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
            given = dict(self.parts)
            ones: list[Value | None] = []
            for sibling, upstream in zip(old.outputs, upstreams, strict=False):
                ones.append(None)
                if upstream is not None and sibling is not None:
                    ones[-1] = one = placeholder(sibling.type)
                    given[one] = BatchedValue(upstream, any(batched_call))
            entries = next((u.shape[0] for u in upstreams if u is not None), 1) if any(batched_call) else 1
            ones += [None] * (len(old.outputs) - len(ones))
            return summed_shares(old.rule(ones), given, batched_call, entries, self.sizes)

        return gradient


def summed_shares(
    shares: Sequence[Value | None],
    given: Mapping[Value, BatchedValue],
    batched_call: Sequence[bool],
    entries: Dim,
    sizes: Mapping[str, int] = {},
) -> list[Value | None]:
    """Sum gradients over the entries for arguments that all entries share."""
    found = iter(rebuilt([share for share in shares if share is not None], given, sizes))
    result: list[Value | None] = []
    for share, has_axis in zip(shares, batched_call, strict=True):
        if share is None:
            result.append(None)
            continue
        value, is_mapped = next(found)
        if has_axis and not is_mapped:
            value = expand(value, (entries, *value.shape))
        elif is_mapped and not has_axis:
            value = reduce_sum(value, 0)
        result.append(value)
    return result


def _batched(value: Value, parts: Sequence[BatchedValue]) -> Value:
    """Batch an op; ops with a batched form of their own use it."""
    first = next(p.value for p in parts if p.mapped)
    entries = first.shape[0]
    match value:
        case ExternalCall():
            return mapped_call(value, [p.value for p in parts], [p.mapped for p in parts])
        case Elementwise():
            return value.with_inputs([_aligned(p, value.type.rank) for p in parts])
        case Reduction():
            return value.replaced(x=first, axes=tuple([axis + 1 for axis in value.axes]))  # type: ignore[no-any-return]
        case Reshape():
            return reshape(first, (entries, *value.shape))
        case Expand():
            return expand(_aligned(parts[0], value.type.rank), (entries, *value.shape))
    return Batched(tuple([p.value for p in parts]), tuple([p.mapped for p in parts]), template(value))


def _aligned(part: BatchedValue, rank: int) -> Value:
    """Insert axes of extent 1 behind the batch axis, so that a value broadcasts as before."""
    x = part.value
    if not part.mapped:
        return x
    missing = rank + 1 - x.type.rank
    return reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:])) if missing else x
