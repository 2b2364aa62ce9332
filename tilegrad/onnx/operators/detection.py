"""Operators of this family."""

from __future__ import annotations

from ..rules import Function

RULES: dict[str, Function] = {}
