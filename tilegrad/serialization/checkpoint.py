"""Define `save` and `load`: numbers, strings, tensors, and containers of them, as `.pt` files of PyTorch.

Written is PyTorch's zip layout, such that `torch.load(weights_only=True)` reads it. Read are that layout and the one
that PyTorch wrote before 1.6. No code in a file is ever executed, and nothing is allocated before its size was checked.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from sys import byteorder
from typing import Any

import numpy as np

from ..errors import ArgumentError, CheckpointError
from ..ir.dtype import DTYPES, FLOAT8, DType
from ..ir.graph import Value
from ..lazy.evaluation import array_of, compute
from ..lazy.handle import wrap
from ..lazy.layout import in_memory_order, layout
from ..lazy.storage import detached
from ..nn.parameter import Parameter
from ..ops.broadcasting import dense
from ..runtime.device import Device
from ..tensor import Tensor
from .archive import Archive, ArchiveWriter
from .files import File, Source, replacing
from .pickling import DEEPEST, STORAGES, Pickler, Placed, tensors_of
from .storages import MAX_AXES, SAVED_KINDS, Filler, Part, PickledStorage, check, placed
from .unpickling import Constructor, Unpickler

MAGIC = 0x1950A86A20F9469CFC6C
"""First object in a file in PyTorch's format before zip files."""
LEGACY = 1001
"""Second object in such a file."""
MAX_PARTS, MAX_PARTS_PER_BYTE = 1 << 24, 64
"""Largest number of parts of an object, each counted as often as it is mentioned: in total, and per byte of the file.
"""
MAX_LOCATION_BYTES = 64


# --- writing -----------------------------------------------------------------------------------


def save(obj: Any, f: File) -> None:
    """Save an object with tensors. Tensors that share memory still do so when they are loaded.

    >>> import tilegrad as tg, io
    >>> file = io.BytesIO()
    >>> save({"weight": tg.ones(2), "epoch": 3}, file)
    >>> load(io.BytesIO(file.getvalue()))
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    tensors = list({id(x): x for x in tensors_of(obj)}.values())
    compute(*[x for x in tensors if not x._moves])
    places, storages = _places(tensors)
    pickle = Pickler(places).dump(obj)
    with replacing(f) as file, ArchiveWriter(file) as archive:
        archive.add("data.pkl", pickle)
        archive.add("byteorder", byteorder.encode())
        for n, storage in enumerate(storages):
            archive.add(f"data/{n}", np.ascontiguousarray(array_of(storage)).reshape(-1).view(np.uint8))
        archive.add("version", b"3\n")


def _places(tensors: list[Tensor]) -> tuple[dict[int, Placed], list[Tensor]]:
    """Assign each tensor to a storage. A view whose base is not saved is saved as a copy."""
    shared = Counter([_memory(x) for x in tensors])
    storages: list[Tensor] = []
    numbers: dict[int, int] = {}
    places: dict[int, Placed] = {}
    for x in tensors:
        whole, memory = x, _memory(x)
        offset, strides = 0, dense(x.shape)
        ordered = in_memory_order(x) if shared[memory] == 1 else x
        if (
            ordered._moves
            and ordered._strides is None
            and (shared[memory] > 1 or x.numel() == _whole(ordered).type.count)
        ):
            base = wrap(detached(_whole(ordered)))
            if base.dtype is x.dtype:
                strides, offset = layout(ordered)  # type: ignore[assignment]
                whole = base
            else:
                memory = id(x)
        elif x._moves:
            memory = id(x)
        if memory not in numbers:
            numbers[memory] = len(storages)
            storages.append(whole)
        location = x.device.name if x.device.kind in SAVED_KINDS else "cpu"
        places[id(x)] = Placed(str(numbers[memory]), whole.numel(), location, offset, x.shape, strides)  # type: ignore[arg-type]
    return places, storages


def _whole(x: Tensor) -> Value:
    """Return the elements of the whole storage of a tensor."""
    return x.base().current()


def _memory(x: Tensor) -> int:
    """Return a key that tensors on the same memory share."""
    return id(x._value) if x._base is None else id(x._base.storage)


# --- reading -----------------------------------------------------------------------------------


def load(
    f: File,
    map_location: Device | str | Mapping[str, str] | None = None,
    *,
    weights_only: bool = True,
    mmap: bool = False,
) -> Any:
    """Load what `save` or PyTorch's `torch.save` wrote, without executing anything in the file.

    With `mmap` elements are brought from the disk when they are looked at; the file must not be changed meanwhile.
    """
    if not weights_only:
        raise ArgumentError("load: weights_only=False would execute code from the file, which tilegrad never does")
    with Source(f, mmap) as source:
        reader = _Reader(source)
        read = reader.zipped if source.read(0, min(4, source.size)) == b"PK\3\4" else reader.legacy
        result, bytes_of, order = read()
        check_nesting(result, source.name, MAX_PARTS + MAX_PARTS_PER_BYTE * source.size)
        Filler(bytes_of, source.size, placed(map_location, source.name), order != byteorder).fill(
            list(reader.parts.values())
        )
        return result


Bytes = Callable[[PickledStorage, int, int], "np.ndarray[Any, Any]"]


class _Reader:
    """The reader of one file: the names that its pickles may use, and the tensors found so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.parts: dict[int, Part] = {}
        self.stored: dict[str, PickledStorage] = {}
        makers: dict[str, Callable[..., Any]] = {
            "collections.OrderedDict": OrderedDict,
            "collections.Counter": _counted,
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._untyped_tensor,
            "torch._utils._rebuild_parameter": self._parameter,
            "torch._utils._rebuild_parameter_with_state": self._parameter,
            "torch._tensor._rebuild_from_type_v2": _from_type,
            "torch.Size": _tuple,
            "torch.device": _device,
            "_codecs.encode": _encoded,
            "builtins.bytes": _no_bytes,
            "builtins.set": _set,
            "builtins.bytearray": _bytearray,
            "builtins.complex": _complex,
        }
        self.known: dict[str, Any] = {name: Constructor(name, make, make is _set) for name, make in makers.items()}
        self.known["collections.OrderedDict"] = Constructor("OrderedDict", _ordered)
        self.known |= {f"torch.{d.name}": d for d in (*DTYPES, *FLOAT8)}
        self.known |= {f"torch.{name}": dtype for dtype, name in STORAGES.items()}
        self.known |= dict.fromkeys(("torch.storage.UntypedStorage", "torch.UntypedStorage"))
        self.known |= {"torch.Tensor": Tensor, "torch.nn.parameter.Parameter": Parameter}

    def zipped(self) -> tuple[Any, Bytes, str]:
        """Return the object of a zip file, the reader of its storages, and their byte order."""
        archive = Archive(self.source)
        pickle = archive.read("data.pkl")
        order = archive.read("byteorder").decode("latin1") if "byteorder" in archive.entries else "little"
        if order not in ("little", "big"):
            raise self.source.fault(f"has the byte order {order!r:.20}")
        result = Unpickler(self.source.name, pickle, self.known, self._storage).load()
        for stored in self.stored.values():
            entry, expected = archive.entry(f"data/{stored.key}"), _bytes(stored)
            if entry.bytes != expected:
                raise self.source.fault(f"storage {stored.key} has {entry.bytes:,} bytes, not {expected:,}")

        def bytes_of(stored: PickledStorage, first: int, count: int) -> np.ndarray[Any, Any]:
            name = f"data/{stored.key}"
            found = self.source.array(archive.entries[name].offset + first, count)
            if count == archive.entries[name].bytes and self.source.map is None:
                archive.check(name, found)
            return found

        return result, bytes_of, order

    def legacy(self) -> tuple[Any, Bytes, str]:
        """Return the object of a legacy file (pickles, then the storages), the reader of its storages, and their byte
        order.
        """
        source = self.source
        data = source.array(0, source.size).data
        unpickler = Unpickler(source.name, data, self.known, self._storage)
        pickled = data[:1].tobytes() == b"\x80"
        if not pickled or any(type(found := unpickler.load()) is not int or found != n for n in (MAGIC, LEGACY)):
            raise source.fault(f"is no file of tensors: it begins with {bytes(data[:8]).hex(' ') or 'nothing'}")
        system = unpickler.load()
        little = not isinstance(system, dict) or system.get("little_endian") is not False
        result = unpickler.load()
        keys = unpickler.load()
        if not isinstance(keys, list) or any(type(key) is not str or key not in self.stored for key in keys):
            raise source.fault("is damaged: its list of storages is wrong")
        offsets = self._legacy_offsets(keys, unpickler.place, little)
        if len(offsets) < len(self.stored):
            raise source.fault("is damaged: not all of its storages are there")
        read = lambda stored, first, count: source.array(offsets[stored.key] + first, count)  # noqa: E731
        return result, read, "little" if little else "big"

    def _legacy_offsets(self, keys: list[str], place: int, little: bool) -> dict[str, int]:
        """Return the place of the elements of each storage: after a count of elements."""
        offsets: dict[str, int] = {}
        for key in keys:
            stored = self.stored[key]
            count = struct.unpack("<q" if little else ">q", self.source.read(place, 8))[0]
            width = stored.dtype.bytes if stored.dtype else 1
            if count != stored.elements or place + 8 + count * width > self.source.size:
                announced = f"{stored.elements:,} were announced"
                raise self.source.fault(f"storage {key!r:.40} has {count:,} elements; {announced}")
            offsets[key] = place + 8
            place += 8 + count * width
        return offsets

    def _storage(self, named: Any) -> PickledStorage:
        """Return the storage that a pickle names."""
        match named:
            case ("storage", DType() | None as dtype, str(key), str(location), int(count), *rest) if (
                _no_view(rest) and len(location) <= MAX_LOCATION_BYTES
            ):
                pass
            case _:
                raise self.source.fault(f"names something as a storage that is none ({type(named).__name__})")
        if not 0 <= count <= self.source.size:
            raise self.source.fault(f"has {self.source.size:,} bytes, but storage {key!r:.40} {count:,} elements")
        stored = PickledStorage(key, dtype, location, count)
        if self.stored.setdefault(key, stored) != stored:
            raise self.source.fault(f"describes storage {key!r:.40} in two ways")
        return self.stored[key]

    def _tensor(
        self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, *_: Any
    ) -> Tensor:
        dtype = storage.dtype if isinstance(storage, PickledStorage) else None
        return self._untyped_tensor(storage, offset, shape, strides, requires_grad, None, dtype)

    def _untyped_tensor(
        self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any, *_: Any
    ) -> Tensor:
        if not isinstance(storage, PickledStorage) or not isinstance(dtype, DType):
            raise TypeError("a tensor without storage")
        if not isinstance(shape, tuple) or not isinstance(strides, tuple) or len(shape) > MAX_AXES:
            raise TypeError(f"a tensor without shape, or with more than {MAX_AXES} axes")
        made = object.__new__(Tensor)
        part = Part(made, storage, dtype, offset, shape, strides, requires_grad is True and dtype.is_float)
        self.parts[id(made)] = check(part, self.source.fault)
        return made

    def _parameter(self, data: Any, requires_grad: Any = True, *_: Any) -> Parameter:
        part = self.parts.get(id(data))
        if part is None:
            raise TypeError("a parameter without tensor")
        made = object.__new__(Parameter)
        wanted = requires_grad is True and part.dtype.is_float
        self.parts[id(made)] = part._replace(tensor=made, requires_grad=wanted)
        return made


def _no_view(rest: list[Any]) -> bool:
    """Refuse a storage that is part of another, which PyTorch once could write."""
    return not rest or (len(rest) == 1 and rest[0] is None)


def _bytes(stored: PickledStorage) -> int:
    return stored.elements * (stored.dtype.bytes if stored.dtype else 1)


# --- what stands for functions and classes -----------------------------------------------------


def _ordered() -> OrderedDict[Any, Any]:
    return OrderedDict()


def _counted(items: dict[Any, Any]) -> Counter[Any]:
    if type(items) is not dict:
        raise TypeError("a Counter without counts")
    return Counter(items)


def _tuple(items: Any) -> tuple[Any, ...]:
    return tuple([int(n) for n in items])


def _device(kind: Any, index: Any = None) -> str:
    return f"{kind}" if index is None else f"{kind}:{index}"


def _encoded(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise TypeError("bytes in an unknown encoding")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _set(items: Any = ()) -> set[Any]:
    if type(items) is not list or any(type(x) not in (str, int, float, bool, bytes) for x in items):
        raise TypeError("a set of something else than numbers and strings")
    return set(items)


def _bytearray(data: Any = b"") -> bytearray:
    if type(data) is not bytes:
        raise TypeError("a bytearray of something else than bytes")  # of a number it would be that long
    return bytearray(data)


def _complex(real: float, imaginary: float) -> complex:
    return complex(real, imaginary)


def _from_type(maker: Constructor, kind: Any, arguments: tuple[Any, ...], state: Any) -> Any:
    """Return a tensor without the attributes of its own that a file has for it."""
    if not isinstance(maker, Constructor) or maker.make is _from_type:
        raise TypeError("a tensor made by nothing")
    return maker.make(*arguments)


def check_nesting(thing: Any, name: str, most: int) -> None:
    """Raise for an object that contains itself, is nested too deeply, or mentions its parts more than `most` times in
    all.
    """
    sizes: dict[int, int] = {}
    path: dict[int, None] = {}
    stack: list[tuple[Any, bool]] = [(thing, False)]
    while stack:
        x, leaving = stack.pop()
        if leaving:
            del path[id(x)]
            inside = [*x.keys(), *x.values()] if isinstance(x, dict) else x
            sizes[id(x)] = 1 + sum([sizes[id(y)] if id(y) in sizes else _length(y) for y in inside])
            if sizes[id(x)] > most:
                raise CheckpointError(
                    f"{name} has a {type(x).__name__} that mentions its parts more than {most:,} times"
                )
        elif isinstance(x, (dict, list, tuple)) and id(x) not in sizes:
            if id(x) in path:
                raise CheckpointError(f"{name} has a {type(x).__name__} that contains itself")
            if len(path) >= DEEPEST:
                raise CheckpointError(f"{name} is nested more than {DEEPEST} deep")
            path[id(x)] = None
            stack.append((x, True))
            inside = [*x.keys(), *x.values()] if isinstance(x, dict) else x
            stack.extend((y, False) for y in inside if isinstance(y, (dict, list, tuple)))


def _length(x: Any) -> int:
    return 1 + len(x) // 16 if isinstance(x, (str, bytes, bytearray, set, frozenset)) else 1
