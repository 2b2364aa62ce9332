"""The passes from graph to graph, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..ir.graph import Graph
from ..runtime.target_model import TargetModel
from .column_sums import across
from .embedding_matmul import looked_up
from .fold_movement import fold
from .implicit_gemm import laid
from .move_casts import casts
from .pool_gradient import sooner
from .share import share
from .simplify import simplify
from .split_reductions import split

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


def fitted(change: Callable[[Graph], Graph], target: TargetModel) -> Callable[[Graph], Graph]:
    """A pass as it is for a device."""
    return partial(change, target=target) if change in (looked_up, laid, across, split) else change
