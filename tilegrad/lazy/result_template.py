"""Wrap memory that a program has filled as tensors, without the constructors of nodes and handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.graph import Input, TensorType
from ..ir.node import amend, construction_source
from ..ir.size import Shape, Size
from ..runtime.buffer import DeviceBuffer
from ..runtime.guarded import GuardedCall
from .handle import Handle, result_class
from .layout import strides_of


class ResultTemplate:
    """The attributes shared by the tensors of one result in all calls."""

    def __init__(self, type: TensorType, strides: Shape | None = None) -> None:
        self.type = type
        self.strides = strides
        """Strides of tensors that are not row-major."""
        self.varies = varying(type)
        self.attributes = dict(vars(Input(type)))
        """The fields of the value, but for its memory."""
        self.tensor_class = result_class()

    def filled(self, buffer: DeviceBuffer, sizes: Mapping[str, int] = {}) -> Any:
        """Make a tensor on memory that a program has filled."""
        if self.varies:
            type = self.type.with_shape(tuple([substitute_sizes(d, sizes) for d in self.type.shape]))
            return ResultTemplate(type).filled(buffer)
        value: Input = object.__new__(Input)
        amend(value, **self.attributes, buffer=buffer)
        made: Any = object.__new__(self.tensor_class)
        made._value = value
        if self.strides is not None:
            made._strides = self.strides
        return made

    def source(self, call: GuardedCall, memory: str) -> str:
        """Add the lines of `filled` to a generated call; return the name of the tensor."""
        made = wrap_source(call, call.bind("like", self.attributes), memory)
        if self.strides is not None:
            call.add(f"{made}._strides = {call.bind('strides', self.strides)}")
        return made


def wrap_source(call: GuardedCall, like: str, memory: str) -> str:
    """Add the lines that make a tensor of a value with the fields `like` and this memory; return its name."""
    new = call.bind("new", object.__new__)
    call.add(*construction_source("value", new, call.bind("Input", Input), like, buffer=memory))
    made = call.let("z", f"{new}({call.bind('Tensor', result_class())})")
    call.add(f"{made}._value = value")
    return made


def varying(type: TensorType) -> bool:
    """Whether a type has symbolic sizes."""
    return any(isinstance(extent, Size) for extent in type.shape)


def template_of(x: Handle | None) -> ResultTemplate | None:
    """Return the type and strides of tensors like this one."""
    return None if x is None else ResultTemplate(x._value.type, strides_of(x))


def substitute_sizes(x: Any, sizes: Mapping[str, int]) -> Any:
    """Substitute the sizes of one call in an extent; return anything else unchanged."""
    return x.value(sizes) if isinstance(x, Size) else x
