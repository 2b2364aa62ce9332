"""Refuse arrays and lists in place of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...errors import DTypeError, TilegradError
from ...tensor import Tensor

__all__ = ["tensors_only"]

OF_FLOATS = frozenset(
    """adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d affine_grid celu elu gelu glu grid_sample hardshrink
    hardsigmoid hardswish huber_loss kl_div leaky_relu logsigmoid mish mse_loss multi_margin_loss nll_loss
    prelu selu silu smooth_l1_loss soft_margin_loss softplus softshrink gaussian_nll_loss
    binary_cross_entropy_with_logits""".split()
)
"""Functions that take floating-point elements only, as in PyTorch; others convert integers or compute with them."""


def tensors_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it names a wrong argument. Calls that succeed check the first argument only: a tensor of
    another library has methods of the same names.

    >>> import tilegrad as tg
    >>> tg.nn.functional.relu([1.0, 2.0])
    Traceback (most recent call last):
    tilegrad.errors.ArgumentError: relu: input is a list, not a tensor; wrap it: tilegrad.tensor(...)
    """
    of_floats = name in OF_FLOATS

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if args and not isinstance(args[0], Tensor):
            from ...functions.declared import explain

            explain(TypeError(), name, function, args, kwargs)
        if of_floats and args and args[0].dtype.kind != "float":
            raise DTypeError(
                f"{name}: takes floating-point elements, not {args[0].dtype.name}; convert them first, as in x.float()"
            )
        try:
            return function(*args, **kwargs)
        except TilegradError:
            raise
        except Exception as error:
            from ...functions.declared import explain

            explain(error, name, function, args, kwargs)
            raise

    # where pickle finds it
    checked.__module__, checked.__name__, checked.__qualname__ = "tilegrad.nn.functional", name, name
    return checked
