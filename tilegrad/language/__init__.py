"""The tile language: user-written kernels in Triton's notation. `import tilegrad.language as tl`."""

from __future__ import annotations

from . import core, standard
from .core import *  # noqa: F403
from .extra import libdevice
from .kernel import kernel
from .standard import *  # noqa: F403
from .tuning import Config, autotune, heuristics

__all__ = ["Config", "autotune", "heuristics", "kernel", "libdevice"]
__all__ += core.__all__
__all__ += standard.__all__


def __dir__() -> list[str]:
    return __all__
