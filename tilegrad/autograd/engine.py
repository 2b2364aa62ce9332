"""Compute gradients of tensors: `backward` and `grad`, on top of graph differentiation."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..deferred import part
from ..errors import ArgumentError, GradientError, ShapeError
from ..functions.promotion import kind_of
from ..ir.graph import Value, topological
from ..lazy import storage as sharing
from ..lazy.evaluation import compute_together
from ..lazy.handle import Handle, mode, wrap
from ..lazy.layout import like
from ..lazy.storage import detached
from ..ops.arithmetic import add
from ..ops.broadcasting import fill, shown
from ..ops.cast import cast
from ..transform.autodiff import gradients, is_leaf, leaf_gradients
from .saved import accept_changes, check_saved

if TYPE_CHECKING:
    from ..tensor import Tensor


class GradientPass(threading.local):
    """Per thread: whether the gradient in progress is recorded for higher derivatives."""

    retain = True


walk = GradientPass()


@contextmanager
def walking(retain: bool, create_graph: bool) -> Iterator[None]:
    """Set the recording of user-written gradient rules while gradients are taken."""
    before = walk.retain, mode.enabled
    walk.retain, mode.enabled = retain, create_graph
    try:
        yield
    finally:
        walk.retain, mode.enabled = before


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of the tensors (of their sum) to `.grad` of the leaves that they depend on."""
    outputs = _listed(tensors)
    upstreams = _upstreams(outputs, grad_tensors, "backward")
    retain = create_graph if retain_graph is None else retain_graph
    values = [x.value for x in outputs]
    if sharing.changes_of_saved_values:
        check_saved(values)
    with walking(retain, create_graph):
        if inputs is None:
            found = leaf_gradients(values, upstreams, retain)
            _compute_leaves(found)
            arrived = [(_holder(leaf), g) for leaf, g in found.items()]
        else:
            wanted = _listed(inputs)
            given = gradients(values, upstreams, [x.value for x in wanted], retain)
            arrived = [(x, g) for x, g in zip(wanted, given, strict=True) if g is not None]
        if create_graph:
            arrived = [(x, _differentiable(g)) for x, g in arrived]
    if create_graph and sharing.changes_of_saved_values:
        accept_changes([g for _, g in arrived], values)
    for holder, gradient in arrived:
        if holder is not None:
            accumulate(holder, gradient if create_graph else detached(gradient), create_graph)
    reached = [] if create_graph else [x.own_gradient() for x, _ in arrived if x is not None]
    compute_together([x for x in (*outputs, *reached) if x is not None])


def _compute_leaves(leaves: Iterable[Value]) -> None:
    (part("lazy.bounded_recording", "compute_leaves") or list)(leaves)


def _differentiable(gradient: Value) -> Value:
    """Make a gradient differentiable: if only its conditions depend on inputs with gradients (the slope of a ReLU), its
    own gradient is zero rather than missing.
    """
    if gradient.tracked:
        return gradient
    reached = [v for v in topological([gradient], lambda v: v.tracked) if v.tracked and v.dtype.is_float]
    return sharing.vanishing(gradient, *reached) if reached else gradient


def _holder(leaf: Value) -> Any:
    reference = leaf.provenance.holder
    return None if reference is None else reference()


def accumulate(x: Tensor, gradient: Value, create_graph: bool) -> None:
    """Add to a leaf's gradient."""
    known = x.grad
    if known is None:
        x._gradient = like(gradient, x)
    elif create_graph:
        x._gradient = like(add(known.value, gradient), x)
    else:
        before, mode.enabled = mode.enabled, False
        try:
            known.write(add(known.value, gradient), "backward")
        finally:
            mode.enabled = before
    for after in x.__dict__.get("_after_gradient", ()):
        after(x)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of the (sum of the) outputs with respect to the inputs."""
    if is_grads_batched:
        raise ArgumentError("grad: is_grads_batched is not there; use tilegrad.vmap over tilegrad.vjp")
    results, wanted = _listed(outputs), _listed(inputs)
    upstreams = _upstreams(results, grad_outputs, "grad")
    retain = create_graph if retain_graph is None else retain_graph
    _check_inputs(wanted)
    values = [x.value for x in results]
    _compute_leaves([v for x in wanted if is_leaf(v := x.value)])
    found = _differentiated(values, upstreams, wanted, retain, create_graph)
    if None in found and not (allow_unused or materialize_grads):
        raise _unused_input(values, wanted, found.index(None))
    if create_graph and sharing.changes_of_saved_values:
        accept_changes([g for g in found if g is not None], values)
    made = [_returned(g, x, create_graph, materialize_grads) for g, x in zip(found, wanted, strict=True)]
    if not create_graph:
        compute_together([x for x in (*results, *made) if x is not None])
    return tuple(made)


def _check_inputs(inputs: Sequence[Tensor]) -> None:
    for x in inputs:
        if not x.requires_grad:
            raise GradientError(
                f"grad: an input of shape {shown(x.shape)} does not require gradients; call requires_grad_() on it "
                "before anything is computed from it"
            )


def _differentiated(
    values: list[Value], upstreams: list[Value], inputs: Sequence[Tensor], retain: bool, create_graph: bool
) -> list[Value | None]:
    if sharing.changes_of_saved_values:
        check_saved(values)
    with walking(retain, create_graph):
        found = gradients(values, upstreams, [x.value for x in inputs], retain)
        if create_graph:
            found = [None if g is None else _differentiable(g) for g in found]
    return found


def _unused_input(values: list[Value], inputs: Sequence[Tensor], n: int) -> GradientError:
    spent = next(filter(None, (_noted_before(value, "spent") for value in values)), "")
    return GradientError(
        spent
        or f"grad: the outputs are not computed from input {n}, of shape {shown(inputs[n].shape)}; give "
        "allow_unused=True to get None for it, or materialize_grads=True to get zeros"
    )


def _returned(gradient: Value | None, x: Tensor, create_graph: bool, materialize: bool) -> Tensor | None:
    if gradient is None:
        return wrap(fill(0.0, x.shape, x.dtype, x.value.device)) if materialize else None
    return wrap(gradient if create_graph else detached(gradient))


def _listed(tensors: Any) -> list[Any]:
    found = [tensors] if isinstance(tensors, Handle) else list(tensors)
    for x in found:
        if not isinstance(x, Handle):
            raise ArgumentError(f"gradients are of tensors, not of {kind_of(x)}")
    return found


def _upstreams(outputs: Sequence[Tensor], given: Any, op: str) -> list[Value]:
    """Return the upstream gradient of each output: ones for a single element, else the given one."""
    several = isinstance(given, (list, tuple))
    ups = [None] * len(outputs) if given is None else list(given) if several else [given]
    if len(ups) != len(outputs):
        raise ArgumentError(f"{op}: {len(outputs)} outputs, but {len(ups)} gradients for them")
    for up in ups:
        if up is not None and not isinstance(up, Handle):
            raise ArgumentError(
                f"{op}: a gradient is a tensor or None, not {kind_of(up)}; wrap it: tilegrad.tensor(...)"
            )
    return [_upstream(x.value, up, op) for x, up in zip(outputs, ups, strict=True)]


def _noted_before(x: Value, what: str) -> str:
    """Return why a value's history has no gradient: a kernel overwrote what requires gradients (`severed`), or the
    history was released (`spent`); empty if neither.
    """
    seen: set[Value] = set()
    stack = [x]
    while stack:
        v = stack.pop()
        if noted := getattr(v.provenance, what):
            return str(noted)
        if v not in seen:
            seen.add(v)
            stack.extend(v.inputs)
    return ""


def _upstream(x: Value, given: Tensor | None, op: str) -> Value:
    if not x.tracked:
        if not x.dtype.is_float:
            raise GradientError(
                f"{op}: {x.dtype.name} elements have no gradient; floating-point ones do: compute with x.float()"
            )
        kernel = _noted_before(x, "severed")
        if kernel:
            raise GradientError(
                f"{op}: the tensor of shape {shown(x.shape)} was computed from what kernel {kernel} stored, and a "
                "kernel has no derivative: give it one with tilegrad.op, or in a tilegrad.autograd.Function"
            )
        raise GradientError(
            f"{op}: the tensor of shape {shown(x.shape)} does not require gradients and was not computed from one that "
            "does (or within no_grad, or was detached); make a leaf with requires_grad=True and compute from it"
        )
    if given is None:
        if x.type.count != 1:
            raise GradientError(
                f"{op}: the tensor has shape {shown(x.shape)}; without `gradient` it must have one element. Reduce it, "
                f"as in x.sum().{op if op == 'backward' else 'backward'}(), or say what flows into it: "
                "gradient=tilegrad.ones_like(x)"
            )
        return fill(1.0, x.shape, x.dtype, x.device)
    if not given.value.dtype.is_float:
        raise GradientError(
            f"{op}: the gradient has {given.value.dtype.name} elements; gradients are floating-point: convert it, as "
            "in gradient.float()"
        )
    if given.value.shape != x.shape:
        raise ShapeError(
            f"{op}: the gradient has shape {shown(given.value.shape)}, the tensor {shown(x.shape)}; they must be equal"
        )
    return cast(given.value, x.dtype)


__all__ = ["backward", "grad", "is_leaf", "walk", "walking"]
