"""Define padding as modules: five modes, each for one, two and three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor
from .functional.paddings import pad
from .module import Module
from .wrapped import layers_of_ranks


class _PaddingModule(Module):
    """Pad the last axes: one width for all, or two for each, the last axis first."""

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = (padding,) * 2 * self.axes if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 2 * self.axes:
            raise ArgumentError(
                f"{type(self).__name__}: takes one width, or {2 * self.axes} (before and after, the last axis first), "
                f"not {self.padding}"
            )

    def forward(self, input: Tensor) -> Tensor:
        if self.mode != "constant" and input.dim() not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"{type(self).__name__}: needs an input of {self.axes + 1} or {self.axes + 2} axes, but its shape is "
                f"{tuple(input.shape)}"
            )
        return pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_PaddingModule):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


def _pads(name: str, base: type[_PaddingModule], doc: str, mode: str = "constant") -> list[type[_PaddingModule]]:
    return layers_of_ranks(name, base, f"{doc} (N, C, {{axes}}).", lambda rank: {"axes": rank, "mode": mode})


ConstantPad1d, ConstantPad2d, ConstantPad3d = _pads("ConstantPad", _ConstantPad, "Put `value` around")
ZeroPad1d, ZeroPad2d, ZeroPad3d = _pads("ZeroPad", _PaddingModule, "Put zeros around")
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _pads(
    "ReflectionPad", _PaddingModule, "Mirror the borders of", "reflect"
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _pads(
    "ReplicationPad", _PaddingModule, "Repeat the outermost elements of", "replicate"
)
CircularPad1d, CircularPad2d, CircularPad3d = _pads(
    "CircularPad", _PaddingModule, "Continue at the other end of", "circular"
)
