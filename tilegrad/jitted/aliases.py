"""Recreate results that alias other tensors: arguments, captured tensors, views of them, views of other results.

A program allocates new memory for its outputs. What shares memory in the plain function is recreated from its base
after each call: the same tensor, or the same view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..ir.node import Node
from ..lazy.handle import Handle, alias, handle_on, view
from ..lazy.storage import Base, Move
from ..runtime.guarded import GuardedCall, packed
from ..tensor import Tensor
from .tracing import NoProgram, Trace


class Alias(Node):
    """A result that shares the memory of another tensor."""

    argument: int | None
    """The number of the argument that it aliases,"""
    result: int | None
    """or that of a result,"""
    outside: Any
    """or a captured tensor, or the base that it is a view of."""
    moves: tuple[Move, ...]
    """The moves that cut it from its base; without moves and not `detached` it is the very same tensor."""
    detached: bool
    hidden: bool

    def source(self, call: GuardedCall, leaves: Sequence[str], results: Mapping[int, str]) -> str:
        """Return source that makes it from the arguments and from the results before it."""
        if not self.moves and not self.detached and self.outside is None:
            return leaves[self.argument] if self.argument is not None else results[self.result]  # type: ignore[index]
        given = "()" if self.result is None else f"{{{self.result}: {results[self.result]}}}"
        return f"{call.bind('alias', self)}.made({packed(leaves)}, {given})"

    def made(self, leaves: Sequence[Any], results: Any) -> Any:
        """Make the result of one call."""
        whole = self.outside
        if self.argument is not None:
            whole = leaves[self.argument]
        elif self.result is not None:
            whole = results[self.result]
        if isinstance(whole, Base):
            whole = _on(whole)
        if self.detached:
            whole = alias(whole, self.hidden)
        for move in self.moves:
            whole = view(whole, move)
        return whole

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for aliases made in the same way, conservatively."""
        return self.argument, self.result, id(self.outside), len(self.moves), self.detached, self.hidden


def aliases(results: list[Any], arguments: Sequence[Tensor | None], trace: Trace, varies: bool) -> dict[int, Alias]:
    """Find the aliases among the results; a common base that is not a result itself becomes a further one."""
    numbers = {id(x): n for n, x in enumerate(arguments) if x is not None}
    bases = {n: x._base for n, x in enumerate(arguments) if x is not None}
    storages = {base.storage: n for n, base in bases.items() if base is not None}
    found: dict[int, Alias] = {}
    twice: dict[int, Alias] = {}
    first: dict[int, int] = {}
    local: dict[Any, list[int]] = {}
    for n, x in enumerate(results):
        if not isinstance(x, Handle):
            continue
        if id(x) in numbers:
            found[n] = Alias(numbers[id(x)], None, None, (), False, False)
        elif id(x) in first:
            twice[n] = Alias(None, first[id(x)], None, (), False, False)
        elif id(x) not in trace.own:
            found[n] = Alias(None, None, x, (), False, False)
        elif x._base is not None:
            storage = x._base.storage
            if storage in storages:
                found[n] = _cut(x, arguments[storages[storage]], (storages[storage], None, None))
            elif storage in trace.own_storages:
                local.setdefault(storage, []).append(n)
            else:
                base = trace.captured[storage].base
                found[n] = _cut(x, _on(base), (None, None, base))
        first.setdefault(id(x), n)
    for sharing in local.values():
        found |= _among(results, sharing, trace)
    if varies and any(a.moves for a in found.values()):
        raise ArgumentError("jit: a view among the results is cut for sizes that are known")
    return found | twice  # in this order: what is there twice may itself be a view


def _cut(x: Any, whole: Any, place: tuple[int | None, int | None, Any]) -> Alias:
    base = whole._base
    detached = x._base is not base or (whole.own_value().tracked and not x.own_value().tracked)
    if detached and x.own_value().tracked:
        raise NoProgram("two results share memory, each with a history of its own")
    return Alias(*place, x._moves[len(whole._moves) :], detached, x._base.hidden)


def _on(base: Base) -> Any:
    """Return a tensor on the whole of a base."""
    whole: Any = handle_on(base.value)
    whole._base = base
    return whole


def _among(results: list[Any], sharing: list[int], trace: Trace) -> dict[int, Alias]:
    """Find results that share memory allocated by the function."""
    if len(sharing) < 2:
        return {}
    recorded = [n for n in sharing if results[n].own_value().tracked] or sharing  # others are detached from these
    owner = next((n for n in recorded if not results[n]._moves), None)
    if owner is None:
        owner = len(results)
        results.append(_on(results[recorded[0]]._base))
        trace.made(results[owner])
    return {n: _cut(results[n], results[owner], (None, owner, None)) for n in sharing if n != owner}
