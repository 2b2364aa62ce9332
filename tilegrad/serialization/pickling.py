"""Write objects as pickles that PyTorch reads, also with `weights_only=True`, the same bytes for the same object."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..functions.promotion import kind_of
from ..ir import dtype as dtypes
from ..nn.parameter import Parameter
from ..runtime.device import Device
from ..tensor import Tensor

STORAGES = {
    dtypes.float32: "FloatStorage",
    dtypes.float64: "DoubleStorage",
    dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage",
    dtypes.int64: "LongStorage",
    dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage",
    dtypes.int8: "CharStorage",
    dtypes.uint8: "ByteStorage",
    dtypes.bool_: "BoolStorage",
}
"""PyTorch's names for typed storages; other dtypes are stored as bytes."""
DEEPEST = 100
SCALARS = (type(None), bool, int, float, complex, str, bytes, bytearray, dtypes.DType, Device)


class Placed(NamedTuple):
    """The storage, offset and layout of a tensor in a file."""

    key: str
    elements: int
    """Number of elements of the storage."""
    location: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def tensors_of(thing: Any, path: str = "the object", above: tuple[int, ...] = ()) -> Iterator[Tensor]:
    """Return every tensor in an object, after checking that the object can be saved."""
    if isinstance(thing, Tensor):
        yield thing
        return
    if type(thing) in SCALARS or isinstance(thing, (np.generic, Device)):
        return
    if id(thing) in above or len(above) >= DEEPEST:
        why = "contains itself" if id(thing) in above else f"is nested more than {DEEPEST} deep"
        raise ArgumentError(f"save: {path:.200} {why}")
    inside = (*above, id(thing))
    if type(thing) in (dict, OrderedDict, Counter):
        for key, item in thing.items():
            _check_key(key, path)
            yield from tensors_of(item, f"{path}[{key!r}]", inside)
    elif type(thing) in (list, tuple):
        for n, item in enumerate(thing):
            yield from tensors_of(item, f"{path}[{n}]", inside)
    elif type(thing) is set:
        for item in thing:
            _check_key(item, path)
    else:
        raise ArgumentError(f"save: {path} is {kind_of(thing)}, which cannot be saved; {_advice(thing)}")


def _check_key(key: Any, path: str) -> None:
    if type(key) not in (str, int, float, bool, bytes, type(None)) and not (
        type(key) is tuple and all(type(k) in (str, int, float, bool) for k in key)
    ):
        raise ArgumentError(f"save: {path} has the key {key!r:.60}; numbers, strings and tuples of them can be saved")


def _advice(thing: Any) -> str:
    if hasattr(thing, "state_dict"):
        return "save its state_dict(): a file has no code in it"
    if isinstance(thing, np.ndarray):
        return "save tilegrad.tensor(...) of it"
    for kind in (dict, list, tuple, str, int, float):
        if isinstance(thing, kind):
            return f"save {kind.__name__}(...) of it: a file has no classes in it"
    return "numbers, strings, tensors, and lists, tuples, sets and dicts of these can"


class Pickler:
    """Write one pickle of protocol 2. Tensors, lists and dicts that are mentioned twice are one when loaded."""

    def __init__(self, places: Mapping[int, Placed]) -> None:
        self.places = places
        self.out = bytearray(b"\x80\x02")
        self.names: dict[str, int] = {}
        self.known: dict[int, tuple[int, Any]] = {}
        """Numbers of the written objects, with the objects, which keeps their ids unique."""
        self.count = 0

    def dump(self, thing: Any) -> bytes:
        self.write(thing)
        return bytes(self.out + b".")

    def write(self, x: Any) -> None:
        if isinstance(x, Tensor):
            self._once(x, self._tensor)
        elif isinstance(x, np.generic):
            self.write(x.item())
        elif type(x) in (list, dict, OrderedDict, Counter, set):
            self._once(x, self._container)
        elif type(x) is tuple:
            self._tuple(x)
        else:
            self._scalar(x)

    def _once(self, x: Any, write: Any) -> None:
        known = self.known.get(id(x))
        if known is not None:
            self._recall(known[0])
        else:
            write(x)
            # a container is known only when it is complete: `tensors_of` found that none contains itself
            self.known[id(x)] = (self._remember(), x)

    def _remember(self) -> int:
        self.out += b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count)
        self.count += 1
        return self.count - 1

    def _recall(self, number: int) -> None:
        self.out += b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)

    def name(self, name: str) -> None:
        """Write a function or class, by the name that PyTorch looks up."""
        self._text_once(name, b"c" + name.replace("/", "\n").encode() + b"\n")

    def text(self, x: str) -> None:
        data = x.encode("utf-8", "surrogatepass")
        self._text_once(f"={x}", b"X" + struct.pack("<I", len(data)) + data)

    def _text_once(self, key: str, code: bytes) -> None:
        number = self.names.get(key)
        if number is not None:
            self._recall(number)
        else:
            self.out += code
            self.names[key] = self._remember()

    def call(self, name: str, *arguments: Any) -> None:
        self.name(name)
        self._tuple(arguments)
        self.out += b"R"

    def _scalar(self, x: Any) -> None:
        match x:
            case None:
                self.out += b"N"
            case bool():
                self.out += b"\x88" if x else b"\x89"
            case int():
                self._integer(x)
            case float():
                self.out += b"G" + struct.pack(">d", x)
            case str():
                self.text(x)
            case _Written(write):
                write(self)
            case _:
                self._by_name(x)

    def _by_name(self, x: Any) -> None:
        """Write an object as a call of a function that PyTorch knows."""
        match x:
            case complex():
                self.call("__builtin__/complex", x.real, x.imag)
            case bytes():
                self.call("_codecs/encode", x.decode("latin1"), "latin1")
            case bytearray():
                self.call("__builtin__/bytearray", bytes(x))
            case dtypes.DType():
                self.name(f"torch/{x.name}")
            case Device():
                self.call("torch/device", x.name)

    def _integer(self, x: int) -> None:
        if 0 <= x < 256:
            self.out += b"K" + bytes([x])
        elif -(1 << 31) <= x < 1 << 31:
            self.out += b"J" + struct.pack("<i", x)
        else:
            data = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
            if len(data) > 255:
                raise ArgumentError(f"save: an integer of {x.bit_length()} bits; 2039 can be saved")
            self.out += b"\x8a" + bytes([len(data)]) + data

    def _tuple(self, x: tuple[Any, ...]) -> None:
        if len(x) > 3:
            self.out += b"("
        for item in x:
            self.write(item)
        self.out += (b")", b"\x85", b"\x86", b"\x87")[len(x)] if len(x) <= 3 else b"t"

    def _container(self, x: Any) -> None:
        if type(x) is list:
            self.out += b"]("
            for item in x:
                self.write(item)
            self.out += b"e"
        elif type(x) is set:
            self.call("__builtin__/set", sorted(x, key=repr))
        elif type(x) is Counter:
            self.call("collections/Counter", dict(x))
        else:
            if type(x) is dict:
                self.out += b"}"
            else:
                self.call("collections/OrderedDict")
            self.out += b"("
            for key, item in x.items():
                self.write(key)
                self.write(item)
            self.out += b"u"

    def _tensor(self, x: Tensor) -> None:
        if isinstance(x, Parameter):
            self.call("torch._utils/_rebuild_parameter", _Written(lambda m: m.plain(x, False)), x.requires_grad, _HOOKS)
        else:
            self.plain(x, bool(x.requires_grad))

    def plain(self, x: Tensor, requires_grad: bool) -> None:
        """Write a tensor as PyTorch rebuilds it from its storage."""
        place, dtype = self.places[id(x)], x.dtype
        typed = dtype in STORAGES
        storage = f"torch/{STORAGES[dtype]}" if typed else "torch.storage/UntypedStorage"
        count = place.elements if typed else place.elements * dtype.bytes
        kind = _Written(lambda m: m.name(storage))

        def stored(m: Pickler) -> None:
            m._tuple(("storage", kind, place.key, place.location, count))
            m.out += b"Q"

        arguments = (_Written(stored), place.offset, place.shape, place.strides, requires_grad, _HOOKS)
        if typed:
            self.call("torch._utils/_rebuild_tensor_v2", *arguments)
        else:
            self.call("torch._utils/_rebuild_tensor_v3", *arguments, dtype)


class _Written(NamedTuple):
    """An argument with its own way of being written."""

    write: Any


_HOOKS = _Written(lambda m: m.call("collections/OrderedDict"))
