"""Define `tg.cpp`: C++ functions, compiled on first use and called from Python.

>>> import tilegrad as tg
>>> tg.cpp.include.endswith("include")
True
"""

from __future__ import annotations

import os
from typing import Any

from .foreign.build import INCLUDE as include
from .foreign.compilers import is_available as is_available
from .foreign.inline import cpp_inline as inline


def load(package: str | os.PathLike[str]) -> Any:
    """Load the functions of a folder made by `python -m tilegrad build`; no compiler is needed."""
    from .foreign import ahead_of_time

    return ahead_of_time.load(package)


__all__ = ["include", "inline", "is_available", "load"]


def __dir__() -> list[str]:
    return __all__
