"""Read and write the safetensors format: a length, a header in JSON, then the dense little-endian elements of every
tensor.

    8 bytes   the length of the header, an unsigned little-endian integer
    header    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
    elements  without holes; the offsets count from here

The functions have the names and arguments of the library `safetensors`. A file is read lazily: of one that is opened
with `safe_open` only what is asked for. All that a header says is checked before anything is allocated for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from json import JSONDecodeError, JSONDecoder, dumps
from sys import byteorder
from typing import Any, NamedTuple, Self

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..functions.creation import from_array, place
from ..functions.promotion import kind_of
from ..ir import dtype as dtypes
from ..lazy.evaluation import array_of, compute
from ..lazy.handle import Handle
from ..runtime.device import Device
from ..tensor import Tensor
from .files import File, Source, replacing

NAMES = {
    dtypes.float64: "F64",
    dtypes.float32: "F32",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float8_e4m3fn: "F8_E4M3",
    dtypes.float8_e5m2: "F8_E5M2",
    dtypes.bool_: "BOOL",
    dtypes.int64: "I64",
    dtypes.int32: "I32",
    dtypes.int16: "I16",
    dtypes.int8: "I8",
    dtypes.uint64: "U64",
    dtypes.uint32: "U32",
    dtypes.uint16: "U16",
    dtypes.uint8: "U8",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
FOREIGN = {"F8_E8M0": 1, "C64": 8}
"""Sizes in bytes of dtypes that only other libraries have."""
METADATA = "__metadata__"
MAX_HEADER_BYTES = 100_000_000
"""Largest header, in bytes: the format's own limit."""
DEEPEST = 8
"""Largest nesting of a header: it needs three levels."""
INT64_LIMIT = 1 << 63
MAX_AXES = 32
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|[\[{]|[\]}]', re.DOTALL)
"""Matches strings and brackets, and unterminated strings, so that the search stays linear."""
MAX_HINTED_NAMES, MAX_HINTED_CHARACTERS = 1000, 200
"""Number and length of the names up to which similar names are searched for."""


class TensorHeader(NamedTuple):
    """The header's record of one tensor; its range is in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


# --- writing -----------------------------------------------------------------------------------


def save_file(tensors: Mapping[str, Tensor], filename: File, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name, and strings by name as metadata; the same tensors give the same bytes.

    Each tensor is written whole, also where some share memory: the format has no views.
    """
    _check(tensors, metadata)
    compute(*tensors.values())
    order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.bytes, item[0]))  # so that all are aligned
    header: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, x in order:
        begin, end = end, end + x.nbytes
        header[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [begin, end]}
    text = dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(filename) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, x in order:
            array = np.ascontiguousarray(array_of(x))
            file.write(_little(array).reshape(-1).view(np.uint8).data)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    r"""Return the bytes of a file with these tensors.

    >>> import tilegrad as tg
    >>> save({"x": tg.ones(1)})[8:]
    b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  \x00\x00\x80?'
    """
    from io import BytesIO

    file = BytesIO()
    save_file(tensors, file, metadata)
    return file.getvalue()


def _check(tensors: Any, metadata: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise ArgumentError(f"save_file takes a dict of names and tensors, not {kind_of(tensors)}")
    for name, x in tensors.items():
        if not isinstance(name, str) or name == METADATA:
            raise ArgumentError(f"save_file: {name!r:.60} cannot name a tensor")
        if not isinstance(x, Handle):
            raise ArgumentError(
                f"save_file: {name!r} is {kind_of(x)}, not a tensor; tilegrad.save takes nested objects, the format "
                "of safetensors only tensors, and texts as metadata"
            )
    for name, text in (metadata or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ArgumentError(f"save_file: metadata are texts by name, not {name!r:.40}: {text!r:.40}")


def _little(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert elements to little-endian bytes, or back."""
    return array.byteswap() if byteorder == "big" and array.itemsize > 1 else array


# --- reading -----------------------------------------------------------------------------------


class safe_open:
    """Open a file and read its header; tensors are read on request.

    with safe_open("model.safetensors") as file:
        weight = file.get_tensor("weight")
        rows = file.get_slice("weight")[:10]
    """

    def __init__(self, filename: File | bytes, framework: str = "tilegrad", device: Device | str = "cpu") -> None:
        self._open(Source(filename, mapped=isinstance(filename, str) or hasattr(filename, "__fspath__")), device)

    def _open(self, source: Source, device: Device | str) -> None:
        self.source = source
        self.device = place(device)
        try:
            self.stored, self._metadata = read_header(source)
        except BaseException:
            source.close()
            raise

    def keys(self) -> list[str]:
        """Return the names of the tensors, in file order."""
        return list(self.stored)

    offset_keys = keys

    def metadata(self) -> dict[str, str] | None:
        return self._metadata

    def get_tensor(self, name: str) -> Tensor:
        """Read one tensor; on the CPU it maps the file's memory copy-on-write."""
        return from_array(self._array(name), self.device, share=True)

    def get_slice(self, name: str) -> UnreadTensor:
        """Return a tensor that is read in parts: `file.get_slice("weight")[2:4]`."""
        return UnreadTensor(self, self._entry(name))

    def _entry(self, name: str) -> TensorHeader:
        if name not in self.stored:
            from difflib import get_close_matches

            known = [other for other in islice(self.stored, MAX_HINTED_NAMES) if len(other) <= MAX_HINTED_CHARACTERS]
            near = get_close_matches(name[:MAX_HINTED_CHARACTERS], known, n=1)
            advice = f": did you mean {near[0]!r}?" if near else f"; there are {len(self.stored)} others"
            raise ArgumentError(f"{self.source.name} has no tensor {name!r:.200}{advice}")
        return self.stored[name]

    def _array(self, name: str) -> np.ndarray[Any, Any]:
        entry = self._entry(name)
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            raise DTypeError(f"{self.source.name}: {name!r} is of the type {entry.dtype}, which tilegrad does not have")
        bytes = self.source.array(entry.offset, entry.bytes)
        if dtype is dtypes.bool_:
            bytes = (bytes != 0).view(np.uint8)
        return _little(bytes.view(dtype.numpy)).reshape(entry.shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()


class UnreadTensor:
    """A tensor in a file, not read yet."""

    def __init__(self, file: safe_open, stored: TensorHeader) -> None:
        self.file, self.stored = file, stored

    def get_shape(self) -> list[int]:
        return list(self.stored.shape)

    def get_dtype(self) -> str:
        """Return the dtype, as the format writes it."""
        return self.stored.dtype

    def __getitem__(self, index: Any) -> Tensor:
        part = self.file._array(self.stored.name)[index]
        return from_array(np.array(part), self.file.device)


def load_file(filename: File, device: Device | str = "cpu", mmap: bool = False) -> dict[str, Tensor]:
    """Read all tensors of a file. With `mmap` their elements are read from disk on first access."""
    opened = safe_open.__new__(safe_open)
    opened._open(Source(filename, mapped=mmap), device)
    with opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - a file is no dict


def load(data: bytes) -> dict[str, Tensor]:
    """Read all tensors from the bytes of a file."""
    with safe_open(bytes(data)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_header(source: Source) -> tuple[dict[str, TensorHeader], dict[str, str] | None]:
    """Return the records of a header by name, in the order of the offsets, and the metadata."""
    if source.size < 8:
        raise source.fault(f"is no safetensors file: it has {source.size} bytes")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > min(MAX_HEADER_BYTES, source.size - 8):
        raise source.fault(
            f"is no safetensors file, or truncated: it says that its header has {length:,} bytes, and has "
            f"{source.size:,} itself (a header may have {MAX_HEADER_BYTES:,})"
        )
    header = _parsed(source, source.read(8, length))
    metadata = header.pop(METADATA, None)
    if metadata is not None and not (isinstance(metadata, dict) and all(type(x) is str for x in metadata.values())):
        raise source.fault("has metadata that are no texts")
    found = [_described(source, name, entry, 8 + length) for name, entry in header.items()]
    found.sort(key=lambda entry: (entry.offset, entry.bytes))
    end = 8 + length
    for entry in found:
        if entry.offset != end:
            what = "overlaps with the one before" if entry.offset < end else "leaves a hole before it"
            raise source.fault(f"tensor {entry.name!r:.60} {what}")
        end += entry.bytes
    if end != source.size:
        what = "is truncated" if end > source.size else "has bytes behind its tensors"
        raise source.fault(f"{what}: its tensors end at byte {end:,}, the file at {source.size:,}")
    return {entry.name: entry for entry in found}, metadata


def _parsed(source: Source, text: bytes) -> dict[str, Any]:
    depth = deepest = 0
    for token in _BRACKETS.finditer(text):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise source.fault(f"has a header that is nested {deepest} deep; three levels are needed")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise ValueError(f"{twice!r:.60} is there twice")
        return found

    try:
        header = JSONDecoder(object_pairs_hook=unique).decode(text.decode())
    except (JSONDecodeError, UnicodeDecodeError, ValueError, RecursionError) as damage:
        raise source.fault(f"has a header that is no JSON: {damage}") from damage
    if text[:1] != b"{" or not isinstance(header, dict):
        raise source.fault("has a header that is no JSON object")
    return header


def _described(source: Source, name: str, entry: Any, start: int) -> TensorHeader:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if len(entry) == 3:
            pass
        case _:
            raise source.fault(f"tensor {name!r:.60} is not described by dtype, shape and two data_offsets")
    width = DTYPES[dtype].bytes if dtype in DTYPES else FOREIGN.get(dtype)
    if width is None:
        raise source.fault(f"tensor {name!r:.60} has the unknown type {dtype!r:.20}")
    expected = width
    if len(shape) > MAX_AXES:
        raise source.fault(f"tensor {name!r:.60} has {len(shape):,} axes; {MAX_AXES} are possible")
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < INT64_LIMIT:
            raise source.fault(f"tensor {name!r:.60} has an extent that is no size")
        expected *= extent
    if not 0 <= begin <= end or end - begin != expected:
        sizes = ", ".join(map(str, shape[:8]))
        raise source.fault(
            f"tensor {name!r:.60} of {dtype} [{sizes:.80}] should have {expected!s:.20} bytes, "
            f"but has those from {begin!s:.20} to {end!s:.20}"
        )
    return TensorHeader(name, dtype, tuple(shape), start + begin, end - begin)
