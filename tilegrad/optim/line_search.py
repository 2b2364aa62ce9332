"""Search along a direction for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt
from typing import NamedTuple

from ..tensor import Tensor

DECREASE, CURVATURE = 1e-4, 0.9
MAX_EVALUATIONS = 25
"""Largest number of evaluations of the loss."""


class LinePoint(NamedTuple):
    at: float
    loss: float
    gradient: Tensor
    slope: float


def wolfe(
    evaluate: Callable[[float], tuple[float, Tensor, float]], first: float, loss: float, gradient: Tensor, slope: float
) -> tuple[float, float, Tensor]:
    """Return a step that satisfies the strong Wolfe conditions, its loss and its gradient."""
    start = before = LinePoint(0.0, loss, gradient, slope)
    t = first
    for n in range(MAX_EVALUATIONS):
        here = LinePoint(t, *evaluate(t))
        too_far = not isfinite(here.loss) or here.loss > loss + DECREASE * t * slope
        if too_far or (n and here.loss >= before.loss):
            return _between(evaluate, start, before, here, MAX_EVALUATIONS - n)
        if abs(here.slope) <= -CURVATURE * slope:
            return here[:3]
        if here.slope >= 0:
            return _between(evaluate, start, here, before, MAX_EVALUATIONS - n)
        t, before = min(10 * t, max(t + 0.01 * (t - before.at), _cubic(before, here))), here
    return before[:3]


def _between(
    evaluate: Callable[[float], tuple[float, Tensor, float]],
    start: LinePoint,
    low: LinePoint,
    high: LinePoint,
    tries: int,
) -> tuple[float, float, Tensor]:
    """Zoom in between a good step and one beyond the minimum."""
    for _ in range(tries):
        width = abs(high.at - low.at)
        if width * abs(start.slope) < 1e-12:
            break
        left, right = sorted((low.at, high.at))
        t = _cubic(low, high) if isfinite(high.loss) else (left + right) / 2
        t = min(max(t, left + 0.1 * width), right - 0.1 * width)
        here = LinePoint(t, *evaluate(t))
        if not isfinite(here.loss) or here.loss > start.loss + DECREASE * t * start.slope or here.loss >= low.loss:
            high = here
            continue
        if abs(here.slope) <= -CURVATURE * start.slope:
            return here[:3]
        if here.slope * (high.at - low.at) >= 0:
            high = low
        low = here
    return low[:3]


def _cubic(a: LinePoint, b: LinePoint) -> float:
    """Return the minimum of the cubic through two points with slopes; their midpoint, if it has none."""
    if a.at > b.at:
        a, b = b, a
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = first * first - a.slope * b.slope
    if square < 0 or not isfinite(square):
        return (a.at + b.at) / 2
    second = sqrt(square)
    below = b.slope - a.slope + 2 * second
    return (a.at + b.at) / 2 if below == 0 else b.at - (b.at - a.at) * ((b.slope + second - first) / below)
