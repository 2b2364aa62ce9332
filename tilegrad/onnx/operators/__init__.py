"""Define the operators of ONNX as functions of tensors, a table for each family."""

from __future__ import annotations

from ..rules import Function
from . import (
    arithmetic,
    attention,
    control,
    conversion,
    convolution,
    detection,
    generating,
    indexing,
    losses,
    normalizing,
    pooling,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    sequences,
    shapes,
    signals,
)

FAMILIES = (
    *(arithmetic, attention, control, convolution, conversion, detection, generating, indexing, losses, normalizing),
    *(pooling, products, quantized, recurrent, reductions, resizing, sequences, shapes, signals),
)
RULES: dict[tuple[str, str], Function] = {
    (domain, name): function
    for family in FAMILIES
    for name, function in family.RULES.items()
    for domain in ("", "ai.onnx")
}
"""The function of each operator, by its domain and its name."""
