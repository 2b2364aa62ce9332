"""Memoise methods that analyse expressions, which share subexpressions and names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ....ir import tile as ir

Method = TypeVar("Method", bound=Callable[..., Any])
Memo = dict[tuple[Any, ...], tuple[Any, ir.Tile]]
"""Answers by method, name or identity of the expression, and other arguments; keeps the expression alive."""


def memoised(question: Method) -> Method:
    """Memoise a method of an object with `answers`; definitions of names must not change afterwards."""
    called = question.__name__

    @wraps(question)
    def wrapper(self: Any, x: ir.Tile, *arguments: Any) -> Any:
        key = (called, x.name if isinstance(x, ir.Name) else id(x), *arguments)
        known = self.memo.get(key)
        if known is None:
            known = self.memo[key] = question(self, x, *arguments), x
        return known[0]

    return cast(Method, wrapper)
