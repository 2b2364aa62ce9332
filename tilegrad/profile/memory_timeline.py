"""Write the live memory over time to a file: as data, or as a page with a picture."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from ..errors import ArgumentError
from .files import write_whole
from .recorder import Sample
from .timeline import Timeline

WIDTH, HEIGHT = 900, 240


def write_memory_timeline(timeline: Timeline, path: Path, device: str | None) -> None:
    """Write `.json` (lists of microseconds and of bytes) or `.html`."""
    samples = [s for s in timeline.samples if device is None or s.device.startswith(device.removesuffix(":0"))]
    times, live = [(s.at - timeline.began) / 1e3 for s in samples], [s.live for s in samples]
    match path.suffix:
        case ".json":
            write_whole(path, json.dumps([times, live]))
        case ".html":
            write_whole(path, _page(samples, timeline.began))
        case other:
            raise ArgumentError(f"export_memory_timeline: a file ends in .json or .html, not {other!r}")


def _page(samples: list[Sample], began: int) -> str:
    peak, span = max((s.live for s in samples), default=0), max((s.at - began for s in samples), default=1)
    title = f"live memory: at most {peak:,} bytes in {span / 1e6:.3f} ms"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<body style="font-family: sans-serif"><h1 style="font-size: 1rem">{escape(title)}</h1>'
        f"{memory_picture(samples, began)}</body></html>\n"
    )


def memory_picture(samples: list[Sample], began: int) -> str:
    """Draw the live memory over time as SVG, in steps."""
    peak, span = max((s.live for s in samples), default=0), max((s.at - began for s in samples), default=1)
    points, height = [], float(HEIGHT)
    for s in samples:
        x, y = WIDTH * (s.at - began) / max(span, 1), HEIGHT - HEIGHT * s.live / max(peak, 1)
        points += [f"{x:.1f},{height:.1f}", f"{x:.1f},{y:.1f}"]
        height = y
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'style="max-width: 100%; background: #8881">'
        f'<polyline fill="none" stroke="#46c" stroke-width="2" points="{" ".join(points)}"/></svg>\n'
    )
