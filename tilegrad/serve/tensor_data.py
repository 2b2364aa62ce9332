"""Describe the tensors of a served model, and convert their elements from and to JSON and bytes.

Conversions are strict: an element that the type cannot hold exactly enough to be the number that was sent (an integer
out of range, an overflow to infinity, a string, a boolean for a number) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from .faults import refused

Elements = np.ndarray[Any, Any]
Extent = int | str | None
"""An extent of a shape: a number, or the name of a size that varies; None if it varies and has no name."""

DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"INT{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"FP{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""The names that the protocol has for element types."""
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
MAX_RANK = 32


@dataclass(frozen=True)
class ServedTensor:
    """An input or an output of a model."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Extent, ...]

    def __post_init__(self) -> None:
        if self.dtype not in NAMES:
            raise ValueError(f"{self.name}: the protocol has no elements of type {self.dtype}")

    @property
    def datatype(self) -> str:
        """The protocol's name for the element type."""
        return NAMES[self.dtype]

    def metadata(self) -> dict[str, Any]:
        """Describe the tensor as the protocol does: a size that varies is -1."""
        return {
            "name": self.name,
            "datatype": self.datatype,
            "shape": [n if isinstance(n, int) else -1 for n in self.shape],
        }

    def __str__(self) -> str:
        extents = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.datatype}[{extents}]"


def check_shape(spec: ServedTensor, shape: Any, sizes: dict[str, int]) -> tuple[int, ...]:
    """Compare the shape of an input with that of the model; `sizes` collects those that have names.

    >>> check_shape(ServedTensor("x", np.dtype("float32"), ("n", 4)), [3, 4], sizes := {}), sizes
    ((3, 4), {'n': 3})
    """
    if type(shape) is not list or len(shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise refused(f"input {spec.name!r}: the shape is a list of at most {MAX_RANK} integers that are not negative")
    fits = len(shape) == len(spec.shape)
    for extent, given in zip(spec.shape, shape, strict=False):
        if isinstance(extent, int):
            fits = fits and extent == given
        elif given < 1:
            raise refused(f"input {spec.name!r}: the shape {shape} has no elements")
        elif extent is not None and sizes.setdefault(extent, given) != given:
            raise refused(f"input {spec.name!r}: {extent} is {given}, and {sizes[extent]} in another input")
    if not fits:
        raise refused(f"input {spec.name!r} has the shape {shape:}; the model takes {spec}")
    return tuple(shape)


def array_from_json(data: Any, spec: ServedTensor, shape: tuple[int, ...]) -> Elements:
    """Convert the elements of an input, a flat list or one nested as the shape is.

    >>> array_from_json([[1, 2], [3, 4]], ServedTensor("x", np.dtype("float32"), (2, 2)), (2, 2)).sum().item()
    10.0
    """
    flat = _flat(data, spec, shape)
    kinds = set(map(type, flat))
    wanted, allowed = _allowed(spec.dtype)
    if not kinds <= allowed:
        other = min(kind.__name__ for kind in kinds - allowed)
        raise refused(f"input {spec.name!r} of type {spec.datatype} takes {wanted}, not {other}")
    try:
        if spec.dtype.kind in "iu" and flat and not _in_range(flat, spec.dtype):
            raise OverflowError
        with np.errstate(over="ignore"):
            made = np.array(flat, np.float64 if spec.datatype == "BF16" else spec.dtype).astype(spec.dtype, copy=False)
    except OverflowError:
        raise refused(f"input {spec.name!r} has a number beyond the range of {spec.datatype}") from None
    if float in kinds or (int in kinds and spec.dtype.kind not in "iub"):
        if not np.isfinite(made).all():
            raise refused(f"input {spec.name!r} has a number beyond the range of {spec.datatype}")
    return made.reshape(shape)


def _flat(data: Any, spec: ServedTensor, shape: tuple[int, ...]) -> list[Any]:
    """Flatten nested lists; each level has the extent of its axis."""
    if type(data) is not list:
        raise refused(f"input {spec.name!r}: the data are a list, not {type(data).__name__}")
    count = prod(shape)
    for axis in range(len(shape)):
        if not data or type(data[0]) is not list:
            break
        if len(data) != prod(shape[: axis + 1]) or axis == len(shape) - 1:
            raise refused(f"input {spec.name!r}: the lists of its data are not nested as its shape {list(shape)}")
        inner = shape[axis + 1]
        if not all(type(row) is list and len(row) == inner for row in data):
            raise refused(f"input {spec.name!r}: a list in its data has another length than {inner}")
        data = list(chain.from_iterable(data))
    if len(data) != count:
        raise refused(f"input {spec.name!r} has {len(data)} elements; the shape {list(shape)} has {count}")
    flat: list[Any] = data
    return flat


def _allowed(dtype: np.dtype[Any]) -> tuple[str, set[type]]:
    if dtype.kind == "b":
        return "true and false", {bool}
    return ("integers", {int}) if dtype.kind in "iu" else ("numbers", {int, float})


def _in_range(flat: list[int], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= min(flat) and max(flat) <= limits.max)


def array_from_bytes(data: memoryview, spec: ServedTensor, shape: tuple[int, ...]) -> Elements:
    """Read little-endian elements. The array shares the memory of the request, which nobody writes to."""
    expected = prod(shape) * spec.dtype.itemsize
    if len(data) != expected:
        raise refused(f"input {spec.name!r} has {len(data)} bytes; the shape {list(shape)} of it needs {expected}")
    if spec.datatype == "BOOL" and max(data, default=0) > 1:
        raise refused(f"input {spec.name!r} of type BOOL has a byte that is neither 0 nor 1")
    return np.frombuffer(data, spec.dtype).reshape(shape)


def json_elements(array: Elements, name: str) -> list[Any]:
    """Return the elements of an output as a flat list. JSON has no NaN and no infinity: binary data have."""
    if array.dtype.kind not in "iub" and not np.isfinite(array).all():
        raise refused(f'output {name!r} has NaN or infinity, which JSON cannot hold: ask for "binary_data"', 422)
    wide = array.astype(np.float64) if array.dtype.kind == "V" or array.dtype.name == "bfloat16" else array
    elements: list[Any] = wide.ravel().tolist()
    return elements


def total_bytes(arrays: Sequence[Elements]) -> int:
    """Return the size of some arrays."""
    return sum(array.nbytes for array in arrays)
