"""Define data-dependent control flow: `cond`, `while_loop`, `scan`. They differentiate, and jit traces them.

Outside of jit they read the data and are Python's own `if` and `for`; a long `scan` is computed in chunks
(`chunked_scan.py`). Inside, both branches of a `cond` are computed and one is selected; a `while_loop` has a bound on
its iterations, and its state is frozen once it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .chunked_scan import LENGTH, in_memory, scan_in_chunks
from .errors import ArgumentError, ShapeError, TraceError, check_callable
from .functional import stack, where
from .functions.creation import as_tensor, zeros
from .lazy.handle import is_tracing, state
from .tensor import Tensor
from .tree import flatten, mapped, unflatten


def cond(condition: Tensor | bool, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """Return `true_fn(*operands)` if the condition (one element) holds, else `false_fn(*operands)`."""
    check_callable(true_fn, "cond")
    check_callable(false_fn, "cond")
    known = _known(condition)
    if known is not None:
        return true_fn(*operands) if known else false_fn(*operands)
    with _changing_nothing("cond"):
        holds = _single(condition, "cond")
        made = true_fn(*_gated(holds, operands)), false_fn(*_gated(holds.logical_not(), operands))
        return _chosen(holds, *made, "cond")


def while_loop(
    condition: Callable[..., Any], body: Callable[..., Any], initial: Any, max_steps: int | None = None
) -> Any:
    """Apply `body` to the state repeatedly while `condition(state)` holds.

    In a jitted function, and under `vmap`, `max_steps` bounds the number of iterations; the state of a finished loop is
    frozen.
    """
    check_callable(condition, "while_loop")
    check_callable(body, "while_loop")
    steps = 0
    while max_steps is None or steps < max_steps:
        going = condition(initial)
        known = _known(going)
        if known is None:
            break
        if not known:
            return initial
        initial = _checked(initial, body(initial), "while_loop")
        steps += 1
    if max_steps is None:
        raise TraceError(
            "while_loop in a jitted function, or under vmap, needs to know how often it runs at most: "
            "while_loop(condition, body, initial, max_steps=100). Without a bound, call it outside of jit"
        )
    with _changing_nothing("while_loop"):
        for _ in range(steps, max_steps):
            going = _single(condition(initial), "while_loop")
            updated = _checked(initial, body(_gated(going, initial)), "while_loop")
            initial = _chosen(going, updated, initial, "while_loop")
    return initial


def _known(condition: Any) -> bool | None:
    """Evaluate a condition; None if it depends on placeholders."""
    if isinstance(condition, Tensor) and is_tracing():
        return None
    try:
        return bool(condition)
    except TraceError:
        return None


def _changing_nothing(op: str) -> AbstractContextManager[None]:
    """Reject writes to captured tensors within the block: they would happen whatever the condition is."""
    return nullcontext() if state.trace is None else state.trace.within(op)


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]], initial: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> Any:
    """Fold `carry, y = body(carry, x)` along the first axis of the tensors in `xs`; return the last carry and the
    stacked y.

    With `reverse` it starts at the end; each y is at the position of its x.
    """
    check_callable(body, "scan")
    leaves, structure = flatten(xs)
    if any(isinstance(x, Tensor) and not x.shape for x in leaves):
        raise ShapeError("scan: a tensor without dimensions has no first axis to go along; give initial what stays")
    lengths = {int(x.shape[0]) for x in leaves if isinstance(x, Tensor)} | ({length} if length is not None else set())
    if len(lengths) != 1:
        raise ShapeError(f"scan: the first axes have lengths {sorted(lengths)}; they must be one length")
    iterations = range(lengths.pop())
    if not iterations:
        return initial, _no_iterations(body, initial, unflatten(structure, map(_entry, leaves)))

    def some(count: int, carry: Any, leaves: Sequence[Any]) -> Any:
        made = []
        for n in reversed(range(count)) if reverse else range(count):
            x = unflatten(structure, [leaf[n] if isinstance(leaf, Tensor) else leaf for leaf in leaves])
            updated, y = _pair(body(carry, x))
            carry = _checked(carry, updated, "scan")
            made.append(y)
        if reverse:
            made.reverse()
        return carry, None if made[0] is None else mapped(lambda *ys: stack(ys), made[0], *made[1:])

    if len(iterations) > LENGTH and in_memory((initial, leaves)):
        return scan_in_chunks(some, initial, leaves, len(iterations), reverse)
    return some(len(iterations), initial, leaves)


def _entry(leaf: Any) -> Any:
    return zeros(leaf.shape[1:], dtype=leaf.dtype, device=leaf.device) if isinstance(leaf, Tensor) else leaf


def _no_iterations(body: Callable[[Any, Any], tuple[Any, Any]], initial: Any, x: Any) -> Any:
    """Stack no outputs: one iteration is recorded for its types, and not computed."""
    return mapped(lambda y: y.new_zeros((0, *y.shape)), _pair(body(initial, x))[1])


def _pair(turn: Any) -> tuple[Any, Any]:
    """Check that an iteration of a scan returned a pair."""
    if not isinstance(turn, (tuple, list)) or len(turn) != 2:
        raise ArgumentError(
            f"scan: the body gives a pair (carry, y), no {type(turn).__name__}: return (carry, None) if there is no y"
        )
    return turn[0], turn[1]


def _single(condition: Tensor | bool, op: str) -> Tensor:
    """Reshape an unknown condition to no dimensions."""
    made = as_tensor(condition)
    if made.numel() != 1:
        raise ShapeError(
            f"{op}: the condition has shape {list(made.shape)}; it must have one element: reduce it by .any() or "
            ".all(), or choose element by element with tilegrad.where"
        )
    return made.reshape(()).bool()


def _gated(holds: Tensor, tree: Any) -> Any:
    """Return the same tensors without gradients from a branch that is not taken (they may be NaN)."""

    def gated(x: Any) -> Any:
        return where(holds, x, x.detach()) if isinstance(x, Tensor) and x.requires_grad else x

    return mapped(gated, tree)


def _chosen(holds: Tensor, one: Any, other: Any, op: str) -> Any:
    """Select one of two trees of tensors by an unknown condition."""
    _checked(one, other, op)
    return mapped(lambda x, y: where(holds, x, y) if isinstance(x, Tensor) else x, one, other)


def _checked(before: Any, after: Any, op: str) -> Any:
    """Check that the new state has the structure and types of the old one."""
    kinds = [_kind(before), _kind(after)]
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"{op}: every turn (or branch) must give tensors of the same structure, shapes and dtypes; here {kinds[0]} "
            f"meets {kinds[1]}"
        )
    return after


def _kind(tree: Any) -> Any:
    return mapped(lambda x: f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__, tree)
