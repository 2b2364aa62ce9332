"""Find the first operation that made a NaN (or an infinity), with the user's line: `tilegrad.first_nan`.

In a fused program the values between inputs and outputs cannot be examined. On request the recorded graph is computed
again, operation by operation; that is slow, and done only when a result is not finite.

    with first_nan(): train()          raises NaNError when something that is computed within the block has a NaN
    print(first_nan(step, x, y))       runs a function (jitted or not) on copies: nothing is changed by it
    print(first_nan(loss))             of a tensor that was recorded, computed already or not
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, NaNError
from ..ir.graph import Graph, Input, Value, topological
from ..ir.location import Location
from ..jitted.function import Jitted, jit
from ..lazy.evaluation import compute
from ..lazy.handle import state
from ..lazy.realize import realize, undetermined
from ..runtime.device import device
from ..tensor import Tensor
from ..transform.share import on_inputs
from .lines import FileLine


class Seen(NamedTuple):
    """A result of an operation, with its inputs."""

    op: str
    type: str
    location: Location | None
    wrong: str
    """The number of elements that are not finite, and the index of the first."""
    read: tuple[str, ...]
    given: bool
    """Whether no operation made it: it is an argument, or a tensor that existed before."""

    @property
    def place(self) -> FileLine | None:
        return FileLine(self.location.file, self.location.line) if self.location else None

    def __str__(self) -> str:
        place = self.place
        if self.given:
            return f"was in {self.op}, as it was given\n  {self.type}: {self.wrong}"
        at = ", in the gradient of" if self.location is not None and self.location.derived else " at"
        where = "" if place is None else f"{at} {place}: {place.text}".rstrip(": ")
        made = f"was made by {self.op}{where}\n  made {self.type}: {self.wrong}"
        return "\n".join([made, *(f"  from {x}" for x in self.read)])


class Finding(NamedTuple):
    """The operation that made the first NaN, and the one that made the first infinity, if that was before."""

    what: str
    made: Seen
    infinite: Seen | None

    def __str__(self) -> str:
        text = f"the first {self.what} {self.made}"
        return text if self.infinite is None else f"{text}\nbefore that, the first infinity {self.infinite}"


def first_nan(thing: Any = None, *args: Any, inf: bool = False, **kwargs: Any) -> Any:
    """Find the operation that made the first NaN in a function or a tensor (None: there is none); with `inf` the first
    infinity too.

    >>> import tilegrad as tg
    >>> x = tg.tensor([4.0, -1.0], device="reference")
    >>> print(first_nan(lambda x: (x.sqrt() + 1).sum(), x))
    the first NaN was made by sqrt
      made f32[2] on reference: 1 of 2 elements are NaN, the first at [1]
      from f32[2] on reference, from -1 to 4
    """
    if thing is None:
        return _watching(inf)
    if isinstance(thing, Tensor):
        return find([thing.value], {}, inf)
    if not callable(thing):
        raise ArgumentError(f"first_nan takes a function with its arguments, a tensor, or nothing, not {type(thing)}")
    if isinstance(thing, Jitted):
        thing = thing.fn
    function = thing if hasattr(thing, "__code__") or hasattr(thing, "__func__") else thing.__call__
    prepared = jit(function).prepared(*args, **kwargs)
    graph: Graph = prepared.compiled.stages["graph"].artifact
    return find(graph.outputs, dict(zip(graph.inputs, prepared.buffers(), strict=False)), inf)


@contextmanager
def _watching(inf: bool) -> Iterator[None]:
    def look(values: Sequence[Value]) -> None:
        if any(_wrong(v, v.buffer, inf) for v in values):
            found = find(values, {}, inf)
            if found is not None:
                raise NaNError(str(found))

    before, state.inspect = state.inspect, look
    try:
        yield
        compute()  # gradients and updates that nobody has looked at yet
    finally:
        state.inspect = before


def find(outputs: Sequence[Value], given: Mapping[Value, Any], inf: bool = False) -> Finding | None:
    """Find the operation whose NaN reaches the outputs; `given` is the memory of placeholders."""
    before, state.inspect = state.inspect, None
    try:
        walk = _Walk(given)
        order = topological(outputs, walk.is_clean)
        for value in order:
            walk.visit(value)
    finally:
        state.inspect = before
    for what, bad in (("NaN", walk.nan), ("infinity", walk.infinite)):
        culprit = _origin(outputs, order, bad)
        if culprit is not None and (what == "NaN" or inf):
            above = set(topological([culprit]))
            infinite = next((v for v in order if v in above and v in walk.infinite and v is not culprit), None)
            first = walk.seen[infinite] if infinite is not None and infinite in walk.seen else None
            return Finding(what, walk.seen[culprit], first if what == "NaN" else None)
    return None


def _origin(outputs: Sequence[Value], order: Sequence[Value], bad: set[Value]) -> Value | None:
    """Return the first value that is not finite although its inputs are, among those that the outputs depend on."""
    reached: set[Value] = set()
    stack = [v for v in outputs if v in bad]
    while stack:
        v = stack.pop()
        if v not in reached:
            reached.add(v)
            stack.extend(x for x in v.inputs if x in bad)
    return next((v for v in order if v in reached and not any(x in bad for x in v.inputs)), None)


class _Walk:
    """Computes values one after the other."""

    def __init__(self, given: Mapping[Value, Any]) -> None:
        self.given = given
        self.standing: dict[Value, Value] = {}
        """Maps each value to the same in memory, or to a movement of that."""
        self.nan: set[Value] = set()
        self.infinite: set[Value] = set()
        self.seen: dict[Value, Seen] = {}

    def is_clean(self, value: Value) -> bool:
        """Whether no value before this one needs to be examined."""
        return value in self.given or (value.buffer is not None and not _wrong(value, value.buffer, True))

    def visit(self, value: Value) -> None:
        held = self.given.get(value, value.buffer)
        if held is None and not value.inputs and isinstance(value, Input):
            raise undetermined(value)
        moves = value.cost == "free" and bool(value.inputs) and value.inputs[0].dtype is value.dtype
        if held is not None:
            self.standing[value] = _in_memory(value, held)
        else:
            inputs = tuple([self.standing[x] for x in value.inputs])
            made = on_inputs(value, inputs) if inputs else value.replaced()
            if moves:
                self.standing[value] = made
                for bad in (self.nan, self.infinite):
                    if value.inputs[0] in bad:
                        bad.add(value)
                return
            realize([made])
            held = made.buffer
            self.standing[value] = _in_memory(value, held)
        self._judge(value, held)

    def _judge(self, value: Value, held: Any) -> None:
        if not value.dtype.is_float or not _wrong(value, held, True):
            return
        array = _array(value, held)
        nan, infinite = np.isnan(array), np.isinf(array)
        for kind, bad, where in (("NaN", self.nan, nan), ("infinite", self.infinite, infinite)):
            if where.any():
                bad.add(value)
                if not any(x in bad for x in value.inputs):
                    self.seen.setdefault(value, self._described(value, kind, where))

    def _described(self, value: Value, kind: str, where: Any) -> Seen:
        first = [int(n) for n in np.unravel_index(int(np.argmax(where)), where.shape)]
        verb = "elements are" if where.size > 1 else "element is"
        wrong = f"{int(where.sum())} of {where.size} {verb} {kind}, the first at {first}"
        given = value in self.given or not value.inputs
        read = () if given else tuple([self._range(x) for x in value.inputs])
        name = value.name or "a tensor" if isinstance(value, Input) else value.op
        return Seen(name, str(value.type), value.location, wrong, read, given and isinstance(value, Input))

    def _range(self, value: Value) -> str:
        """Describe the type and the range of an input."""
        standing = self.standing.get(value)
        if standing is None:
            return str(value.type)
        realize([standing])
        array = _array(value, standing.buffer)
        if not array.size:
            return f"{value.type}, empty"
        finite = array[np.isfinite(array)] if value.dtype.is_float else array
        text = (
            f"{value.type}, from {_shown(finite.min())} to {_shown(finite.max())}" if finite.size else str(value.type)
        )
        left = array.size - finite.size
        return f"{text}, {left} not finite" if left else text


def _in_memory(value: Value, buffer: Any) -> Value:
    made = Input(value.type)
    made.hold(buffer)
    return made


def _array(value: Value, buffer: Any) -> np.ndarray[Any, Any]:
    place, shape = device(value.device), [int(n) for n in value.shape]  # type: ignore[arg-type]
    found = place.view(buffer, value.dtype, shape)
    return place.to_host(buffer, value.dtype, shape) if found is None else found


def _wrong(value: Value, buffer: Any, inf: bool) -> bool:
    """Return a mask of the elements in memory that are NaN, or infinite."""
    if not value.dtype.is_float:
        return False
    array = _array(value, buffer)
    return not bool(np.isfinite(array).all()) if inf else bool(np.isnan(array).any())


def _shown(number: Any) -> str:
    return f"{float(number):.6g}"
