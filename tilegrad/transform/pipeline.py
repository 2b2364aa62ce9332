"""The passes from graph to graph, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.graph import Graph
from ..runtime.grain import Grain
from .across import across
from .casts import casts
from .fold import fold
from .laid import laid
from .looked_up import looked_up
from .share import share
from .simplify import simplify
from .sooner import sooner
from .split import split

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold,
    simplify,
    looked_up,
    laid,
    share,
    sooner,
    casts,
    across,
    split,
)


def fitted(change: Callable[[Graph], Graph], grain: Grain) -> Callable[[Graph], Graph]:
    """A pass as it is for a device."""
    return partial(change, grain=grain) if change in (looked_up, laid, across, split) else change
