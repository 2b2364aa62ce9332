"""First calls on large tensors; `torch` is PyTorch or tilegrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .session import Session


def _first(session: Session, work: Callable[..., Any], *operands: Any) -> None:
    """Time the first two calls on operands in memory."""
    for x in operands:
        session.look(x.flatten()[0])
    session.begin(2)
    for _ in range(2):
        session.look(work(*operands).flatten()[0])


def _side(session: Session) -> int:
    return 16 if session.small else 4096


def add(torch: Any, session: Session) -> None:
    side = _side(session)
    _first(session, lambda x, y: x + y, session.normal(side, side), session.normal(side, side))


def exp(torch: Any, session: Session) -> None:
    side = _side(session)
    _first(session, torch.exp, session.normal(side, side))


def total(torch: Any, session: Session) -> None:
    side = _side(session)
    _first(session, torch.sum, session.normal(side, side))


def softmax(torch: Any, session: Session) -> None:
    side = _side(session)
    _first(session, lambda x: torch.softmax(x, -1), session.normal(side, side))


def layer_norm(torch: Any, session: Session) -> None:
    side = _side(session)
    operands = [session.normal(side, side), session.normal(side), session.normal(side)]
    _first(session, lambda x, w, b: torch.nn.functional.layer_norm(x, (side,), w, b), *operands)


def matmul(torch: Any, session: Session) -> None:
    side = 16 if session.small else 1024
    _first(session, lambda x, y: x @ y, session.normal(side, side), session.normal(side, side))


def convolution(torch: Any, session: Session) -> None:
    batch, channels, filters = (1, 3, 4) if session.small else (16, 96, 256)
    operands = session.normal(batch, channels, 26, 26), session.normal(filters, channels, 5, 5)
    _first(session, lambda x, w: torch.nn.functional.conv2d(x, w, padding=2), *operands)
