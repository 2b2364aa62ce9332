"""Parameter: a tensor that a module trains."""

from __future__ import annotations

from typing import Any

from ..creation import empty
from ..tensor import Tensor


class Parameter(Tensor):
    """A tensor that requires gradients and is found by the module whose attribute it is."""

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        made = (empty(0) if data is None else data).detach().requires_grad_(requires_grad)
        return made.as_subclass(cls)  # type: ignore[no-any-return]

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None: ...

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
