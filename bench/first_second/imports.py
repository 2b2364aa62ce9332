"""A program that only imports its library."""

from typing import Any

from .session import Session


def nothing(torch: Any, session: Session) -> None:
    session.look(0.0)
