"""Read the elements of tensors out of an ONNX file, or out of the files of data beside it."""

from __future__ import annotations

import os
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..ir import dtype as dtypes
from ..ir.dtype import DType
from ..serialization.files import Source
from .messages import TensorProto
from .problems import OnnxError

MAX_AXES = 32
STRING = 8
EXTERNAL = 1
"""`data_location` of elements in another file."""


class ElementType(NamedTuple):
    """An element type of ONNX, and the type of ours that holds all its values."""

    name: str
    held: DType | None
    bits: int

    @property
    def is_own(self) -> bool:
        """Whether the type is one of ours."""
        return self.held is not None and self.held.name == self.name


ELEMENT_TYPES = {
    1: ElementType("float32", dtypes.float32, 32),
    2: ElementType("uint8", dtypes.uint8, 8),
    3: ElementType("int8", dtypes.int8, 8),
    4: ElementType("uint16", dtypes.uint16, 16),
    5: ElementType("int16", dtypes.int16, 16),
    6: ElementType("int32", dtypes.int32, 32),
    7: ElementType("int64", dtypes.int64, 64),
    8: ElementType("string", None, 0),
    9: ElementType("bool", dtypes.bool_, 8),
    10: ElementType("float16", dtypes.float16, 16),
    11: ElementType("float64", dtypes.float64, 64),
    12: ElementType("uint32", dtypes.uint32, 32),
    13: ElementType("uint64", dtypes.uint64, 64),
    14: ElementType("complex64", None, 64),
    15: ElementType("complex128", None, 128),
    16: ElementType("bfloat16", dtypes.bfloat16, 16),
    17: ElementType("float8_e4m3fn", dtypes.float8_e4m3fn, 8),
    18: ElementType("float8_e4m3fnuz", dtypes.float32, 8),
    19: ElementType("float8_e5m2", dtypes.float8_e5m2, 8),
    20: ElementType("float8_e5m2fnuz", dtypes.float32, 8),
    21: ElementType("uint4", dtypes.uint8, 4),
    22: ElementType("int4", dtypes.int8, 4),
    23: ElementType("float4_e2m1fn", dtypes.float32, 4),
    24: ElementType("float8_e8m0fnu", dtypes.float32, 8),
    25: ElementType("uint2", dtypes.uint8, 2),
    26: ElementType("int2", dtypes.int8, 2),
}
NUMBERS = {kind.held: number for number, kind in ELEMENT_TYPES.items() if kind.is_own}
"""The numbers of our types."""
LISTS = {"float_data": (1, 14), "double_data": (11, 15), "int64_data": (7,), "uint64_data": (12, 13)}
"""The fields that hold elements of some types; `int32_data` holds those of the others."""


def element_type(number: int) -> ElementType:
    """Return an element type by its number."""
    if number not in ELEMENT_TYPES:
        raise OnnxError(f"there is no element type {number}")
    return ELEMENT_TYPES[number]


def array_of(tensor: TensorProto, folder: str | None = None) -> np.ndarray:
    """Return the elements of a tensor, in the dtype that holds all values of their type.

    >>> array_of(TensorProto(dims=[2], data_type=1, raw_data=b"\\0\\0\\x80?\\0\\0\\0@"))
    array([1., 2.], dtype=float32)
    """
    kind = element_type(tensor.data_type)
    if kind.held is None:
        raise OnnxError(f"elements of type {kind.name} are not supported")
    count = elements_in(tensor.dims)
    if tensor.data_location == EXTERNAL:
        found = _decoded(_external(tensor, folder, -(-count * kind.bits // 8)), kind, count)
    elif tensor.raw_data is not None:
        found = _decoded(np.frombuffer(tensor.raw_data, np.uint8), kind, count)
    else:
        found = _listed(tensor, kind, count)
    return found.reshape(tensor.dims)


def elements_in(dims: list[int]) -> int:
    """Count the elements of a shape, which may come from a damaged file."""
    if len(dims) > MAX_AXES or any(n < 0 for n in dims) or prod(max(n, 1) for n in dims) >= 1 << 62:
        raise OnnxError(f"there are no tensors of shape {dims[:MAX_AXES]}")
    return prod(dims)


def _decoded(raw: np.ndarray, kind: ElementType, count: int) -> np.ndarray:
    """Interpret dense little-endian bytes."""
    wanted = -(-count * kind.bits // 8)
    if raw.size != wanted:
        raise OnnxError(f"{count:,} elements of {kind.name} take {wanted:,} bytes, and there are {raw.size:,}")
    if kind.bits < 8:
        raw = _unpacked(raw, kind.bits)[:count]
    return _from_codes(raw, kind)


def _unpacked(raw: np.ndarray, bits: int) -> np.ndarray:
    """Split bytes into numbers of fewer bits, the lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1).astype(np.uint8)


def _from_codes(codes: np.ndarray, kind: ElementType) -> np.ndarray:
    """Return the values of bit patterns, one or more bytes for each."""
    assert kind.held is not None
    if kind.is_own:
        own: np.ndarray = codes.view(kind.held.numpy)
        return own
    if kind.held.is_float:
        import ml_dtypes

        values: np.ndarray = codes.view(getattr(ml_dtypes, kind.name)).astype(np.float32)
        return values
    sign = (1 << (kind.bits - 1)) if kind.held.kind == "int" else 0
    return ((codes.astype(np.int16) ^ sign) - sign).astype(kind.held.numpy)


def _listed(tensor: TensorProto, kind: ElementType, count: int) -> np.ndarray:
    """Return elements that stand in one of the lists of numbers."""
    name = next((name for name, types in LISTS.items() if tensor.data_type in types), "int32_data")
    numbers: Any = getattr(tensor, name)
    numbers = np.zeros(0, np.int64) if numbers is None else numbers
    packed = 8 // kind.bits if kind.bits < 8 else 1
    if len(numbers) != -(-count // packed):
        raise OnnxError(f"{count:,} elements are wanted, and {name} has {len(numbers) * packed:,}")
    assert kind.held is not None
    if kind.bits < 8:
        return _from_codes(_unpacked(numbers.astype(np.uint8), kind.bits)[:count], kind)
    if name == "int32_data" and kind.name.startswith(("float", "bfloat")):
        return _from_codes(numbers.astype(f"<u{kind.bits // 8}").view(np.uint8), kind)
    return numbers.astype(kind.held.numpy, copy=False)  # type: ignore[no-any-return]


def _external(tensor: TensorProto, folder: str | None, size: int) -> np.ndarray:
    """Map elements out of a file of data, which must be in the folder of the model or below it."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(f"its elements are in {location!r}: load the model by its path")
    path = inside(folder, location)
    try:
        offset, length = int(entries.get("offset", "0") or 0), int(entries.get("length", str(size)) or size)
    except ValueError:
        raise OnnxError(f"{location!r}: offset and length of the elements are no numbers") from None
    if length != size:
        raise OnnxError(f"{location!r}: the elements take {size:,} bytes, and the length says {length:,}")
    if not size:
        return np.zeros(0, np.uint8)
    with Source(path, mapped=True) as source:
        return source.array(offset, length)


def inside(folder: str, location: str) -> str:
    """Return the path of a file below a folder; a location that leads out of the folder is refused.

    >>> inside("/models", "../etc/passwd")
    Traceback (most recent call last):
    ...
    tilegrad.onnx.problems.OnnxError: '../etc/passwd': elements are only read from files in the folder of the model
    """
    parts = location.replace("\\", "/").split("/")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location)) if "\0" not in location else ""
    if not location or os.path.isabs(location) or ".." in parts or os.path.commonpath([root, path or "/"]) != root:
        raise OnnxError(f"{location!r}: elements are only read from files in the folder of the model")
    if not os.path.isfile(path):
        raise OnnxError(f"{location!r}: there is no such file beside the model")
    return path
