"""Memoise methods that analyse expressions, which share subexpressions and names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ....ir import tile as ir

Question = TypeVar("Question", bound=Callable[..., Any])
Answers = dict[tuple[Any, ...], tuple[Any, ir.Tile]]
"""Answers by method, name or identity of the expression, and other arguments; keeps the expression alive."""


def once(question: Question) -> Question:
    """Memoise a method of an object with `answers`; definitions of names must not change afterwards."""
    called = question.__name__

    @wraps(question)
    def asked(self: Any, x: ir.Tile, *more: Any) -> Any:
        key = (called, x.name if isinstance(x, ir.Name) else id(x), *more)
        known = self.answers.get(key)
        if known is None:
            known = self.answers[key] = question(self, x, *more), x
        return known[0]

    return cast(Question, asked)
