"""`tg.cpp`: functions in C++, compiled when they are met, and called like any other.

>>> import tilegrad as tg
>>> tg.cpp.include.endswith("include")
True
"""

from __future__ import annotations

from .foreign.build import INCLUDE as include
from .foreign.compilers import is_available as is_available
from .foreign.inline import cpp_inline as inline

__all__ = ["include", "inline", "is_available"]
