"""Describe the elements of the generic products."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ....ir.dtype import DType
from ..target import Target

if TYPE_CHECKING:
    from ..emit import Type


class ElementFormat:
    """How the elements of a dtype are stored, and as what they are multiplied and summed."""

    def __init__(self, dtype: DType, accumulated: DType, target: Target) -> None:
        self.dtype, self.accumulated = dtype, accumulated
        self.lanes = target.lanes(accumulated.bytes)
        self.stored_bytes, self.bytes = dtype.bytes, accumulated.bytes
        self.target = target
        self.has_masks = target.has_masks and dtype.bytes >= target.min_masked_bytes

    @cached_property
    def stored(self) -> Type:
        """The type of an element in memory."""
        return _type(self.dtype)

    @cached_property
    def sum(self) -> Type:
        """The type of a sum."""
        return _type(self.accumulated)

    @property
    def of_sums(self) -> ElementFormat:
        """The format of packed elements and of sums."""
        return ElementFormat(self.accumulated, self.accumulated, self.target)


def _type(dtype: DType) -> Type:
    from ..emit import Type, element_type  # loads the emitters of kernels

    return Type(element_type(dtype))
