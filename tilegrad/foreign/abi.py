"""The structures of `include/tilegrad.h` as ctypes, and preallocated call records.

A call with the same types and numbers as an earlier one reuses its record and only fills in addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int32, c_int64, c_void_p
from itertools import count
from typing import Any, ClassVar, NamedTuple

from ..errors import DTypeError, ShapeError
from ..ir.dtype import DTYPES, DType
from ..ir.graph import TensorType
from ..ir.position import row_major
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device

VERSION = 1
CPU = -1
MESSAGE_BYTES = 1024
"""Size of the error message buffer in bytes."""
DTYPE_NUMBERS = {dtype: n for n, dtype in enumerate(DTYPES)}
"""Values of `enum tg_dtype`."""


class TensorStructure(ctypes.Structure):
    _fields_: ClassVar[Any] = (
        ("data", c_void_p),
        ("dtype", c_int32),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("device", c_int32),
        ("reserved", c_int32),
    )


class ScalarStructure(ctypes.Union):
    _fields_: ClassVar[Any] = (("i", c_int64), ("f", c_double))


MAKE = CFUNCTYPE(c_void_p, c_void_p, c_int32, c_int32, POINTER(c_int64))
GIVE = CFUNCTYPE(c_int32, c_void_p, c_void_p)


class CallStructure(ctypes.Structure):
    _fields_: ClassVar[Any] = (
        ("version", c_int32),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("scalar_count", c_int32),
        ("inputs", POINTER(TensorStructure)),
        ("outputs", POINTER(TensorStructure)),
        ("scalars", POINTER(ScalarStructure)),
        ("stream", c_void_p),
        ("error", c_char_p),
        ("error_size", c_int64),
        ("error_file", POINTER(c_char_p)),
        ("error_line", POINTER(c_int32)),
        ("host", c_void_p),
        ("make", MAKE),
        ("give", GIVE),
    )


class TensorLayout(NamedTuple):
    """A tensor argument: type and layout (None: contiguous)."""

    type: TensorType
    strides: tuple[int, ...] | None = None


class CallRecord:
    """The structures of one call, complete except for the addresses."""

    def __init__(
        self,
        inputs: Sequence[TensorLayout],
        outputs: Sequence[TensorLayout],
        scalars: Sequence[tuple[DType, float | int]],
    ) -> None:
        all = [*inputs, *outputs]
        self.extents = [_array([known_extent(e) for e in x.type.shape]) for x in all]
        self.strides = [_array(x.strides or row_major(x.type.shape)) for x in all]  # type: ignore[arg-type]
        self.tensors = (TensorStructure * max(1, len(all)))(
            *[
                TensorStructure(None, DTYPE_NUMBERS[x.type.dtype], len(x.type.shape), extents, strides, CPU, 0)
                for x, extents, strides in zip(all, self.extents, self.strides, strict=True)
            ]
        )
        self.scalars = (ScalarStructure * max(1, len(scalars)))(
            *[ScalarStructure(f=n) if d.is_float else ScalarStructure(i=int(n)) for d, n in scalars]
        )
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.file = c_char_p()
        self.line = c_int32()
        self.call = CallStructure(
            version=VERSION,
            input_count=len(inputs),
            output_count=len(outputs),
            scalar_count=len(scalars),
            inputs=self.tensors,
            outputs=ctypes.cast(ctypes.byref(self.tensors, 40 * len(inputs)), POINTER(TensorStructure)),
            scalars=self.scalars,
            error=ctypes.cast(self.message, c_char_p),
            error_size=MESSAGE_BYTES,
            error_file=ctypes.pointer(self.file),
            error_line=ctypes.pointer(self.line),
            make=make_tensor,
            give=give_tensor,
        )
        self.address = ctypes.addressof(self.call)
        self.address_of_tensors = ctypes.addressof(self.tensors)
        self.words = memoryview(self.tensors).cast("B").cast("Q")
        """The structures as words; the address of tensor n is word 5 n."""
        self.floats = memoryview(self.scalars).cast("B").cast("d")
        """The value field of number n, if it is floating-point."""

    def run(self, function: Any, addresses: Sequence[int]) -> int:
        """Call a function with tensors at these addresses; return its status."""
        words = self.words
        for n, address in enumerate(addresses):
            words[5 * n] = address
        return function(self.address)  # type: ignore[no-any-return]

    @property
    def error(self) -> tuple[str, str, int]:
        """Return the error of the function: message, source, line."""
        file = (self.file.value or b"").decode(errors="replace")
        return self.message.value.decode(errors="replace"), file, self.line.value


def known_extent(extent: Any) -> int:
    """Return an extent that must be a known number here."""
    assert isinstance(extent, int), f"{extent} is not known yet"
    return extent


def _array(values: Sequence[int]) -> Any:
    return (c_int64 * max(1, len(values)))(*values)


def prototype(address: int) -> Any:
    """Return a ctypes function that takes the address of a record and releases the GIL."""
    return CFUNCTYPE(c_int32, c_void_p)(address)


class HostCallbacks:
    """Callbacks that allocate memory for a running function and receive its results."""

    def __init__(self, device: Device, given: Sequence[tuple[int, DeviceBuffer, TensorType]]) -> None:
        self.device = device
        self.given = given
        """Inputs by the address of their structures."""
        self.made: dict[int, tuple[DeviceBuffer, TensorType, Any]] = {}
        self.results: list[tuple[DeviceBuffer, TensorType]] = []
        self.failure: BaseException | None = None
        self.number = next(_numbers)

    def __enter__(self) -> HostCallbacks:
        _hosts[self.number] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _hosts[self.number]


_hosts: dict[int, HostCallbacks] = {}
_numbers = count(1)


@MAKE  # type: ignore[untyped-decorator]
def make_tensor(host: int, dtype: int, ndim: int, shape: Any) -> int | None:
    """Return the callback `make` of a call."""
    found = _hosts.get(host or 0)
    if found is None:
        return None
    try:
        if not 0 <= dtype < len(DTYPES):
            raise DTypeError(f"there is no dtype of the number {dtype}")
        extents = tuple(shape[:ndim]) if ndim else ()
        if any(e < 0 for e in extents):
            raise ShapeError(f"a tensor of shape {extents} cannot be made: an extent is negative")
        type = TensorType(DTYPES[dtype], extents, found.device.name)
        buffer = found.device.allocate(known_extent(type.bytes))
        arrays = _array(extents), _array(row_major(extents))  # type: ignore[arg-type]
        structure = TensorStructure(buffer.address, dtype, ndim, *arrays, CPU, 0)
        address = ctypes.addressof(structure)
        found.made[address] = (buffer, type, (structure, arrays))
        return address
    except Exception as problem:
        found.failure = problem
        return None


@GIVE  # type: ignore[untyped-decorator]
def give_tensor(host: int, tensor: int) -> int:
    """Return the callback `give` of a call."""
    found = _hosts.get(host or 0)
    if found is None:
        return 1
    made = found.made.get(tensor)
    if made is not None:
        found.results.append(made[:2])
        return 0
    for address, buffer, type in found.given:
        if address == tensor:
            found.results.append((buffer, type))
            return 0
    return 1
