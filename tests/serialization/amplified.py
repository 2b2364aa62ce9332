"""Files that are small and would take long: each kind in any size, with the function that reads it.

As a program: reads one of each kind in a size at which work that grows with the square would take hours.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import tilegrad as tg
from tilegrad.data.idx import read_idx
from tilegrad.errors import TilegradError
from tilegrad.ir.stored import NotStored, node_of
from tilegrad.nn import Linear
from tilegrad.runtime import lock
from tilegrad.serialization import safetensors
from tilegrad.serialization.archive import ArchiveWriter


class Amplified(NamedTuple):
    read: Callable[[bytes], Any]
    make: Callable[[int], bytes]
    """Makes the file for a number that its size grows with."""


# --- pickles -----------------------------------------------------------------------------------


def zipped(pickle: bytes, *entries: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with ArchiveWriter(file) as archive:
        for name, content in (("data.pkl", b"\x80\x02" + pickle + b"."), *entries):
            archive.add(name, content)
    return file.getvalue()


def load(data: bytes) -> Any:
    return tg.load(io.BytesIO(data))


def of_pickle(pickle: Callable[[int], bytes]) -> Amplified:
    return Amplified(load, lambda n: zipped(pickle(n)))


def text(x: str) -> bytes:
    return b"X" + struct.pack("<I", len(x)) + x.encode()


def integer(x: int) -> bytes:
    data = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(data)) + data


def nested_keys(n: int) -> bytes:
    levels = [b"(" + b"K\1" * n + b"tq\0", *[b"(" + b"h%c" % k * n + b"tq%c" % (k + 1) for k in range(3)]]
    return b"".join(levels) + b"}h\3K\1s"


def again(thing: bytes, use: bytes) -> Callable[[int], bytes]:
    """Something long, which is mentioned many times."""
    return lambda n: thing + b"q\0" + b"0]" + use * n


def called(name: str, long: Callable[[int], bytes], rest: bytes = b"") -> Callable[[int], bytes]:
    code = b"c" + name.replace("/", "\n").encode() + b"\n"
    return lambda n: long(n) + b"q\0" + b"0" + code + b"q\1" + b"0]" + (b"h\1(h\0" + rest + b"tR0") * n


def pairs_of_one_hash(n: int) -> bytes:
    """Tuples of two integers: the second one is found from the first by going back through the hash."""
    first, second, start, mask = 11400714785074694791, 14029467366897019727, 2870177450012600261, (1 << 64) - 1
    found: list[tuple[int, int]] = []
    a = 1
    while len(found) < n:
        a += 1
        acc = start + a * second & mask
        acc = ((acc << 31 | acc >> 33) & mask) * first & mask
        wanted = 12345 * pow(first, -1, 1 << 64) & mask
        wanted = (wanted >> 31 | wanted << 33) & mask
        b = (wanted - acc) * pow(second, -1, 1 << 64) & mask
        if b < (1 << 61) - 1:
            found.append((a, b))
    assert len({hash(pair) for pair in found}) == 1
    return b"}(" + b"".join([integer(a) + integer(b) + b"\x86N" for a, b in found]) + b"u"


def tensors(n: int, location: str = "cpu") -> bytes:
    """Views of one storage, each with more elements than lie apart."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\n" + text("0") + text(location) + integer(n) + b"tQq\0"
    shape = integer(max(1, n // 2)) + b"\x85q\1"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\nq\2(h\0K%ch\1K\1\x85\x89NtR"
    return storage + b"0" + shape + b"0](" + b"".join([tensor % (k % 2) for k in range(n)]) + b"e"


PICKLES: dict[str, Callable[[int], bytes]] = {
    "nested tuples as keys": nested_keys,
    "a long tuple as a key, again": lambda n: again(b"(" + b"K\1" * n + b"t", b"}h\0Ns0")(n),
    "a long integer as a key, again": lambda n: again(integer(1 << 8 * n), b"}h\0Ns0")(n),
    "a long integer in a tuple, again": lambda n: again(integer(1 << 8 * n) + b"\x85", b"}h\0Ns0")(n),
    "integers of one hash": lambda n: b"}(" + b"".join([integer(k * ((1 << 61) - 1)) + b"N" for k in range(n)]) + b"u",
    "pairs of one hash": pairs_of_one_hash,
    "a set of one hash": lambda n: (
        b"cbuiltins\nset\n(](" + b"".join([integer(k * ((1 << 61) - 1)) for k in range(n)]) + b"etR"
    ),
    "a frozenset of one hash": lambda n: b"(" + b"".join([integer(k * ((1 << 61) - 1)) for k in range(n)]) + b"\x91",
    "bytes from text, again": called("_codecs/encode", lambda n: text("a" * n), text("latin1")),
    "a bytearray, again": called("builtins/bytearray", lambda n: b"B" + struct.pack("<I", n) + bytes(n)),
    "a set, again": called("builtins/set", lambda n: b"](" + b"K\1" * n + b"e"),
    "a Size, again": called("torch/Size", lambda n: b"(" + b"K\1" * n + b"t"),
    "a Counter, again": called(
        "collections/Counter", lambda n: b"}(" + b"".join([integer(k) + b"N" for k in range(n)]) + b"u"
    ),
    "arguments, again": lambda n: (
        b"(" + b"K\1" * n + b"tq\0" + b"0ctorch._tensor\n_rebuild_from_type_v2\nq\1" + b"0]" + b"h\1h\0R0" * n
    ),
    "a call in a call": lambda n: (
        b"ctorch._tensor\n_rebuild_from_type_v2\nq\0" + b"(h\0N" * n + b")" + b"t" * n + b"R"
    ),
    "lists that double": lambda n: b"(]q\0" + b"](h\0h\0eq\0" * 90 + b"t",
    "tuples that double": lambda n: b"()q\0" + b"h\0h\0\x86q\0" * 90 + b"t",
    "dicts that double": lambda n: b"(}q\0" + b"}(K\1h\0K\2h\0uq\0" * 90 + b"t",
    "deep lists": lambda n: b"]" * n + b"a" * (n - 1),
    "deep tuples": lambda n: b"(" * n + b"t" * n,
    "open marks": lambda n: b"(" * n,
    "an empty stack": lambda n: b"0" * n,
    "a long location": lambda n: tensors(n, "cpu:" + "0" * n),
    "names": lambda n: b"ctorch\nFloatStorage\n0" * n + b"N",
    "unknown names": lambda n: b"c" + b"a" * n + b"\nb\n",
    "pieces of memory": lambda n: b"N" + b"".join([b"r" + struct.pack("<I", k << 12) for k in range(n)]),
}  # fmt: skip


# --- archives ----------------------------------------------------------------------------------


def many_entries(n: int) -> bytes:
    return zipped(b"N", *[(f"data/{k}", b"") for k in range(n)])


def odd_fields(n: int) -> bytes:
    """Entries whose extra fields are thousands of empty ones."""
    data = bytearray(many_entries(1 + n // 60000))
    first = data.index(b"PK\1\2")
    directory, place = bytearray(), first
    while data[place : place + 4] == b"PK\1\2":
        name, extra = struct.unpack_from("<2H", data, place + 28)
        fields = b"\7\0\0\0" * min(15000, n // 4)
        head = bytearray(data[place : place + 46 + name])
        struct.pack_into("<H", head, 30, len(fields))
        struct.pack_into("<I", head, 24, 0xFFFFFFFF)
        directory += head + fields
        place += 46 + name + extra
    end = bytearray(data[place:])
    struct.pack_into("<I", end, 12, len(directory))
    return bytes(data[:first] + directory + end)


# --- safetensors -------------------------------------------------------------------------------


def headed(header: str) -> bytes:
    return len(header.encode()).to_bytes(8, "little") + header.encode()


def entry(name: str, shape: str = "0") -> str:
    return f'"{name}":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,0]}}'


HEADERS: dict[str, Callable[[int], str]] = {
    "backslashes": lambda n: '{"' + "\\" * n,
    "an odd backslash": lambda n: '{"' + '\\"' * n + "\\",
    "quotes": lambda n: '{"' + '\\"' * n,
    "empty texts": lambda n: '{"":' + '""' * n,
    "brackets": lambda n: "[" * n,
    "brackets and back": lambda n: '{"a":' + "[" * n + "]" * n + "}",
    "a name twice": lambda n: "{" + ",".join([entry(f"{k}") for k in range(n)]) + "," + entry("0") + "}",
    "names": lambda n: "{" + ",".join([entry(f"{k}") for k in range(n)]) + "}",
    "a long name": lambda n: "{" + entry("a" * n) + "}",
    "huge extents": lambda n: "{" + entry("x", ",".join([str(1 << 62)] * n)) + "}",
    "an extent of 0": lambda n: "{" + entry("x", ",".join([str(1 << 62)] * n) + ",0") + "}",
    "a long number": lambda n: '{"a":' + "9" * n + "}",
    "a long fraction": lambda n: '{"a":0.' + "3" * n + "}",
    "a long exponent": lambda n: '{"a":1e' + "9" * n + "}",
    "metadata": lambda n: '{"__metadata__":{' + ",".join([f'"{k}":""' for k in range(n)]) + "}}",
    "spaces": lambda n: "{" + " " * n,
}


def with_wrong_name(data: bytes) -> None:
    with safetensors.safe_open(data) as file:
        file.get_tensor("0" * 100)


# --- the others --------------------------------------------------------------------------------

LOCK = "[tilegrad 1 on x]\n"
LINES: dict[str, Callable[[int], str]] = {
    "spaces in a line": lambda n: f"{LOCK}matmul 0123456789ab = m=1{' ' * n}x",
    "spaces before the note": lambda n: f"{LOCK}matmul 0123456789ab = m=1 #{' ' * n}x",
    "letters": lambda n: f"{LOCK}matmul 0123456789ab = {'m' * n}.",
    "a long name in a line": lambda n: LOCK + "m" * n,
    "digits": lambda n: f"{LOCK}matmul 0123456789ab = m={'1' * n}",
    "a long head": lambda n: "[tilegrad " + "on " * n,
    "heads": lambda n: LOCK * n,
    "lines": lambda n: LOCK + "".join([f"m {k:012x} = m=1\n" for k in range(n)]),
    "a line twice": lambda n: LOCK + "".join([f"m {k:012x} = m=1\n" for k in [*range(n), 0]]),
}
PROGRAMS: dict[str, Callable[[int], str]] = {
    "deep": lambda n: "[" * n,
    "rows": lambda n: json.dumps([["tuple"], [0], [[0, *[0] * 8]] * n]),
    "rows of rows": lambda n: json.dumps([["tuple"], [0], [[0, k, k] for k in range(n)]]),
    "sizes": lambda n: json.dumps([["tuple", "Size"], [0], [[0, 0], [1, 1]] * n]),
}


def idx(rank: int, extents: list[int], content: bytes) -> Callable[[int], bytes]:
    return lambda n: gzip.compress(bytes([0, 0, 8, rank]) + struct.pack(f">{len(extents)}I", *extents) + content * n)


IMAGES = {
    "more than it says": idx(1, [3], bytes(1000)),
    "more extents than there are": idx(255, [1 << 31] * 4, b"\1" * 4),
    "extents that wrap round": idx(4, [1 << 16] * 4, b""),
    "extents and a 0": idx(200, [1 << 31] * 199 + [0], b""),
}


def read_images(data: bytes) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder, "images")
        path.write_bytes(data)
        return read_idx(path)


def load_names(data: bytes) -> None:
    """Into a module that has none of them."""
    Linear(2, 2).load_state_dict(safetensors.load(data))


KINDS: dict[str, Amplified] = {
    **{name: of_pickle(make) for name, make in PICKLES.items()},
    "tensors over each other": Amplified(load, lambda n: zipped(tensors(n), ("data/0", bytes(4 * n)))),
    "many entries": Amplified(load, many_entries),
    "odd fields": Amplified(load, odd_fields),
    "an end after the end": Amplified(load, lambda n: zipped(b"N") + b"PK\5\6" * n),
    **{name: Amplified(safetensors.load, lambda n, make=make: headed(make(n))) for name, make in HEADERS.items()},
    "a wrong name": Amplified(with_wrong_name, lambda n: headed(HEADERS["names"](n))),
    "names that do not fit": Amplified(
        load_names, lambda n: headed("{" + ",".join([entry(f"{k}.weight") for k in range(n)]) + "}")
    ),
    **{
        name: Amplified(
            lambda data: lock.read(data.decode(), Path("kernels.lock")), lambda n, make=make: make(n).encode()
        )
        for name, make in LINES.items()
    },
    **{name: Amplified(node_of, lambda n, make=make: make(n).encode()) for name, make in PROGRAMS.items()},
    **{name: Amplified(read_images, make) for name, make in IMAGES.items()},
}
SIZE = 1 << 19
REFUSED = (TilegradError, NotStored, ValueError, LookupError, TypeError, RecursionError)
"""Damaged programs on disk may raise any exception; they are compiled again."""


def read_all(names: list[str]) -> None:
    """Reads a file of about half a mebibyte of each kind."""
    for name in names:
        kind = KINDS[name]
        data = kind.make(min(SIZE, 1000 * SIZE // len(kind.make(1000))))
        print(name, len(data), flush=True)
        try:
            kind.read(data)
        except REFUSED:
            pass


if __name__ == "__main__":
    read_all(sys.argv[1:] or list(KINDS))
