"""Iteration ranges of loops in kernels."""

from __future__ import annotations

from typing import Any

from ...errors import KernelError


class LoopRange:
    """`tl.range` or `tl.static_range`; the latter is unrolled at compile time."""

    def __init__(self, name: str, unrolled: bool) -> None:
        self.__name__ = self.name = name
        self.unrolled = unrolled

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise KernelError(f"tl.{self.name} stands in the loops of kernels only")

    def __repr__(self) -> str:
        return f"<tl.{self.name}>"


range_, static_range = LoopRange("range", False), LoopRange("static_range", True)
