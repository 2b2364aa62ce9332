"""Define the structures that Python and a C++ extension exchange: those of `include/tilegrad/host.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, PYFUNCTYPE, Structure, Union, c_char_p, c_double, c_int64, c_void_p, py_object
from typing import Any, ClassVar

from ..errors import DTypeError
from ..ir import dtype as types
from ..ir.dtype import DType
from ..lazy.handle import Handle
from ..runtime.device import Device, device

VERSION = 1
MAX_AXES = 12
NONE, TENSOR, INTEGER, REAL, BOOLEAN, TEXT, LIST, TUPLE, DTYPE, DEVICE = range(10)

NUMBERS: dict[DType, int] = {
    types.uint8: 0,
    types.int8: 1,
    types.int16: 2,
    types.int32: 3,
    types.int64: 4,
    types.float16: 5,
    types.float32: 6,
    types.float64: 7,
    types.bool_: 11,
    types.bfloat16: 15,
}
"""Numbers of PyTorch's ScalarType."""
BY_NUMBER = {number: dtype for dtype, number in NUMBERS.items()}


class ExtensionValue(Structure):
    """An argument or a result. A tensor is a reference to Python's object."""


class _Contents(Union):
    _fields_ = (
        ("integer", c_int64),
        ("real", c_double),
        ("text", c_char_p),
        ("object", c_void_p),
        ("values", POINTER(ExtensionValue)),
    )


ExtensionValue._anonymous_ = ("contents",)
ExtensionValue._fields_ = [("kind", c_int64), ("count", c_int64), ("contents", _Contents)]


class Meta(Structure):
    """The properties of a tensor, without its elements."""

    _fields_ = (
        *((name, c_int64) for name in ("axes", "numel", "dtype", "device", "requires_grad", "contiguous", "offset")),
        ("sizes", c_int64 * MAX_AXES),
        ("strides", c_int64 * MAX_AXES),
    )


class ExtensionLaunch(Structure):
    """A kernel's name, its configuration and its arguments."""

    _fields_ = (
        *((name, c_char_p) for name in ("kernel", "parameters", "source", "file")),
        ("line", c_int64),
        ("grid", c_int64 * 3),
        ("block", c_int64 * 3),
        *((name, c_int64) for name in ("shared", "stream", "count")),
        ("arguments", POINTER(c_void_p)),
        ("written", POINTER(c_int64)),
    )


class ExtensionEntry(Structure):
    """A function of a module."""

    _fields_ = (
        ("name", c_char_p),
        ("doc", c_char_p),
        ("signature", c_char_p),
        ("required", c_int64),
        ("count", c_int64),
    )


CALL = PYFUNCTYPE(c_int64, c_char_p, c_int64, POINTER(ExtensionValue), POINTER(ExtensionValue))
DESCRIBE = PYFUNCTYPE(c_int64, c_void_p, POINTER(Meta))
DATA = PYFUNCTYPE(c_int64, c_void_p, POINTER(c_void_p))
LAUNCH = PYFUNCTYPE(c_int64, POINTER(ExtensionLaunch), POINTER(c_int64))
SYNCHRONIZE = PYFUNCTYPE(c_int64)


class Host(Structure):
    """The table of callbacks that an extension is given."""

    _fields_: ClassVar[Any] = (
        ("version", c_int64),
        ("call", CALL),
        ("describe", DESCRIBE),
        ("data", DATA),
        ("launch", LAUNCH),
        ("synchronize", SYNCHRONIZE),
        ("hold", c_void_p),
        ("drop", c_void_p),
    )


HOLD = ctypes.cast(ctypes.pythonapi.Py_IncRef, c_void_p).value
DROP = ctypes.cast(ctypes.pythonapi.Py_DecRef, c_void_p).value


def object_at(address: int) -> Any:
    """Return the object at an address that C++ has kept."""
    return ctypes.cast(address, py_object).value


def put(cell: ExtensionValue, x: Any, kept: list[Any]) -> None:
    """Write an object into a cell; referenced objects are kept alive in the list."""
    match x:
        case None:
            cell.kind = NONE
        case Handle():
            cell.kind, cell.object = TENSOR, id(x)
            kept.append(x)
        case bool():
            cell.kind, cell.integer = BOOLEAN, x
        case int():
            cell.kind, cell.integer = INTEGER, x
        case float():
            cell.kind, cell.real = REAL, x
        case str():
            text = x.encode()
            cell.kind, cell.text = TEXT, text
            kept.append(text)
        case DType():
            cell.kind, cell.integer = DTYPE, NUMBERS[x]
        case Device():
            cell.kind, cell.integer = DEVICE, number_of(x.name)
        case list() | tuple():
            _put_several(cell, x, kept)
        case _:
            raise DTypeError(
                f"{type(x).__name__} cannot be given to a C++ function: it takes tensors, numbers, texts, dtypes, "
                "devices, None, and lists and tuples of these"
            )


def _put_several(cell: ExtensionValue, x: Sequence[Any], kept: list[Any]) -> None:
    cells = (ExtensionValue * len(x))()
    for inner, each in zip(cells, x, strict=True):
        put(inner, each, kept)
    kept.append(cells)
    cell.kind, cell.count = TUPLE if isinstance(x, tuple) else LIST, len(x)
    cell.values = cells


def get(cell: ExtensionValue) -> Any:
    """Return the object in a cell."""
    match cell.kind:
        case 1:
            return object_at(cell.object)
        case 2:
            return cell.integer
        case 3:
            return cell.real
        case 4:
            return bool(cell.integer)
        case 5:
            return cell.text.decode()
        case 6 | 7:
            found = [get(cell.values[n]) for n in range(cell.count)]
            return found if cell.kind == LIST else tuple(found)
        case 8:
            return BY_NUMBER[cell.integer]
        case 9:
            return device("cpu" if cell.integer < 0 else f"cuda:{cell.integer}")
    return None


def number_of(name: str) -> int:
    """Return the number of a GPU; -1 for anything else."""
    kind, _, number = name.partition(":")
    return int(number or 0) if kind == "cuda" else -1
