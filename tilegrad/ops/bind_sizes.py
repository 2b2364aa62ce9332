"""Bind the symbolic sizes of an op, its operands and its attributes to numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.graph import Input, Value
from ..ir.node import Structure, amend
from ..ir.size import Size, known
from ..ir.tile import Kernel
from .declared import DeclaredMeaning


def with_sizes(value: Value, sizes: Mapping[str, int]) -> Value:
    """Return the op on placeholders with bound sizes."""
    inputs = [Input(bind_sizes(x.type, sizes)) for x in value.inputs]
    for made, x in zip(inputs, value.inputs, strict=True):
        amend(made, tracked=x.tracked)
    return value.with_inputs(inputs, **bind_attributes(value, sizes))


def bind_attributes(value: Value, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the attributes that have symbolic sizes, bound."""
    own = value.__dict__
    found = {name: bind_sizes(own[name], sizes) for name in value.attribute_fields}
    return {name: part for name, part in found.items() if part is not own[name]}


def bind_sizes(part: Any, sizes: Mapping[str, int]) -> Any:
    """Bind the sizes in an attribute; return the same object if it has none.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import TensorType
    >>> n = Size.named("n")
    >>> str(bind_sizes(TensorType(float32, (n, 3, 2 * n)), {"n": 5})), bind_sizes((1, (n, 2)), {"n": 5})
    ('f32[5,3,10]', (1, (5, 2)))
    """
    if isinstance(part, Size):
        return known(part, sizes)
    if isinstance(part, Value):
        return with_sizes(part, sizes)
    if isinstance(part, tuple):
        parts = [bind_sizes(p, sizes) for p in part]
        if all(new is old for new, old in zip(parts, part, strict=True)):
            return part
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
    if isinstance(part, DeclaredMeaning):
        return part.with_known_sizes(sizes)
    if isinstance(part, Structure) and not isinstance(part, Kernel):
        old = {name: part.__dict__[name] for name in part.fields}
        changes = {name: new for name, x in old.items() if (new := bind_sizes(x, sizes)) is not x}
        return part.replaced(**changes) if changes else part
    return part
