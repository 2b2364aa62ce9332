"""Run a long scan in chunks of equal length: one program computes a chunk, and one its gradients.

Recorded as a whole, a scan of a thousand iterations is a program of a thousand iterations. In chunks, the program of
the first serves all others; only the carry between chunks is stored, and gradients recompute each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .functional import cat
from .ir.graph import Input, Value, topological
from .lazy.handle import Handle, state, wrap
from .ops.joint import Recompute, joint_outputs
from .tensor import Tensor
from .transform.autodiff import is_leaf
from .transform.checkpoint import recomputed_gradients
from .tree import flatten, mapped, unflatten

LENGTH = 32
"""Iterations of a chunk."""


def in_memory(tree: Any) -> bool:
    """Whether the tensors of a tree are in memory, or can be computed now."""
    return state.trace is None and _are_known([x.value for x in flatten(tree)[0] if isinstance(x, Handle)])


def _are_known(values: Sequence[Value]) -> bool:
    reached = topological(values, lambda v: v.buffer is not None)
    return all(v.buffer is not None or type(v) is not Input for v in reached)


def scan_in_chunks(
    some: Callable[[int, Any, Sequence[Any]], Any], carry: Any, leaves: Sequence[Any], count: int, reverse: bool
) -> Any:
    """Scan `some(count, carry, leaves)` over all chunks: return the last carry and all outputs."""
    from .lazy.realize import realize

    ends = [(start, min(start + LENGTH, count)) for start in range(0, count, LENGTH)]
    cut = [[x[a:b].clone() if isinstance(x, Tensor) else x for x in leaves] for a, b in ends]
    realize([x.value for parts in cut for x in parts if isinstance(x, Tensor)])
    made = []
    for (a, b), parts in reversed(list(zip(ends, cut, strict=True))) if reverse else zip(ends, cut, strict=True):
        carry, ys = _scan_chunk(partial(some, b - a), (carry, parts))
        made.append(ys)
    if reverse:
        made.reverse()
    return carry, None if made[0] is None else mapped(lambda *ys: cat(ys), made[0], *made[1:])


def _scan_chunk(fn: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Compute fn(*given) now. Gradients through it recompute it from its inputs."""
    from .lazy.realize import realize

    leaves, structure = flatten(given)
    values = [x.value for x in leaves if isinstance(x, Handle)]
    realize(values)
    stands = [_stand_in(x) for x in values]
    waiting = iter(stands)
    results, shape = flatten(
        fn(*unflatten(structure, [wrap(next(waiting)) if isinstance(x, Handle) else x for x in leaves]))
    )
    places = [n for n, y in enumerate(results) if isinstance(y, Handle) and y.value.tracked]
    for n, made in zip(places, _joined([results[n].value for n in places], values, stands), strict=True):
        results[n] = wrap(made)
    if _are_known(found := [y.value for y in results if isinstance(y, Handle)]):
        realize(found)
    return unflatten(shape, results)


def _joined(outputs: Sequence[Value], values: Sequence[Value], stands: Sequence[Value]) -> list[Value]:
    """Concatenate the outputs, with gradients computed chunk by chunk."""
    inside = set(stands)
    reached = topological(outputs, lambda v: v in inside or is_leaf(v))
    captured = [v for v in reached if v.tracked and is_leaf(v) and v not in inside]

    def rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
        from .lazy.realize import realize

        flowing = [(y, u) for y, u in zip(outputs, upstreams, strict=True) if u is not None]
        now = state.trace is None and _are_known([u for _, u in flowing])
        if now:
            realize([u for _, u in flowing])
        found = recomputed_gradients(flowing, {x: _stand_in(x) for x in (*stands, *captured)})
        if now:
            realize([g for g in found if g is not None])
        return found

    return joint_outputs(outputs, [*values, *captured], rule)


def _stand_in(value: Value) -> Value:
    """Return a value on the same memory, from which everything is recomputed."""
    made = Recompute(value, value)
    if value.buffer is not None:
        made.hold(value.buffer)
    return made
