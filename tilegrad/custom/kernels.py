"""List the kernels that a call runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.program import Foreign, Launch, name_of
from ..jitted.function import jit


def which_kernel(fn: Callable[..., Any], *args: Any) -> list[str]:
    """Return the names of the kernels that a call of an operator or function runs, in order.

    >>> import tilegrad as tg
    >>> which_kernel(lambda x: (x.exp() * 2).sum(), tg.ones(100))
    ['sum']
    """
    program = jit(lambda *given: fn(*given)).prepared(*args).compiled.program
    return [name_of(step) for step in program.steps if isinstance(step, Launch | Foreign)]
