"""Define function transforms, as in JAX: `grad`, `value_and_grad`, `vjp`, `jvp`, `vmap`, `checkpoint`.

Arguments and results may be nested containers (`tree.py`), and transforms may be nested in any order. A transform runs
the function once on placeholders for its arguments and transforms the recorded graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from . import tree
from .autograd.engine import walking
from .autograd.modes import enable_grad
from .captured_writes import watched
from .errors import ArgumentError, GradientError, ShapeError, check_callable
from .functions.promotion import kind_of
from .ir.graph import Input, Value
from .ir.node import amend
from .lazy.evaluation import compute_together
from .lazy.handle import Handle, mode, state, wrap
from .lazy.storage import detached
from .ops.broadcasting import fill, fill_like, normal_axis, shown
from .ops.joint import identity_rule, joint_outputs
from .ops.movement import moveaxis
from .transform.autodiff import gradients, is_leaf
from .transform.autodiff import jvp as pushed
from .transform.batch import batch
from .transform.checkpoint import checkpointed

# --- stand-ins ---------------------------------------------------------------------------------


@contextmanager
def on_stand_ins() -> Iterator[None]:
    """Run jitted functions unjitted within the block, so that their operations are recorded, too."""
    state.stand_ins += 1
    try:
        yield
    finally:
        state.stand_ins -= 1


def stand_in(x: Any, op: str) -> Value:
    """Make a value equal to an argument, for which gradients are taken; they flow on to the argument."""
    if not isinstance(x, Handle):
        raise ArgumentError(
            f"{op}: what is differentiated must be a tensor, not {kind_of(x)}; wrap it: tilegrad.tensor(...)"
        )
    value = x.value
    if not value.dtype.is_float:
        raise GradientError(f"{op}: {value.dtype.name} elements have no gradient; floating-point ones do: x.float()")
    (made,) = joint_outputs([detached(value)], [value], identity_rule)
    amend(made, tracked=True)
    made.note().is_differentiated = True
    return made


def freed(values: Sequence[Value | None]) -> list[Any]:
    """Drop the history of results, if it leads to no leaf and to no placeholder of an active transform."""
    return [v if v is None or not v.tracked or _leads_outside(v) else detached(v) for v in values]


def _leads_outside(value: Value) -> bool:
    seen: set[Value] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        known = v.provenance
        if v in seen or not v.tracked:
            continue
        seen.add(v)
        if is_leaf(v) or known.is_differentiated:
            return True
        stack.extend(v.inputs if known.joint is None else known.joint.arguments)
    return False


def argument_numbers(argnums: int | Sequence[int], args: Sequence[Any], op: str) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise ArgumentError(
                f"{op}: argnums names argument {n}, but there are {len(args)} (keyword arguments do not count)"
            )
    return tuple([n % len(args) for n in numbers])


def depends_on_a_stand_in(value: Value) -> bool:
    """Whether a value depends on a placeholder of an active transform."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        known = v.provenance
        if known.is_differentiated:
            return True
        if v.tracked and v not in seen:
            seen.add(v)
            stack.extend(v.inputs if known.joint is None else known.joint.arguments)
    return False


class Recorded:
    """A recorded run of a function on placeholders for some of its arguments."""

    def __init__(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Any, numbers: Sequence[int], op: str
    ) -> None:
        self.shapes = []
        self.inputs: list[Value] = []
        given = list(args)
        for n in numbers:
            leaves, shape = tree.flatten(args[n])
            made = [stand_in(x, op) for x in leaves]
            given[n] = tree.unflatten(shape, map(wrap, made))
            self.shapes.append(shape)
            self.inputs.extend(made)
        before, mode.differentiated = mode.differentiated, op
        try:
            with enable_grad(), on_stand_ins():
                self.result = fn(*given, **kwargs)
        finally:
            mode.differentiated = before

    def finish(self) -> Recorded:
        """Release the placeholders: they become aliases of the arguments."""
        for x in self.inputs:
            x.note().is_differentiated = False
        return self

    def gradients(self, outputs: Sequence[Value], upstreams: Sequence[Value]) -> list[Value]:
        """Compute the gradients of all inputs."""
        with walking(True, True):
            found = gradients(outputs, upstreams, self.inputs)
        return [fill_like(x, 0.0) if g is None else g for x, g in zip(self.inputs, found, strict=True)]

    def arranged(self, values: Sequence[Value], single: bool) -> Any:
        """Arrange gradients in the structure of the arguments."""
        found = iter([wrap(v) for v in freed(values)])
        made = tuple([tree.unflatten(shape, [next(found) for _ in range(_count(shape))]) for shape in self.shapes])
        return made[0] if single else made

    def result_of(self, x: Any) -> Any:
        """Convert results to those that the caller gets."""

        def outside(y: Any) -> Any:
            return wrap(freed([y.value])[0]) if isinstance(y, Handle) else y

        return tree.mapped(outside, x)


def _count(shape: tree.Tree) -> int:
    return 1 if shape is tree.LEAF else sum(_count(part) for part in shape.parts)


# --- reverse -----------------------------------------------------------------------------------


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Transform a scalar-valued function to one that returns its value and its gradient by some arguments.

    >>> import tilegrad as tg
    >>> value_and_grad(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
    (tensor(9.), tensor([ 3., 12.]))
    """
    check_callable(fn, "value_and_grad")

    @wraps(fn)
    def both(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, args, "grad")
        recorded = Recorded(fn, args, kwargs, numbers, "grad")
        result = recorded.result
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError("grad: with has_aux=True the function returns a pair (value, anything else)")
            result = result[0]
        value = _single(result)
        if value.tracked:
            found = recorded.gradients([value], [fill(1.0, value.shape, value.dtype, value.device)])
        else:
            found = [fill_like(x, 0.0) for x in recorded.inputs]
        recorded.finish()
        made = recorded.result_of(recorded.result), recorded.arranged(found, isinstance(argnums, int))
        compute_together([x for x in tree.flatten(made)[0] if isinstance(x, Handle) and not x.value.tracked])
        return made

    return both


def _single(result: Any) -> Value:
    if not isinstance(result, Handle):
        raise GradientError(
            f"grad: the function must return a tensor, not {kind_of(result)}; for a pair give has_aux=True"
        )
    value = result.value
    if value.shape:
        raise GradientError(
            f"grad: the function returns a tensor of shape {shown(value.shape)}; only that of a single number is a "
            "gradient. Reduce it, as in .sum(), or use vjp"
        )
    return value


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Transform a scalar-valued function to its gradient by some arguments.

    >>> import tilegrad as tg
    >>> grad(grad(lambda x: x**3))(tg.tensor(2.0))
    tensor(12.)
    """
    check_callable(fn, "grad")
    both = value_and_grad(fn, argnums, has_aux)

    @wraps(fn)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, found = both(*args, **kwargs)
        return (found, result[1]) if has_aux else found

    return gradient


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return fn's results, and a function from their upstream gradients to the gradients of the arguments.

    >>> import tilegrad as tg
    >>> y, pull = vjp(lambda x: x * x, tg.tensor([1.0, 2.0]))
    >>> pull(tg.tensor([1.0, 10.0]))
    (tensor([ 2., 40.]),)
    """
    check_callable(fn, "vjp")
    recorded = Recorded(fn, primals, {}, range(len(primals)), "vjp").finish()
    result, extra = recorded.result if has_aux else (recorded.result, None)
    leaves, shape = tree.flatten(result)

    def pull(upstream: Any) -> Any:
        given, its_shape = tree.flatten(upstream)
        if its_shape != shape:
            raise ArgumentError("vjp: the upstream gradients have another form than the results of the function")
        pairs = [(y.value, u.value) for y, u in zip(leaves, given, strict=True) if y.value.tracked]
        for y, u in pairs:
            if y.shape != u.shape:
                raise ShapeError(f"vjp: an upstream gradient has shape {shown(u.shape)}, the result {shown(y.shape)}")
        return recorded.arranged(recorded.gradients([y for y, _ in pairs], [u for _, u in pairs]), False)

    outside = recorded.result_of(result)
    return (outside, pull, recorded.result_of(extra)) if has_aux else (outside, pull)


# --- forward -----------------------------------------------------------------------------------


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Return fn's results, and their derivatives along the tangents.

    >>> import tilegrad as tg
    >>> jvp(lambda x: x * x, (tg.tensor(3.0),), (tg.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    check_callable(fn, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError("jvp: primals and tangents are tuples, one entry for each argument: jvp(fn, (x,), (v,))")
    recorded = Recorded(fn, primals, {}, range(len(primals)), "jvp")
    result, extra = recorded.result if has_aux else (recorded.result, None)
    moves, shape = tree.flatten(tuple(tangents))
    if shape != tree.flatten(tuple(primals))[1]:
        raise ArgumentError("jvp: the tangents have another form than the primals")
    for x, v in zip(recorded.inputs, moves, strict=True):
        if x.shape != v.value.shape:
            raise ShapeError(f"jvp: a tangent has shape {shown(v.value.shape)}, its primal {shown(x.shape)}")
    leaves, form = tree.flatten(result)
    with walking(True, True):
        found = pushed([y.value for y in leaves], recorded.inputs, [v.value for v in moves])
    changes = [fill_like(y.value, 0.0) if d is None else d for y, d in zip(leaves, found, strict=True)]
    recorded.finish()
    tangent = tree.unflatten(form, map(wrap, freed(changes)))
    outside = recorded.result_of(result)
    return (outside, tangent, recorded.result_of(extra)) if has_aux else (outside, tangent)


# --- many at once ------------------------------------------------------------------------------


def vmap(fn: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """Transform a function of single entries to one that maps over a dimension of its arguments.

    >>> import tilegrad as tg
    >>> vmap(tg.dot)(tg.ones(3, 4), tg.ones(3, 4))
    tensor([4., 4., 4.])
    """
    check_callable(fn, "vmap")

    @wraps(fn)
    def each(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ArgumentError(f"vmap: in_dims has {len(dims)} entries for {len(args)} arguments")
        wholes: dict[Value, Value] = {}
        given = [_entry(x, dim, wholes) for x, dim in zip(args, dims, strict=True)]
        if not wholes:
            raise ArgumentError(
                "vmap: in_dims is None for all arguments; at least one must have a dimension to map over"
            )
        sizes = {whole.shape[0] for whole in wholes.values()}
        if len(sizes) > 1:
            raise ShapeError(
                f"vmap: the mapped dimensions have different sizes: {', '.join(map(str, sorted(sizes, key=str)))}"
            )
        with watched() as writes, on_stand_ins():
            leaves, shape = tree.flatten(fn(*given, **kwargs))
        values = [_result(y) for y in leaves]
        del given, leaves  # what the function made itself is gone now: what is left was there before
        writes.refuse(wholes)
        done = batch(values, wholes)
        places, form = _out_dims(out_dims, shape, len(values))
        moved = [moveaxis(v, 0, normal_axis(n, v.type.rank, "vmap")) for v, n in zip(done, places, strict=True)]
        return tree.unflatten(form, map(wrap, moved))

    return each


def _entry(x: Any, dim: Any, wholes: dict[Value, Value]) -> Any:
    """Make the argument for one entry, with placeholders for mapped tensors."""
    if dim is None:
        return x
    leaves, shape = tree.flatten(x)
    dims = [dim] * len(leaves) if isinstance(dim, int) else _dims_of(dim)
    if len(dims) != len(leaves):
        raise ArgumentError("vmap: an entry of in_dims has another form than its argument")
    return tree.unflatten(shape, [_placeholder(y, d, wholes) for y, d in zip(leaves, dims, strict=True)])


def _dims_of(dims: Any) -> list[int | None]:
    if isinstance(dims, dict):
        dims = tuple(dims.values())
    return [d for part in dims for d in (_dims_of(part) if isinstance(part, (tuple, list, dict)) else [part])]


def _placeholder(x: Any, dim: int | None, wholes: dict[Value, Value]) -> Any:
    if dim is None:
        return x
    if not isinstance(x, Handle):
        raise ArgumentError(
            f"vmap: only tensors are mapped over, not {kind_of(x)}; give in_dims=None for this argument"
        )
    value = x.value
    if not value.shape:
        raise ShapeError("vmap: a tensor without dimensions cannot be mapped over; give in_dims=None for this argument")
    whole = moveaxis(value, normal_axis(dim, len(value.shape), "vmap"), 0)
    one = Input(whole.type.with_shape(whole.shape[1:]))
    amend(one, tracked=value.tracked)
    wholes[one] = whole
    return wrap(one)


def _result(y: Any) -> Value:
    if not isinstance(y, Handle):
        raise ArgumentError(f"vmap: the function returned {kind_of(y)}; it must return tensors")
    return y.value


def _out_dims(dims: Any, shape: tree.Tree, count: int) -> tuple[list[int], tree.Tree]:
    if isinstance(dims, int):
        return [dims] * count, shape
    flat = [d for d in _dims_of(dims) if d is not None]
    if len(flat) != count:
        raise ArgumentError(f"vmap: out_dims has {len(flat)} entries for {count} results")
    return flat, shape


# --- memory for work ---------------------------------------------------------------------------


def checkpoint(
    fn: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """Call fn(*args) and recompute its intermediate values for the gradient instead of storing them; without arguments:
    return a function that does so. Random numbers are the same in the recomputation; PyTorch's settings make no
    difference.

    >>> import tilegrad as tg
    >>> x = tg.tensor([0.0, 1.0], requires_grad=True)
    >>> tg.checkpoint(lambda x: x.exp().exp(), x, use_reentrant=False).sum().backward()
    >>> x.grad
    tensor([ 2.7183, 41.1936])
    """
    check_callable(fn, "checkpoint")
    if args or kwargs:
        return _checkpointed(fn, args, kwargs)

    @wraps(fn)
    def later(*given: Any, **named: Any) -> Any:
        return _checkpointed(fn, given, named)

    return later


def _checkpointed(fn: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    given, _ = tree.flatten((tuple(args), kwargs))
    with on_stand_ins():
        leaves, shape = tree.flatten(fn(*args, **kwargs))
    inputs = [x.value for x in given if isinstance(x, Handle)]
    places = [n for n, y in enumerate(leaves) if isinstance(y, Handle) and y.value.tracked]
    made = checkpointed([leaves[n].value for n in places], inputs)
    found = list(leaves)
    for n, value in zip(places, made, strict=True):
        found[n] = wrap(value)
    return tree.unflatten(shape, found)


__all__ = ["checkpoint", "grad", "jvp", "value_and_grad", "vjp", "vmap"]
