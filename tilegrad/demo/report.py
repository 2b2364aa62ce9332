"""Write the report of the demonstration: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from ..profile import Explanation
from ..profile import document as html
from ..profile.diagram import svg
from ..profile.measure import duration
from ..profile.page import sections
from .training import BATCH, HIDDEN, Tested, Trained

WIDTH, HEIGHT, LEFT, BELOW = 640, 220, 44, 26
MOST_WRONG = 24


def report(trained: Trained, tested: Tested, explanation: Explanation, seed: int) -> str:
    """Return the whole page."""
    parts = {
        "learning": ("Learning", learning(trained)),
        "reading": ("Reading", f'<div class="pair">{confusion(tested)}<div>{mistakes(tested)}</div></div>'),
        **sections(explanation),
    }
    whole = explanation.measured.whole
    facts = {
        "of unseen digits read right": f"{100 * tested.accuracy:.1f} %",
        "steps": f"{trained.steps:,}",
        "training": duration(trained.seconds),
        "a step": duration(whole.seconds),
        "kernels in a step": str(len(explanation.kernels)),
    }
    if whole.share:
        facts["of the machine's limit"] = f"{100 * whole.share:.0f} %"
    words = (
        f"A network of 64-{HIDDEN}-{HIDDEN}-10 neurons learned to read handwritten digits from 1,437 images in batches "
        f"of {BATCH} (seed {seed}). Forward, backward and the update of all parameters run as one program; this page "
        "shows how that program came about."
    )
    head = f"<header><h1>Handwritten digits <small>tilegrad demo</small></h1><p>{words}</p>{html.cards(facts)}</header>"
    body = "\n".join(f'<h2 id="{name}">{escape(title)}</h2>\n{inside}' for name, (title, inside) in parts.items())
    links = {title: name for name, (title, _) in parts.items()}
    note = (
        "Written by python -m tilegrad demo; this file needs nothing but itself. Images: Optical Recognition of "
        "Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0."
    )
    return html.document("tilegrad demo: handwritten digits", links, f"{head}\n<main>{body}</main>", note)


def learning(trained: Trained) -> str:
    """Plot the loss of every step, and the test accuracy after every epoch."""
    caption = f"The loss of each of the {trained.steps:,} steps, and the percentage of unseen digits read right."
    accuracy = [100 * s for s in trained.scores]
    return (
        f'<div class="pair"><figure>{curve(trained.losses, "step")}</figure>'
        f'<figure>{curve(accuracy, "epoch", "second")}</figure></div><p class="soft">{caption}</p>'
    )


def curve(values: Sequence[float], axis: str, style: str = "") -> str:
    """Plot a line through values, with its axes.

    >>> curve([1.0, 0.5], "step").count("<path")
    1
    """
    finite = [v for v in values if np.isfinite(v)] or [0.0]
    low, high = (0.0, max(finite)) if min(finite) < 0.5 * max(finite) else (min(finite), max(finite))
    span = (high - low) or 1.0
    across = (WIDTH - LEFT - 10) / max(1, len(values) - 1)
    parts = []
    for n in range(5):
        y = 8 + (HEIGHT - 8 - BELOW) * n / 4
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 8}" y2="{y:.1f}"/>')
        label = f"{high - span * n / 4:.3g}"
        parts.append(f'<text class="soft" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    points = [
        f"{LEFT + n * across:.1f} {8 + (HEIGHT - 8 - BELOW) * (high - v) / span:.1f}"
        for n, v in enumerate(values)
        if np.isfinite(v)
    ]
    parts.append(f'<path class="curve {style}" d="M{"L".join(points)}"/>')
    for n in sorted({0, (len(values) - 1) // 2, len(values) - 1}):
        x = LEFT + n * across
        parts.append(f'<text class="soft" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{n + 1}</text>')
    parts.append(f'<text class="soft" x="{WIDTH - 60}" y="{HEIGHT - 34}">{axis}</text>')
    return svg(WIDTH, HEIGHT, "".join(parts), "fit")


def confusion(tested: Tested) -> str:
    """Return the table of the confusion matrix."""
    counts = tested.confusion()
    cell = 30
    parts = []
    for n in range(10):
        middle = (n + 1.5) * cell
        parts.append(f'<text class="soft" x="{middle}" y="20" text-anchor="middle">{n}</text>')
        parts.append(f'<text class="soft" x="15" y="{middle + 4}" text-anchor="middle">{n}</text>')
    for (row, column), count in np.ndenumerate(counts):
        share = count / max(1, counts[row].sum())
        colour = 150 if row == column else 10
        strength = 0.0 if not count else 0.25 + 0.75 * share if row == column else min(1.0, 0.35 + 4 * share)
        x, y = (column + 1) * cell, (row + 1) * cell
        parts.append(
            f"<g><title>{count} of {counts[row].sum()} images of {row} taken for {column}</title>"
            f'<rect class="box" style="--hue:{colour};fill-opacity:{strength:.2f};stroke-opacity:.25" '
            f'x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" rx="4"/>'
            + (f'<text x="{x + 14}" y="{y + 18}" text-anchor="middle">{count}</text>' if count else "")
            + "</g>"
        )
    caption = "Rows: what a digit is. Columns: what it was taken for."
    return f"<figure>{svg(11 * cell, 11 * cell, ''.join(parts), 'fit')}<figcaption>{caption}</figcaption></figure>"


def mistakes(tested: Tested) -> str:
    """Show the images that were misclassified."""
    wrong = np.flatnonzero(tested.guesses != tested.labels)[:MOST_WRONG]
    if not len(wrong):
        return '<p class="soft">No digit was read wrong.</p>'
    images = []
    for n in wrong.tolist():
        parts = [
            f'<rect class="ink" x="{8 * x}" y="{8 * y}" width="8" height="8" fill-opacity="{p:.2f}"/>'
            for (y, x), p in np.ndenumerate(tested.images[n].reshape(8, 8))
        ]
        words = f"{int(tested.labels[n])} as {int(tested.guesses[n])}"
        images.append(svg(76, 88, f'{"".join(parts)}<text x="32" y="80" text-anchor="middle">{words}</text>'))
    return f'<h3>Read wrong</h3><figure class="row">{"".join(images)}</figure>'
