"""Build tensors from storages in a file: check them, then fill them, sharing memory where they share a storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, CheckpointError, DeviceError
from ..functions.creation import from_array
from ..ir.dtype import DType
from ..ir.graph import Value
from ..lazy.handle import view
from ..lazy.layout import Lying, lay, without_gaps
from ..ops.broadcasting import dense, expand, reshape
from ..ops.movement import narrow, permute
from ..runtime.device import Device, device
from ..tensor import Tensor

MAX_AXES = 32
INT64_LIMIT = 1 << 63
FREE_BYTES = 1 << 16
SAVED_KINDS = ("cpu", "cuda")
"""Kinds of devices that a file may name; all others are written as the CPU."""
MAX_SIZE_RATIO = 4
"""Largest ratio of the tensors' size to the file's size, for tensors with overlapping strides."""

Place = Callable[[str], str]
"""Maps the device from which tensors were saved to their new device."""


class PickledStorage(NamedTuple):
    """A storage that a pickle mentions."""

    key: str
    dtype: DType | None
    """None for bytes without a dtype."""
    location: str
    elements: int
    """Number of elements, or of bytes without a dtype."""


class Part(NamedTuple):
    """A tensor to be filled: element (i, j, ...) is at offset + i * strides[0] + ... of a storage."""

    tensor: Tensor
    storage: PickledStorage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool

    @property
    def total(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def end(self) -> int:
        """Return the end of the last element."""
        if 0 in self.shape:
            return self.offset
        return self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def is_dense(self) -> bool:
        wide = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        return 0 in self.shape or tuple([s for _, s in wide]) == dense(tuple([n for n, _ in wide]))


def check(part: Part, fault: Callable[[str], CheckpointError]) -> Part:
    """Raise unless the tensor is within its storage."""
    shape, strides, storage = part.shape, part.strides, part.storage
    numbers = (part.offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > MAX_AXES or any(type(n) is not int for n in numbers):
        raise fault(f"a tensor has {len(shape)} axes and {len(strides)} strides, or they are no numbers")
    if any(not 0 <= n < INT64_LIMIT for n in numbers) or part.total >= INT64_LIMIT:
        raise fault(f"a tensor has the shape {shape!s:.80}, strides {strides!s:.80}, offset {part.offset!s:.20}")
    bytes = storage.elements * (storage.dtype.bytes if storage.dtype else 1)
    if part.end * part.dtype.bytes > bytes:
        raise fault(
            f"a tensor of the shape {list(shape)} with strides {list(strides)} and offset {part.offset} reads element "
            f"{part.end - 1} of storage {storage.key}, which has {bytes // part.dtype.bytes}"
        )
    return part


class Filler:
    """Fill tensors with their elements, and account for the memory."""

    def __init__(
        self, read: Callable[[PickledStorage, int, int], np.ndarray[Any, Any]], size: int, place: Place, swapped: bool
    ) -> None:
        self.read = read
        """Reads a range of the bytes of a storage."""
        self.left = MAX_SIZE_RATIO * size + FREE_BYTES
        self.place = place
        self.swapped = swapped
        """Whether the byte order differs from this machine's."""

    def fill(self, parts: Sequence[Part]) -> None:
        groups: dict[tuple[str, DType], list[Part]] = defaultdict(list)
        for part in parts:
            groups[part.storage.key, part.dtype].append(part)
        for group in groups.values():
            if all(p[3:6] == group[0][3:6] for p in group) and group[0].total <= group[0].end - group[0].offset:
                made = self._alone(group[0])
                for n, part in enumerate(group):
                    _assign(part, made.detach() if n else made)
            else:
                self._together(group)

    def _elements(self, part: Part, first: int, end: int) -> np.ndarray[Any, Any]:
        """Return a range of the elements of a storage."""
        width = part.dtype.bytes
        self._spend((end - first) * width, part)
        bytes = self.read(part.storage, first * width, (end - first) * width)
        if self.swapped and width > 1:
            bytes = bytes.reshape(-1, width)[:, ::-1].reshape(-1)
        if part.dtype.kind == "bool":
            bytes = bytes != 0
        return bytes.view(part.dtype.numpy)

    def _alone(self, part: Part) -> Tensor:
        first = part.offset
        elements = self._elements(part, first, part.end)
        steps = [s * part.dtype.bytes for s in part.strides]
        if part.total:  # as bits: numpy does not know all dtypes there
            bits = elements.view(f"u{elements.itemsize}")
            array = np.lib.stride_tricks.as_strided(bits, part.shape, steps).view(elements.dtype)
        else:
            array = elements
        if not part.is_dense:
            self._spend(part.total * part.dtype.bytes, part)
        whole = np.ascontiguousarray(array).reshape(part.shape)
        made = from_array(whole, self.place(part.storage.location), share=True)
        return lay(made, without_gaps(Lying(part.shape, part.strides)))

    def _together(self, parts: Sequence[Part]) -> None:
        first, end = min(p.offset for p in parts), max(p.end for p in parts)
        elements = self._elements(parts[0], first, end)
        whole = from_array(elements, self.place(parts[0].storage.location), share=True)
        for part in parts:
            move = partial(strided, offset=part.offset - first, shape=part.shape, strides=part.strides)
            if move(whole.value) is None:
                self._spend(part.total * part.dtype.bytes, part)
                _assign(part, self._alone(part))
            else:
                _assign(part, view(whole, move))  # type: ignore[arg-type]

    def _spend(self, bytes: int, part: Part) -> None:
        self.left -= bytes
        if self.left < 0:
            raise CheckpointError(
                f"a tensor of the shape {list(part.shape)} would take {bytes:,} bytes from storage "
                f"{part.storage.key}, more than a file of this size can need"
            )


def _assign(part: Part, made: Tensor) -> None:
    """Set the tensor that is already part of the loaded object."""
    target = part.tensor
    if type(target) is Tensor:
        target.__dict__.update((made.detach() if part.requires_grad else made).__dict__)
        if part.requires_grad:
            target.requires_grad_()
    else:
        type(target).__init__(target, made, part.requires_grad)


def strided(whole: Value, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Value | None:
    """Return a strided view of a row of elements by movements, or None where a copy is needed.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> x = Input(TensorType(float32, (12,)), "x")
    >>> strided(x, 1, (3, 3), (1, 4))
    <permute[axes=(1, 0)]: f32[3,3]>
    >>> strided(x, 0, (10, 3), (1, 1)) is None
    True
    """
    if 0 in shape:
        return reshape(narrow(whole, 0, 0, 0), shape)
    wide = [n for n in range(len(shape)) if shape[n] != 1 and strides[n] != 0]
    order = sorted(wide, key=lambda n: -strides[n])
    found, length = whole, int(whole.shape[0])  # type: ignore[arg-type]
    for axis, n in enumerate(order):
        extent, step = shape[n], strides[n]
        rows, first = length // step, offset // step
        if first + extent > rows:
            return None
        found = narrow(found, axis, 0, rows * step)
        found = reshape(found, (*found.shape[:-1], rows, step))
        found, offset, length = narrow(found, axis, first, extent), offset % step, step
    found = narrow(found, len(order), offset, 1)
    sizes = [shape[n] if n in wide else 1 for n in range(len(shape))]
    found = reshape(found, found.shape[:-1])
    found = permute(found, [order.index(n) for n in wide])
    return expand(reshape(found, sizes), shape)


def placed(map_location: Device | str | Mapping[str, str] | None, name: str) -> Place:
    """Return the function that maps saved devices to new ones; by default to themselves."""
    if callable(map_location):
        raise ArgumentError("load: map_location is a device or a dict of devices here, not a function")

    def place(saved: str) -> str:
        wanted = map_location.get(saved, saved) if isinstance(map_location, Mapping) else map_location or saved
        text = f"{name} has tensors of {str(wanted)[:40]!r}, which is not here; give map_location='cpu'"
        if wanted is saved and wanted.partition(":")[0] not in SAVED_KINDS:
            raise DeviceError(text)
        try:
            return device(wanted).name
        except DeviceError as missing:
            raise DeviceError(text) from missing

    return place
