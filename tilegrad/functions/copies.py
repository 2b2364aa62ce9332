"""Define copying variants of views, as PyTorch has them: `permute_copy` is `permute` with memory of its own.

>>> import tilegrad as tg
>>> x = tg.zeros(2)
>>> y = unsqueeze_copy(x, 0)
>>> x += 1
>>> y
tensor([[0., 0.]])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from ..lazy.layout import contiguous_format
from ..ops.broadcasting import normal_axis
from . import views

if TYPE_CHECKING:
    from ..tensor import Tensor


def _copying(view: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return the variant of a function that copies the views it returns."""
    name = name or f"{view.__name__.lstrip('_')}_copy"

    def copied(*given: Any, **options: Any) -> Any:
        made = view(*given, **options)
        parts = [x.clone(memory_format=contiguous_format) for x in (made if isinstance(made, tuple) else [made])]
        return tuple(parts) if isinstance(made, tuple) else parts[0]

    update_wrapper(copied, view)
    copied.__name__ = copied.__qualname__ = name
    copied.__doc__ = f"Copied: {view.__doc__}"
    return copied


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Slice a dimension from start to end with a step."""
    return input[(*[slice(None)] * normal_axis(dim, input.dim(), "slice_copy"), slice(start, end, step))]


def _alias(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def _detach(input: Tensor) -> Tensor:
    """The elements without their history."""
    return input.detach()


alias_copy, detach_copy, slice_copy = _copying(_alias), _copying(_detach), _copying(_slice)
diagonal_copy, expand_copy, narrow_copy = _copying(views.diagonal), _copying(views.expand), _copying(views.narrow)
permute_copy, select_copy, split_copy = _copying(views.permute), _copying(views.select), _copying(views.split)
squeeze_copy, t_copy, transpose_copy = _copying(views.squeeze), _copying(views.t), _copying(views.transpose)
unbind_copy, unfold_copy, unsqueeze_copy = _copying(views.unbind), _copying(views.unfold), _copying(views.unsqueeze)
view_copy, split_with_sizes_copy = _copying(views.reshape, "view_copy"), _copying(views.split)
unsafe_chunk, unsafe_split, unsafe_split_with_sizes = views.chunk, views.split, views.split
"""PyTorch promises nothing about writes to the pieces of these; here they are views."""

__all__ = [name for name in globals() if name.endswith("_copy") or name.startswith("unsafe_")]
