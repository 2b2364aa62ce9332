"""Layers, activations and losses as functions, under PyTorch's names: expressions of tensors, which the compiler fuses.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from types import FunctionType

from ...functions.declared import checking_arguments
from ...functions.selecting import one_hot
from . import (
    activations,
    alignment,
    attending,
    convolutions,
    distances,
    dropouts,
    embeddings,
    fractional,
    heads,
    indexed_poolings,
    losses,
    margins,
    norms,
    paddings,
    poolings,
    resizing,
    sampling,
    unpooling,
)
from .arguments import tensors_only

MODULES = (activations, alignment, attending, convolutions, distances, dropouts, embeddings, fractional, heads)
MODULES += (indexed_poolings, losses, margins, norms, paddings, poolings, resizing, sampling, unpooling)
INTERNAL = frozenset(
    "check_classes check_mode check_range checked_probability reduced reduction_of refuse_tracked same_shape "
    "unpooled".split()
)
"""Functions of these modules that other modules use, and users do not."""

_found = {
    name: tensors_only(name, checking_arguments(found))
    for module in MODULES
    for name, found in vars(module).items()
    if isinstance(found, FunctionType) and found.__module__ == module.__name__ and name[0] != "_"
    if name not in INTERNAL
}
_found["one_hot"] = tensors_only("one_hot", checking_arguments(one_hot))
globals().update(_found)
__all__ = list(_found)


def __dir__() -> list[str]:
    return __all__
