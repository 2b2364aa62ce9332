"""Layers, activations and losses as functions, under PyTorch's names. Each is an expression of tensors:
what one of them costs is for the compiler to decide."""

from __future__ import annotations

from ...functions.declared import checking_arguments
from . import (
    activations,
    alignment,
    attending,
    convolutions,
    distances,
    dropouts,
    embeddings,
    fractional,
    heads,
    indexed_poolings,
    losses,
    margins,
    norms,
    paddings,
    poolings,
    resizing,
    sampling,
    unpooling,
)
from .activations import *  # noqa: F403
from .alignment import *  # noqa: F403
from .arguments import tensors_only
from .attending import *  # noqa: F403
from .convolutions import *  # noqa: F403
from .distances import *  # noqa: F403
from .dropouts import *  # noqa: F403
from .embeddings import *  # noqa: F403
from .fractional import *  # noqa: F403
from .heads import *  # noqa: F403
from .indexed_poolings import *  # noqa: F403
from .losses import *  # noqa: F403
from .margins import *  # noqa: F403
from .norms import *  # noqa: F403
from .paddings import *  # noqa: F403
from .poolings import *  # noqa: F403
from .resizing import *  # noqa: F403
from .sampling import *  # noqa: F403
from .unpooling import *  # noqa: F403

__all__ = [*activations.__all__]
__all__ += alignment.__all__
__all__ += attending.__all__
__all__ += convolutions.__all__
__all__ += distances.__all__
__all__ += dropouts.__all__
__all__ += embeddings.__all__
__all__ += fractional.__all__
__all__ += heads.__all__
__all__ += indexed_poolings.__all__
__all__ += losses.__all__
__all__ += margins.__all__
__all__ += norms.__all__
__all__ += paddings.__all__
__all__ += poolings.__all__
__all__ += resizing.__all__
__all__ += sampling.__all__
__all__ += unpooling.__all__

for _name in __all__:
    globals()[_name] = tensors_only(_name, checking_arguments(globals()[_name]))


def __dir__() -> list[str]:
    return __all__
