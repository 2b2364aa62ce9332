"""Choices and loops that depend on data: `cond`, `while_loop`, `scan`. They differentiate, and jit traces them.

Outside of jit they look at the data and are Python's own `if` and `for`. Inside, both branches of a `cond` are
computed and one is taken; a `while_loop` says how often it runs at most, and stands still when it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import ArgumentError, ShapeError, TraceError, check_callable
from .functional import stack, where
from .handle import state
from .tensor import Tensor
from .tree import flatten, mapped, unflatten


def cond(condition: Tensor | bool, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """`true_fn(*operands)` where the condition (one element) holds, else `false_fn(*operands)`."""
    check_callable(true_fn, "cond")
    check_callable(false_fn, "cond")
    if not isinstance(condition, Tensor) or state.trace is None:
        return true_fn(*operands) if condition else false_fn(*operands)
    return _chosen(condition, true_fn(*operands), false_fn(*operands), "cond")


def while_loop(
    condition: Callable[..., Any], body: Callable[..., Any], initial: Any, max_steps: int | None = None
) -> Any:
    """`body` applied to the state again and again, as long as `condition(state)` holds.

    In a jitted function `max_steps` bounds the number of steps; a state that is done is not changed any more.
    """
    check_callable(condition, "while_loop")
    check_callable(body, "while_loop")
    if state.trace is None:
        steps = 0
        while bool(condition(initial)) and (max_steps is None or steps < max_steps):
            initial = _checked(initial, body(initial), "while_loop")
            steps += 1
        return initial
    if max_steps is None:
        raise TraceError(
            "while_loop in a jitted function needs to know how often it runs at most: while_loop(condition, body, "
            "initial, max_steps=100). Without a bound, call it outside of jit"
        )
    for _ in range(max_steps):
        initial = _chosen(condition(initial), _checked(initial, body(initial), "while_loop"), initial, "while_loop")
    return initial


def scan(body: Callable[[Any, Any], tuple[Any, Any]], initial: Any, xs: Any, length: int | None = None) -> Any:
    """`carry, y = body(carry, x)` along the first axis of the tensors in `xs`: the last carry, and all y, stacked."""
    check_callable(body, "scan")
    leaves, structure = flatten(xs)
    if any(isinstance(x, Tensor) and not x.shape for x in leaves):
        raise ShapeError("scan: a tensor without dimensions has no first axis to go along; give initial what stays")
    lengths = {int(x.shape[0]) for x in leaves if isinstance(x, Tensor)} | ({length} if length is not None else set())
    if len(lengths) != 1:
        raise ShapeError(f"scan: the first axes have lengths {sorted(lengths)}; they must be one length")
    made = []
    for n in range(lengths.pop()):
        x = unflatten(structure, [leaf[n] if isinstance(leaf, Tensor) else leaf for leaf in leaves])
        carry, y = _pair(body(initial, x))
        initial = _checked(initial, carry, "scan")
        made.append(y)
    if not made or made[0] is None:
        return initial, None
    return initial, mapped(lambda *ys: stack(ys), made[0], *made[1:])


def _pair(turn: Any) -> tuple[Any, Any]:
    """What one turn of a scan gives."""
    if not isinstance(turn, (tuple, list)) or len(turn) != 2:
        raise ArgumentError(
            f"scan: the body gives a pair (carry, y), no {type(turn).__name__}: return (carry, None) if there is no y"
        )
    return turn[0], turn[1]


def _chosen(condition: Tensor, one: Any, other: Any, op: str) -> Any:
    """One of two trees of tensors, by a condition that is not known yet."""
    _checked(one, other, op)
    if isinstance(condition, Tensor) and condition.numel() != 1:
        raise ShapeError(
            f"{op}: the condition has shape {list(condition.shape)}; it must have one element: reduce it by .any() or "
            ".all(), or choose element by element with tilegrad.where"
        )
    return mapped(lambda x, y: where(condition, x, y) if isinstance(x, Tensor) else x, one, other)


def _checked(before: Any, after: Any, op: str) -> Any:
    """What comes after, if it is of the kind of what was before."""
    kinds = [_kind(before), _kind(after)]
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"{op}: every turn (or branch) must give tensors of the same structure, shapes and dtypes; here {kinds[0]} "
            f"meets {kinds[1]}"
        )
    return after


def _kind(tree: Any) -> Any:
    return mapped(lambda x: f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__, tree)
