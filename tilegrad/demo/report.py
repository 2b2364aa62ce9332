"""Write the report of the demonstration: a page of the viewer with the training and the compiled step."""

from __future__ import annotations

import math
from base64 import b64encode

import numpy as np

from ..profile import Explanation
from ..profile.step_model import step_of
from ..profile.summary_writer import as_bytes, png
from ..viewer.model import PageMatrix, PageRun, Picture, page_of
from ..viewer.page import page
from .training import BATCH, HIDDEN, Tested, Trained

MAX_PICTURES = 24
"""Misclassified images that are shown."""
CREDIT = (
    "Images: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, "
    "1998, CC BY 4.0."
)


def report(trained: Trained, tested: Tested, explanation: Explanation, seed: int) -> str:
    """Return the whole page."""
    words = (
        f"A network of 64-{HIDDEN}-{HIDDEN}-10 neurons learned to read handwritten digits from 1,437 images in batches "
        f"of {BATCH} (seed {seed}): {100 * tested.accuracy:.1f} % of unseen digits are read right."
    )
    return page(
        page_of(
            "tilegrad demo: handwritten digits", steps=[step_of(explanation)],
            runs=[run_of(trained, tested, f"seed {seed}")], notes=[words, CREDIT],
        )
    )  # fmt: skip


def run_of(trained: Trained, tested: Tested, name: str) -> PageRun:
    """Describe the training: its curves, its mistakes and its confusion matrix."""
    per_epoch = trained.steps / max(1, len(trained.scores))
    rows = tested.confusion().astype(float).tolist()
    return PageRun(
        name=name,
        curves={
            "loss": [[n, None, x if math.isfinite(x) else None] for n, x in enumerate(trained.losses, 1)],
            "accuracy/unseen digits": [[round(n * per_epoch), None, x] for n, x in enumerate(trained.scores, 1)],
        },
        norms={},
        pictures=mistakes(tested, trained.steps),
        matrices=[
            PageMatrix(tag="confusion of unseen digits", step=trained.steps, labels=list("0123456789"), rows=rows)
        ],
        texts={},
    )


def mistakes(tested: Tested, step: int) -> list[Picture]:
    """Show the images that were misclassified."""
    found = []
    for n in np.flatnonzero(tested.guesses != tested.labels)[:MAX_PICTURES].tolist():
        image = as_bytes(tested.images[n].reshape(8, 8, 1))
        words = f"{int(tested.labels[n])} read as {int(tested.guesses[n])}"
        found.append(Picture(tag=words, step=step, png=b64encode(png(image)).decode()))
    return found
