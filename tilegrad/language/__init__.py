"""The tile language: user-written kernels in Triton's notation. `import tilegrad.language as tl`."""

from __future__ import annotations

from ..tiles.read import core, standard
from ..tiles.read.core import *  # noqa: F403
from ..tiles.read.standard import *  # noqa: F403
from .extra import libdevice
from .flatten_arguments import TensorDescriptor
from .kernel import kernel
from .tuning import Config, autotune, heuristics

__all__ = ["Config", "TensorDescriptor", "autotune", "heuristics", "kernel", "libdevice"]
__all__ += core.__all__
__all__ += standard.__all__


def __dir__() -> list[str]:
    return __all__
