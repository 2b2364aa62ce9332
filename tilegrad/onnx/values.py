"""Convert the values that nodes exchange: tensors, constants that stay numpy arrays, sequences, numbers of few bits.

Constants and sizes are numpy arrays until an operator wants a tensor, so that what shapes depend on can be read while
a jitted function is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..functional import tensor
from ..tensor import Tensor
from .problems import OnnxError

Ints: TypeAlias = "list[int]"
"""An input that is read: the result's shape depends on its elements."""
Floats: TypeAlias = "list[float]"
Number: TypeAlias = "int | float"
"""An input with one element, which is read."""
Statistic: TypeAlias = Tensor
"""A tensor that is no parameter: gradients do not change it."""


class Narrow(NamedTuple):
    """A tensor whose element type only ONNX has: its values, in a wider type of ours."""

    held: Tensor | np.ndarray
    name: str


def as_tensor(value: Any, device: Any = None) -> Tensor:
    """Return a value as a tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Narrow):
        return as_tensor(value.held, device)
    if isinstance(value, np.ndarray):
        return tensor(value, device=device)
    kind = "a sequence" if isinstance(value, list) else "nothing" if value is None else type(value).__name__
    raise OnnxError(f"a tensor is wanted, and there is {kind}")


def as_list(value: Any) -> list[Any]:
    """Return the elements of a value of one dimension."""
    found = value.held if isinstance(value, Narrow) else value
    made: Any = found.tolist()
    return made if isinstance(made, list) else [made]


def as_number(value: Any) -> Any:
    """Return the only element of a value."""
    found = value.held if isinstance(value, Narrow) else value
    if found.shape and int(np.prod(found.shape)) != 1:
        raise OnnxError(f"one number is wanted, and there is a tensor of shape {list(found.shape)}")
    return found.reshape(()).item()


def as_it_is(value: Any) -> Any:
    """Return a value unchanged."""
    return value


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "Ints": as_list,
    "Floats": as_list,
    "Number": as_number,
    "Any": as_it_is,
}
"""How inputs are converted, by the annotations of the functions that take them; the others are tensors."""
