"""All functions of tensors in `tilegrad.`: the names that `torch.` has.

Type checkers read `functional.pyi`, which `python tools/stubs.py` writes.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from . import linalg, random
from .functions import (
    arithmetic,
    arranging,
    comparing,
    constants,
    contractions,
    creation,
    elementary,
    joining,
    normalizing,
    reductions,
    selecting,
    special,
    summaries,
    views,
)
from .functions.conversion import clone
from .functions.declared import checking_arguments
from .functions.inplace import taking_out
from .functions.registry import names_with
from .lazy.layout import channels_last, channels_last_3d, contiguous_format, preserve_format
from .tensor import Tensor

MODULES = (arithmetic, arranging, comparing, constants, contractions, creation, elementary, joining)
MODULES += (normalizing, random, reductions, selecting, special, summaries, views)
IN_PLACE = (*names_with("function_in_place"), "detach", "fill", "zero")
"""Functions with a variant in place that is a function, too: `torch.` has it for these."""


def is_tensor(obj: object) -> bool:
    """Test whether an object is a tensor."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """Count the elements."""
    return input.numel()


def is_nonzero(input: Tensor) -> bool:
    """Test whether the only element differs from 0."""
    return input.is_nonzero()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Test whether two tensors have the same shape."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """Test whether the dtype has negative numbers."""
    return input.is_signed()


def is_floating_point(input: Tensor) -> bool:
    """Test whether the elements are floating-point numbers."""
    return input.is_floating_point()


def _public() -> dict[str, Any]:
    """Return all functions by their names, with checked arguments and with `out=` where the table says so."""
    asked = (is_tensor, numel, is_nonzero, is_same_size, is_signed, is_floating_point)
    found: dict[str, Any] = {fn.__name__: fn for fn in (clone, *asked)}
    for module in MODULES:
        found |= {name: vars(module)[name] for name in module.__all__ if name[-1] != "_"}
    found |= {name: vars(linalg)[name] for name in ("addbmm", "chain_matmul", "matrix_power", "vdot")}
    found |= {"adjoint": views.matrix_transposed, "cross": linalg.first_cross}
    found |= {f"{name}_": getattr(Tensor, f"{name}_") for name in IN_PLACE}
    found = {name: checking_arguments(fn) if isinstance(fn, FunctionType) else fn for name, fn in found.items()}
    found |= {name: taking_out(found[name], name) for name in names_with("out")}
    return found


_found = _public()
globals().update(_found)
__all__ = ["channels_last", "channels_last_3d", "contiguous_format", "preserve_format", *_found]
