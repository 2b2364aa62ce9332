"""Operators that somebody declares (`tilegrad.op`), as values.

A `Declared` value is one output of an operator under its name. It says nothing about how it is computed: before a
graph is scheduled, what the operator means on the device stands in its place (`transform/expand.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from ..ir.graph import Graph, Reader, TensorType, Value
from ..ir.scalar import Expr, Position


class DeclaredMeaning(ABC):
    """What an operator is for arguments of some types and some numbers. There is one object for each."""

    name: str
    label: str
    """The name with the numbers, as it is printed."""
    results: tuple[TensorType, ...]

    @abstractmethod
    def reference(self) -> Graph:
        """The outputs in terms of other ops."""

    @abstractmethod
    def code(self, device: str) -> Graph:
        """The same as it is computed on a device: by the kernel for it, or as in the reference."""

    @abstractmethod
    def settled(self, sizes: Mapping[str, int]) -> DeclaredMeaning:
        """Return the meaning for arguments whose sizes are numbers."""


@final
class Declared(Value):
    """One output of an operator."""

    arguments: tuple[Value, ...]
    meaning: Any
    place: int = 0

    def infer(self) -> TensorType:
        self.__dict__["op"] = self.meaning.name
        return self.meaning.results[self.place]  # type: ignore[no-any-return]

    def element(self, position: Position, read: Reader) -> Expr:
        """That of the reference, in which other ops are composed."""
        meant = self.meaning.reference()
        place = dict(zip(meant.inputs, self.arguments, strict=True))

        def inside(x: Value, at: Position) -> Expr:
            return read(place[x], at) if x in place else x.element(at, inside)

        return inside(meant.outputs[self.place], position)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise AssertionError("the gradients of an operator's outputs are taken together")

    def __str__(self) -> str:
        label: str = self.meaning.label
        return label if len(self.meaning.results) == 1 else f"{label}.{self.place}"
