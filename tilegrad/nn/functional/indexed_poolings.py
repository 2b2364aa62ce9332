"""Define poolings that always return indices, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from ...tensor import Tensor
from . import fractional, poolings

Found = Callable[..., tuple[Tensor, Tensor]]


def _with_indices(pooling: Callable[..., Any]) -> Found:
    """Return the variant of a pooling with `return_indices=True`."""

    @wraps(pooling)
    def both(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        code = unwrap(pooling).__code__
        given = code.co_varnames[: code.co_argcount]
        named = dict(zip(given, args, strict=False)) | kwargs
        return pooling(**(named | {"return_indices": True}))  # type: ignore[no-any-return]

    both.__name__ = both.__qualname__ = f"{pooling.__name__}_with_indices"
    both.__module__, both.__doc__ = __name__, f"Return the result of `{pooling.__name__}` and its indices."
    return both


adaptive_max_pool1d_with_indices = _with_indices(poolings.adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(poolings.adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(poolings.adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(fractional.fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional.fractional_max_pool3d)
max_pool1d_with_indices = _with_indices(poolings.max_pool1d)
max_pool2d_with_indices = _with_indices(poolings.max_pool2d)
max_pool3d_with_indices = _with_indices(poolings.max_pool3d)
