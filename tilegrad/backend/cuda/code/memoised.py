"""Answer questions about expressions once: expressions share parts, and names stand for expressions that do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ....ir import tile as ir

Question = TypeVar("Question", bound=Callable[..., Any])
Answers = dict[tuple[Any, ...], tuple[Any, ir.Tile]]
"""By the question, the expression's name or identity, and what else was asked; the expression is kept alive here."""


def once(question: Question) -> Question:
    """The method of an object with `answers` that knows what it answered before.

    What names stand for must not change any more, nor must what was answered.
    """
    called = question.__name__

    @wraps(question)
    def asked(self: Any, x: ir.Tile, *more: Any) -> Any:
        key = (called, x.name if isinstance(x, ir.Name) else id(x), *more)
        known = self.answers.get(key)
        if known is None:
            known = self.answers[key] = question(self, x, *more), x
        return known[0]

    return cast(Question, asked)
