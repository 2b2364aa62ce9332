"""Operators declared by users (`tilegrad.op`), as values.

A `Declared` value is one output of an operator. It does not say how it is computed: before scheduling it is replaced by
the code for its device (`transform/expand.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from ..ir.graph import Graph, Reader, TensorType, Value
from ..ir.node import amend
from ..ir.scalar import Expr, Position


class DeclaredMeaning(ABC):
    """The meaning of an operator for given argument types and numbers; one object for each."""

    name: str
    label: str
    """Printed name with the numbers."""
    results: tuple[TensorType, ...]

    @abstractmethod
    def reference(self) -> Graph:
        """Return the outputs in terms of other ops."""

    @abstractmethod
    def code(self, device: str) -> Graph:
        """Return the code for a device: a kernel, or the reference."""

    @abstractmethod
    def with_known_sizes(self, sizes: Mapping[str, int]) -> DeclaredMeaning:
        """Return the meaning with symbolic sizes bound to numbers."""


@final
class Declared(Value):
    """One output of a declared operator."""

    user_defined: ClassVar[bool] = True
    arguments: tuple[Value, ...]
    meaning: Any
    place: int = 0

    def infer(self) -> TensorType:
        amend(self, op=self.meaning.name)
        return self.meaning.results[self.place]  # type: ignore[no-any-return]

    def element(self, position: Position, read: Reader) -> Expr:
        """Element of the reference implementation."""
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
