"""Compute full derivatives of functions: `jacrev`, `jacfwd`, `hessian`, by `vmap` over a basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from . import tree
from .autograd.engine import walking
from .errors import ArgumentError, check_callable
from .functions.promotion import kind_of
from .ir.graph import Value
from .lazy.handle import Handle, wrap
from .ops.broadcasting import fill_like, reshape
from .ops.creation import eye
from .transform.autodiff import jvp as pushed
from .transforms import Recorded, argument_numbers, vmap


def jacrev(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Transform a function to one that computes its Jacobian row by row (reverse mode).

    For each result it returns one tensor per differentiated argument: the shape of the result, then the argument's.
    With `has_aux` the function returns a pair, and so does this one: derivatives, and the rest.

    >>> import tilegrad as tg
    >>> jacrev(lambda x: x * x.sum())(tg.tensor([1.0, 2.0]))
    tensor([[4., 1.],
            [2., 5.]])
    """
    check_callable(fn, "jacrev")

    @wraps(fn)
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, args, "jacrev")
        recorded = Recorded(fn, args, kwargs, numbers, "jacrev").finish()
        leaves, shape, extra = _results(recorded, has_aux, "jacrev")
        given, form = _inputs(recorded, isinstance(argnums, int))

        def rows(y: Value) -> Any:
            def pull(upstream: Any) -> tuple[Any, ...]:
                return tuple(map(wrap, recorded.gradients([y], [upstream.value]) if y.tracked else zeros))

            zeros = [fill_like(x, 0.0) for x in given]
            found = vmap(pull)(wrap(_basis(y)))
            shaped = [row.reshape(*y.shape, *x.shape) for row, x in zip(found, given, strict=True)]
            return tree.unflatten(form, [recorded.result_of(row) for row in shaped])

        made = tree.unflatten(shape, map(rows, leaves))
        return (made, recorded.result_of(extra)) if has_aux else made

    return derivatives


def jacfwd(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Transform a function to one that computes its Jacobian column by column (forward mode): for few inputs.

    >>> import tilegrad as tg
    >>> jacfwd(lambda x: tg.stack([x, x * x, x**3]))(tg.tensor(2.0))
    tensor([ 1.,  4., 12.])
    """
    check_callable(fn, "jacfwd")

    @wraps(fn)
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, args, "jacfwd")
        recorded = Recorded(fn, args, kwargs, numbers, "jacfwd").finish()
        leaves, shape, extra = _results(recorded, has_aux, "jacfwd")
        given, form = _inputs(recorded, isinstance(argnums, int))

        def columns(x: Value) -> Any:
            def push(tangent: Any) -> tuple[Any, ...]:
                with walking(True, True):
                    moved = pushed(leaves, [x], [tangent.value])
                return tuple(wrap(fill_like(y, 0.0) if d is None else d) for y, d in zip(leaves, moved, strict=True))

            found = vmap(push, out_dims=-1)(wrap(_basis(x)))
            return [recorded.result_of(c.reshape(*y.shape, *x.shape)) for c, y in zip(found, leaves, strict=True)]

        by_input = list(map(columns, given))
        made = tree.unflatten(shape, [tree.unflatten(form, [c[n] for c in by_input]) for n in range(len(leaves))])
        return (made, recorded.result_of(extra)) if has_aux else made

    return derivatives


def _results(recorded: Recorded, has_aux: bool, op: str) -> tuple[list[Value], tree.Tree, Any]:
    """Run a function; return its results, their structure, and the auxiliary value."""
    result, extra = recorded.result, None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(f"{op}: with has_aux=True the function returns a pair (results, anything else)")
        result, extra = result
    leaves, shape = tree.flatten(result)
    for y in leaves:
        if not isinstance(y, Handle):
            raise ArgumentError(f"{op}: the function returned {kind_of(y)}; it must return tensors")
    return [y.value for y in leaves], shape, extra


def _inputs(recorded: Recorded, single: bool) -> tuple[list[Value], tree.Tree]:
    """List the differentiated values, with their structure: that of one argument, or a tuple of several."""
    shapes = recorded.shapes
    return recorded.inputs, shapes[0] if single else tree.Tree(tuple, (), tuple(shapes))


def _basis(x: Value) -> Value:
    """Stack all tensors of one type that are 1 at one position and 0 elsewhere."""
    count = x.type.count
    return reshape(eye(count, count, x.dtype, x.device), (count, *x.shape))


def jacobian(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Transform a function to one that computes its Jacobian: the shape of the result, then the argument's."""
    return jacrev(fn, argnums)


def hessian(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Transform a function to one that computes its Hessian.

    >>> import tilegrad as tg
    >>> hessian(lambda x: (x**3).sum())(tg.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(fn, argnums), argnums)


__all__ = ["hessian", "jacfwd", "jacobian", "jacrev"]
