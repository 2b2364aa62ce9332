"""Operators of one's own: declared by a signature, with a reference, kernels, a gradient, and checks of all of them."""

from __future__ import annotations

from .operator import Operator, op
from .registry import operators

__all__ = ["Operator", "op", "operators"]
