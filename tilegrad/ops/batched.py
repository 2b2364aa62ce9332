"""An op done for every entry of a leading axis, and graphs rebuilt with such an axis (`vmap`).

Nothing here is written per op. The element of a batched op is the element of the op it repeats, read
where the batch index says; its gradient is the batched gradient of that op; its kernel, if it is
opaque, is the kernel of that op run once per entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final
from weakref import WeakValueDictionary

import numpy as np

from ..ir.graph import Input, Reader, TensorType, Value, topological
from ..ir.location import working_for
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
"""An op on placeholders. (Not an input of the op that has it as a field.)"""


@final
class Batched(Value):
    """An op done once for each entry of the leading axis of those arguments that are mapped."""

    arguments: tuple[Value, ...]
    mapped: tuple[bool, ...]
    inner: OpTemplate

    def infer(self) -> TensorType:
        inner = self.inner
        self.__dict__.update(opaque=inner.opaque, cost=inner.cost, differentiable=inner.differentiable)
        return inner.type.with_shape((self.entries, *inner.shape))

    @property
    def entries(self) -> Dim:
        """How many times the op is done."""
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
    """What a value of an unbatched graph has become."""

    value: Value
    mapped: bool
    """Whether it has the batch as a leading axis."""


def placeholder(type: TensorType) -> Input:
    """An input to build with, for which gradients are taken."""
    made = Input(type)
    made.__dict__["tracked"] = type.dtype.is_float
    return made


_templates: WeakValueDictionary[Any, Value] = WeakValueDictionary()


def template(value: Value) -> Value:
    """The op of a value on placeholders: the same object for the same op, so that equal ops can be found."""
    counts = tuple(len(v) if isinstance(v := value.__dict__[n], tuple) else -1 for n in value.input_fields)
    key = (type(value), value.attributes, counts, tuple(x.type for x in value.inputs))
    found = _templates.get(key)
    if found is None:
        found = _templates[key] = value.with_inputs([placeholder(x.type) for x in value.inputs])
    return found


def rebuilt(
    values: Sequence[Value], given: Mapping[Value, BatchedValue], sizes: Mapping[str, int] = {}
) -> list[BatchedValue]:
    """The values computed again from what some of the values they are computed from have become.

    With `sizes`, those that stand in ops become numbers: what is given has numbers in their place, too.
    """
    building = _Rebuilding(given, sizes)
    return [building.part(value) for value in values]


class _Rebuilding:
    """What has been rebuilt so far."""

    def __init__(self, given: Mapping[Value, BatchedValue], sizes: Mapping[str, int]) -> None:
        self.parts: dict[Value, BatchedValue] = dict(given)
        self.sizes = sizes
        self.joints: dict[int, Joint] = {}

    def part(self, wanted: Value) -> BatchedValue:
        parts = self.parts
        for value in topological([wanted], lambda v: v in parts or "leaf" in v.__dict__):
            if value not in parts:
                inputs = [] if "leaf" in value.__dict__ else [parts[x] for x in value.inputs]
                with working_for(value.location):
                    parts[value] = self.made(value, inputs)
        return parts[wanted]

    def made(self, value: Value, inputs: Sequence[BatchedValue]) -> BatchedValue:
        changes = bind_attributes(value, self.sizes) if self.sizes else {}
        if not changes and all(x is p.value for x, p in zip(value.inputs, inputs, strict=False)):
            return BatchedValue(value, False)
        batched_call = any(p.mapped for p in inputs)
        if batched_call and isinstance(value, Declared):  # its meaning is mapped, which is made of other values
            meant = value.meaning.reference()
            return rebuilt([meant.outputs[value.place]], dict(zip(meant.inputs, inputs, strict=True)))[0]
        if isinstance(value, JointOutput):
            new = self.sibling(value, inputs)
        else:
            new = _batched(value, inputs) if batched_call else value.with_inputs([p.value for p in inputs], **changes)
        if new.tracked and not value.tracked and any(x.tracked for x in value.inputs):
            new.__dict__["tracked"] = False  # made where no gradients were recorded
        if not batched_call and "hooks" in value.__dict__:
            new.__dict__["hooks"] = value.__dict__["hooks"]
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
        """The rule of a joint for arguments of which some are mapped."""

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
    """Shares of gradients for all entries: summed for an argument that all entries read."""
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
    """An op on arguments of which some have the batch as leading axis; as itself where that is plain to see."""
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
    """A part with axes of extent 1 after the batch axis, so that it broadcasts as it did without."""
    x = part.value
    if not part.mapped:
        return x
    missing = rank + 1 - x.type.rank
    return reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:])) if missing else x
