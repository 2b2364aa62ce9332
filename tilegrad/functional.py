"""All functions of tensors in `tilegrad.`: the names that `torch.` has.

Type checkers read `functional.pyi`, which `python tools/stubs.py` writes.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from .deferred import define_later
from .functions.declared import checking_arguments
from .functions.inplace import taking_out
from .functions.registry import defined, modules, names_with
from .lazy.layout import channels_last, channels_last_3d, contiguous_format, preserve_format
from .tensor import Tensor


@checking_arguments
def is_tensor(obj: object) -> bool:
    """Test whether an object is a tensor."""
    return isinstance(obj, Tensor)


@checking_arguments
def numel(input: Tensor) -> int:
    """Count the elements."""
    return input.numel()


@checking_arguments
def is_nonzero(input: Tensor) -> bool:
    """Test whether the only element differs from 0."""
    return input.is_nonzero()


@checking_arguments
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Test whether two tensors have the same shape."""
    return input.shape == other.shape


@checking_arguments
def is_signed(input: Tensor) -> bool:
    """Test whether the dtype has negative numbers."""
    return input.is_signed()


@checking_arguments
def is_floating_point(input: Tensor) -> bool:
    """Test whether the elements are floating-point numbers."""
    return input.is_floating_point()


def _published(name: str, found: Any) -> Any:
    """Return a function with checked arguments, and with `out=` where the table says so; or a constant."""
    checked = checking_arguments(found) if isinstance(found, FunctionType) else found
    return taking_out(checked, name) if name in names_with("out") else checked


def _find(name: str) -> Any:
    """Return a function by its public name."""
    return _published(name, getattr(Tensor, name) if name in _IN_PLACE else defined(name))


_IN_PLACE = tuple(f"{name}_" for name in (*names_with("function_in_place"), "detach", "fill", "zero"))
"""Functions with a variant in place that is a function, too: `torch.` has it for these."""
_LATER = (*(name for name in modules() if name not in names_with("only")), *_IN_PLACE)
__all__ = ["channels_last", "channels_last_3d", "contiguous_format", "is_floating_point", "is_nonzero", "is_same_size"]
__all__ += ["is_signed", "is_tensor", "numel", "preserve_format", *_LATER]
define_later(globals(), _find, _LATER)
