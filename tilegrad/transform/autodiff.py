"""Reverse-mode differentiation: from a graph to the graph of its gradients.

The recorded graph is walked in reverse topological order; `Value.gradient` turns the upstream gradient of a value into
contributions to the gradients of its inputs, and contributions to one value are added. The result is a graph, which is
optimised, printed and differentiated again like any other.

A gradient flows along `tracked` values that lead to a value whose gradient is wanted. Leaves, hooks, joint rules and
released values are in the `Provenance` of values (`ir/provenance.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..errors import GradientError
from ..ir.graph import Graph, Input, TensorType, Value, topological
from ..ir.location import derived, working_for
from ..ir.node import amend
from ..ops.arithmetic import add
from ..ops.broadcasting import fill_like
from ..ops.joint import Joint
from ..runtime.garbage_collection import collected_seldom

MANY_VALUES = 1000
"""Values of a graph from which on it pays to hold back the garbage collector while gradients are built."""


def gradients(
    outputs: Sequence[Value], upstreams: Sequence[Value], inputs: Sequence[Value], retain: bool = True
) -> list[Value | None]:
    """Return the gradients of the inputs, given those of the outputs; None where no gradient flows.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Graph
    >>> x, u = tracked_input(TensorType(float32, (3,)), "x"), Input(TensorType(float32, (3,)), "u")
    >>> y = add(x, x)
    >>> print(Graph((x, u), tuple(gradients([y], [u], [x]))))
    graph(x: f32[3], u: f32[3])
      %0: f32[3] = add u u
      return %0
    """
    places = [gradient_place(_before_replacement(value)) for value in inputs]
    known = set(places)
    wanted = lambda value: gradient_place(value) in known  # noqa: E731
    found = _shares(_order(outputs, wanted), zip(outputs, upstreams, strict=True), wanted, retain)
    total: dict[object, Value] = {}
    for value, gradient in found.items():
        place = gradient_place(value)
        total[place] = add(total[place], gradient) if place in total else gradient
    return [total.get(place) for place in places]


def gradient_place(value: Value) -> object:
    """Identify where gradients accumulate: all values of a leaf that was written in place share one place."""
    holder = value.provenance.holder
    return value if holder is None else id(holder)


def _before_replacement(value: Value) -> Value:
    """Return the value before elements were replaced without a record: gradients flow to it."""
    while (before := value.provenance.renews) is not None:
        value = before
    return value


def leaf_gradients(outputs: Sequence[Value], upstreams: Sequence[Value], retain: bool = True) -> dict[Value, Value]:
    """Return the gradients of all tracked leaves that the outputs depend on."""
    order, given = _order(outputs, is_leaf), zip(outputs, upstreams, strict=True)
    if len(order) < MANY_VALUES:
        return _shares(order, given, is_leaf, retain)
    with collected_seldom():
        return _shares(order, given, is_leaf, retain)


def jvp(outputs: Sequence[Value], inputs: Sequence[Value], tangents: Sequence[Value]) -> list[Value | None]:
    """Return the directional derivatives of the outputs for tangents of the inputs.

    A gradient is linear in the upstream gradient; its own gradient with respect to the upstream gradient is the
    transposed map, the JVP.
    """
    upstreams = [tracked_input(value.type) for value in outputs]
    pulled = gradients(outputs, upstreams, inputs)
    pairs = [(g, tangent) for g, tangent in zip(pulled, tangents, strict=True) if g is not None]
    moved = gradients([g for g, _ in pairs], [tangent for _, tangent in pairs], upstreams)
    found = [v for v in moved if v is not None]
    if set(upstreams).isdisjoint(topological(found)):
        return moved
    from .batch import substitute

    # only recomputations that wait for them (`Recompute`) still read them
    nothing: dict[Value, Value] = {u: fill_like(u, 0.0) for u in upstreams}
    known = iter(substitute(found, nothing))
    return [None if v is None else next(known) for v in moved]


def undifferentiated(graph: Graph) -> Graph:
    """Return the forward part of a graph: without gradients and the values computed from them.

    >>> from ..ir.dtype import float32
    >>> from ..ops.exponential import exp
    >>> x, u = tracked_input(TensorType(float32, (3,)), "x"), Input(TensorType(float32, (3,)), "u")
    >>> y = exp(x)
    >>> print(undifferentiated(Graph((x, u), (y, *gradients([y], [u], [x])))))
    graph(x: f32[3], u: f32[3])
      %0: f32[3] = exp x
      return %0
    >>> y = exp(exp(x))
    >>> len(undifferentiated(Graph((x, u), tuple(gradients([y], [u], [x])))).outputs)
    1
    """
    given, values = set(graph.inputs), graph.values()
    later: set[Value] = set()
    for v in values:
        if v not in given and ((v.location is not None and v.location.derived) or not later.isdisjoint(v.inputs)):
            later.add(v)
    if not later:
        return graph
    computed = [v for v in values if v not in later and v not in given and v.inputs]
    read = {x for v in computed for x in v.inputs}
    saved = {x for v in later if v.location is not None and v.location.derived for x in v.inputs}
    ends = [v for v in computed if v in graph.outputs or (v in saved and v not in read)]
    behind = {v: len(topological([v], given.__contains__)) for v in ends}
    return Graph(graph.inputs, tuple(sorted(ends, key=behind.__getitem__, reverse=True)))  # the network first


def tracked_input(type: TensorType, name: str = "") -> Input:
    """Make a placeholder that gradients are computed for."""
    made = Input(type, name)
    amend(made, tracked=True)
    return made


def is_leaf(value: Value) -> bool:
    """Return whether history ends at a value."""
    return not value.inputs or value.provenance.is_leaf


def _gradient_targets(value: Value) -> tuple[Value, ...]:
    """Return the values that the gradient of a value contributes to."""
    known = value.provenance
    if known.is_leaf:
        return ()
    return value.inputs if known.joint is None else known.joint.arguments


def _order(outputs: Iterable[Value], wanted: Callable[[Value], bool]) -> list[Value]:
    """List the values between the wanted ones and the outputs, producers first."""
    needed: dict[Value, bool | None] = {}  # None: entered, but its inputs are not done
    order = []
    stack = [value for value in outputs if value.tracked]
    while stack:
        value = stack[-1]
        if value not in needed:
            needed[value] = None
            stack.extend([x for x in _gradient_targets(value) if x.tracked and x not in needed])
        else:
            stack.pop()
            if needed[value] is None:
                needed[value] = on_path = wanted(value) or True in [needed.get(x) for x in _gradient_targets(value)]
                if on_path:
                    order.append(value)
    return order


def _after_hooks(gradient: Value, hooks: Iterable[Callable[[Value], Value | None]]) -> Value:
    """Pass a gradient through hooks, each of which may replace it."""
    for hook in hooks:
        replaced = hook(gradient)
        gradient = gradient if replaced is None else replaced
    return gradient


def _shares(
    order: Sequence[Value],
    upstreams: Iterable[tuple[Value, Value]],
    wanted: Callable[[Value], bool],
    retain: bool,
) -> dict[Value, Value]:
    """Walk from the outputs to the inputs and return the gradients of the wanted values."""
    total: dict[Value, Value | None] = dict.fromkeys(order)
    _add_shares(total, upstreams)
    found: dict[Value, Value] = {}
    joints = _Siblings(order)
    for value in reversed(order):
        upstream = total.pop(value)
        known = value.provenance
        with working_for(derived(value.location)):
            if upstream is not None:
                upstream = _after_hooks(upstream, known.hooks or ())
                if wanted(value):
                    found[value] = upstream
            if known.joint is not None and not known.is_leaf:
                _add_shares(total, joints.shares(value, upstream))
            elif upstream is not None and value.inputs and not known.is_leaf:
                shares = value.gradient(upstream)
                if known.is_released:
                    _check_nothing_saved(value, upstream, shares)
                if not retain:
                    value.note().is_released = True
                _add_shares(total, zip(value.inputs, shares, strict=True))
    return found


def _add_shares(total: dict[Value, Value | None], shares: Iterable[tuple[Value, Value | None]]) -> None:
    for value, share in shares:
        if share is not None and value in total:
            known = total[value]
            total[value] = share if known is None else add(known, share)


class _Siblings:
    """Collect the upstream gradients of values that share a joint until all are known."""

    def __init__(self, order: Sequence[Value]) -> None:
        self.waiting: dict[int, int] = {}
        self.upstreams: dict[Value, Value | None] = {}
        for value in order:
            if value.provenance.joint is not None:
                key = id(value.provenance.joint)
                self.waiting[key] = self.waiting.get(key, 0) + 1

    def shares(self, value: Value, upstream: Value | None) -> Iterable[tuple[Value, Value | None]]:
        """Return the contributions to the arguments of the joint, once its last output has a gradient."""
        joint: Joint = value.provenance.joint
        self.upstreams[value] = upstream
        self.waiting[id(joint)] -= 1
        known = [None if s is None else self.upstreams.get(s) for s in joint.outputs]
        if self.waiting[id(joint)] or all(u is None for u in known):
            return ()
        return zip(joint.arguments, joint.rule(known), strict=True)


def _check_nothing_saved(value: Value, upstream: Value, shares: Sequence[Value | None]) -> None:
    """Refuse to differentiate a released value again, unless its gradient only needs the upstream gradient."""
    saved = {value, *(x for x in value.inputs if x.tracked or x.type.shape)}
    seen = {upstream}
    stack = [share for share in shares if share is not None]
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part in saved:
            raise GradientError(
                f"{value.op} of shape {list(value.shape)} was differentiated before, and what it saved for that was "
                "released. Call backward(retain_graph=True) the first time if you need a second"
            )
        stack.extend(part.inputs)
