"""Draw kernels beside the roofline of their device: arithmetic intensity against the rate that was reached."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ArgumentError
from ..runtime.bounds import operations_per_second
from ..runtime.device import known_devices
from .averages import Average
from .chart import Curve, chart

POINTS = 24
"""Points of the roof."""


def roofline(rows: Sequence[Average], device: str) -> str:
    """Draw an SVG of the kernels with known work and time, below the roof of memory bandwidth and arithmetic."""
    kernels = [
        a for a in rows if a.device == device and a.kind == "launch" and a.timed == a.count and a.flops and a.bytes
    ]
    limits = next((place.limits for place in known_devices() if place.name == device), {})
    bandwidth, peak = max((limits.get(k, 0.0) for k in ("read", "copy", "triad")), default=0.0), limits.get("fma", 0.0)
    if not kernels or not bandwidth or not peak:
        raise ArgumentError(f"roofline: no kernel of {device} has known work, time and limits")
    points = {f"{a.key} {a.module}".strip(): (a.flops / (a.bytes or 1), a.flops / a.self_time / 1e3) for a in kernels}
    low, high = min(x for x, _ in points.values()), max(x for x, _ in points.values())
    products = sorted({a.work.product for a in kernels if a.work is not None and a.work.product})
    first = limits.get("source", "measured limit")
    peaks = {first: peak} | {f"{p} products": operations_per_second(limits, p) or peak for p in products}
    ends = min(low, peak / bandwidth) / 2, max(high, *(p / bandwidth for p in peaks.values())) * 2
    roofs = [
        Curve(name, _roof(*ends, bandwidth, rate)) for name, rate in peaks.items() if rate != peak or name == first
    ]
    lines = [*roofs, *(Curve(name, [at], marks=True) for name, at in points.items())]
    title = f"roofline of {device}: {bandwidth / 1e9:.0f} GB/s, {peak / 1e9:.0f} GFLOP/s"
    return chart(title, lines, "operations per byte", "GFLOP/s", x_log=True, y_log=True)


def _roof(low: float, high: float, bandwidth: float, peak: float) -> list[tuple[float, float]]:
    steps = [low * (high / low) ** (n / (POINTS - 1)) for n in range(POINTS)]
    return [(x, min(peak, x * bandwidth) / 1e9) for x in sorted([*steps, peak / bandwidth])]
