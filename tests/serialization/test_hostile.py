"""Files that lie: whatever is in them, loading raises an error that names the file, and allocates little."""

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad.errors import CheckpointError, DTypeError, MissingFileError, TilegradError, UnsafeFileError
from tilegrad.serialization import load, safetensors, save


def zipped(data: bytes, *entries: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in [("data.pkl", data), *entries]:
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def tensor(offset: bytes, shape: bytes, strides: bytes, key: bytes = b"0", count: bytes = b"K\x04") -> bytes:
    """The pickle of a tensor of four numbers, with what was asked for in place of the truth."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + key + b"X\3\0\0\0cpu" + count + b"tQ"
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + offset + shape + strides + b"\x89NtR."
    )  # fmt: skip


FOUR = ("data/0", np.arange(4, dtype=np.float32).tobytes())
WHOLE = tensor(b"K\0", b"K\4\x85", b"K\1\x85")
HUGE = b"\x8a\x09" + (1 << 62).to_bytes(9, "little")
REDUCED = b"cos\nsystem\nX\4\0\0\0true\x85R."


def test_the_whole_one_is_fine() -> None:
    assert load(io.BytesIO(zipped(WHOLE, FOUR))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"\x80\x02" + REDUCED, "asks for os.system"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "asks for posix.system"),
        (b"\x80\x02cbuiltins\neval\nX\1\0\0\0001\x85R.", "asks for builtins.eval"),
        (b"\x80\x02c__builtin__\neval\nX\1\0\0\0001\x85R.", "asks for builtins.eval"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "asks for torch._utils._rebuild_tensor_v2.__gl"),
        (b"\x80\x02ccollections\nOrderedDict\n)R}X\1\0\0\0aK\1sbccollections\nOrderedDict\n)R]b.", "sets attributes"),
        (b"\x80\x02]]b.", "sets attributes of a list"),
        (b"\x80\x02K\1)R.", "calls a int"),
    ],
)
def test_no_code_is_executed(pickled: bytes, message: str) -> None:
    with pytest.raises(UnsafeFileError, match=message):
        load(io.BytesIO(zipped(pickled, FOUR)))


def test_what_python_would_execute(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    for protocol in range(2, 6):
        with pytest.raises(UnsafeFileError, match="mkdir"):
            load(io.BytesIO(zipped(pickle.dumps({"model": Bomb()}, protocol))))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"", "ends too early"),
        (b"\x80\x02", "ends too early"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x02X\xff\xff\xff\xff", "ends too early"),
        (b"\x80\x05\x8d" + b"\xff" * 8, "ends too early"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f", "ends too early"),
        (b"\x80\x02\x8b\xff\xff\xff\xff.", "ends too early"),
        (b"\x80\x020.", "damaged at byte"),
        (b"\x80\x02(K\1", "ends too early"),
        (b"\x80\x02(K\1.", "open mark"),
        (b"\x80\x02h\5.", "damaged at byte"),
        (b"\x80\x02K\1K\2.", "damaged at byte"),
        (b"\x80\x02}]K\1s.", "a list as a key"),
        (b"\x80\x02K\1K\2a.", "no list"),
        (b"\x80\x02]q\0h\0a.", "contains itself"),
        (b"\x80\x02}q\0X\1\0\0\0ah\0s.", "contains itself"),
        (b"\x80\x02" + b"(" * 200 + b"t" * 200 + b".", "nested more than"),
        (b"\x80\x02I1\n.", "which tensors do not need"),
        (b"\x80\x02X\1\0\0\0aQ.", "names something as a storage"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1))NNtR.", "a tensor without storage"),
        (b"\x80\x02cbuiltins\nbytearray\n" + HUGE + b"\x85R.", "bytearray"),
        (tensor(b"K\0", HUGE + b"\x85", b"K\1\x85"), "reads element"),
        (tensor(b"K\0", HUGE + HUGE + b"\x86", b"K\0K\0\x86"), "a tensor has the shape"),
        (tensor(b"K\1", b"K\4\x85", b"K\1\x85"), r"reads element 4 of storage 0, which has 4"),
        (tensor(b"J\xff\xff\xff\xff", b"K\4\x85", b"K\1\x85"), "offset -1"),
        (tensor(b"K\3", b"K\4\x85", b"J\xff\xff\xff\xff\x85"), r"strides \(-1,\)"),
        (tensor(b"K\0", b"K\4\x85", b")"), "1 axes and 0 strides"),
        (tensor(b"K\0", b"\x88\x85", b"K\1\x85"), "no numbers"),
        (tensor(b"K\0", b"K\4\x85", b"K\1\x85", key=b"7"), "no entry 'data/7'"),
        (tensor(b"K\0", b"K\4\x85", b"K\1\x85", count=b"K\5"), "storage 0 has 16 bytes, not 20"),
        (tensor(b"K\0", b"K\4\x85", b"K\1\x85", count=HUGE), "but storage '0'"),
    ],
)
def test_lies_in_the_pickle(pickled: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        load(io.BytesIO(zipped(pickled, FOUR)))
    assert "BytesIO" in str(caught.value)


def test_repeated_elements_take_no_memory() -> None:
    """An axis of stride 0 is allowed, and stays a view; what overlaps otherwise is bounded."""
    long = b"\x8a\x06" + (1 << 40).to_bytes(6, "little")
    wide = load(io.BytesIO(zipped(tensor(b"K\0", long + b"K\4\x86", b"K\0K\1\x86"), FOUR)))
    assert wide.shape == (1 << 40, 4)
    assert wide[5].tolist() == [0, 1, 2, 3]
    many = b"\x80\x02](" + b"".join(tensor(b"K\0", b"K\2K\2\x86", b"K\1K\1\x86")[2:-1] for _ in range(3)) + b"e."
    assert [x.tolist() for x in load(io.BytesIO(zipped(many, FOUR)))] == [[[0, 1], [1, 2]]] * 3
    count = struct.pack("<i", 1 << 18)
    big = ("data/0", bytes(4 << 18))
    rows = tensor(b"K\0", b"J\x80\0\0\0J\0\0\2\0\x86", b"K\1K\1\x86", count=b"J" + count)
    with pytest.raises(CheckpointError, match="more than a file of this size can need"):
        load(io.BytesIO(zipped(rows, big)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "damaged or truncated zip file"),
        (lambda data: data[:10], "damaged or truncated zip file"),
        (lambda data: b"", "begins with nothing"),
        (lambda data: b"GARBAGE" * 10, "is no file of tensors"),
        (lambda data: data.replace(FOUR[1], bytes(16)), "its checksum is wrong"),
        (lambda data: zipped(WHOLE, FOUR, compression=zipfile.ZIP_DEFLATED), "is compressed"),
        (lambda data: zipped(bytes(1 << 20), compression=zipfile.ZIP_DEFLATED), "is compressed"),
        (lambda data: zipped(WHOLE, FOUR, ("../x", b"")), None),
        (lambda data: zipped(WHOLE, FOUR, ("byteorder", b"middle")), "byte order 'middle'"),
        (lambda data: zipped(WHOLE), "no entry 'data/0'"),
    ],
)
def test_lies_in_the_archive(damage: Callable[[bytes], bytes], message: str | None) -> None:
    data = damage(zipped(WHOLE, FOUR))
    if message is None:
        assert load(io.BytesIO(data)).tolist() == [0, 1, 2, 3]
        return
    with pytest.raises(CheckpointError, match=message):
        load(io.BytesIO(data))


def test_entries_that_overlap() -> None:
    """Two entries of the directory that share their bytes: the way to make a small file look large."""
    data = zipped(WHOLE, FOUR, ("data/1", FOUR[1]))
    first, second = data.index(b"archive/data/0") - 30, data.index(b"archive/data/1") - 30
    assert data[first : first + 4] == data[second : second + 4] == b"PK\3\4"
    place = data.rindex(struct.pack("<I", second))
    with pytest.raises(CheckpointError, match="lies over another"):
        load(io.BytesIO(data[:place] + struct.pack("<I", first) + data[place + 4 :]))


def test_missing_files(tmp_path: Path) -> None:
    for reader in (load, safetensors.load_file, safetensors.safe_open):
        with pytest.raises(MissingFileError, match="there is no file .*/nothing.pt"):
            reader(tmp_path / "nothing.pt")  # type: ignore[operator]
        with pytest.raises(FileNotFoundError):
            reader(str(tmp_path / "nothing.pt"))  # type: ignore[operator]
        with pytest.raises(CheckpointError, match="cannot be read"):
            reader(tmp_path)  # type: ignore[operator]


def headed(header: str | bytes, elements: bytes = bytes(8)) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return len(text).to_bytes(8, "little") + text + elements


def entry(shape: str = "[2]", offsets: str = "[0,8]", dtype: str = '"F32"') -> str:
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def test_the_whole_header_is_fine() -> None:
    assert safetensors.load(headed('{"x":' + entry() + "}"))["x"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has 0 bytes"),
        (b"\xff" * 8, "says that its header has 18,446"),
        (b"\x10" + bytes(7) + b"{}", "header has 16 bytes"),
        (headed(""), "no JSON"),
        (headed("[]"), "no JSON object"),
        (headed(" {}", b""), "no JSON object"),
        (headed(b'{"\xff":1}'), "no JSON"),
        (headed('{"a":' + "[" * 100_000), "nested 100001 deep"),
        (headed('{"x":' + entry() + ',"x":' + entry() + "}"), "'x' is there twice"),
        (headed('{"x":' + entry("[3]") + "}"), "should have 12 bytes"),
        (headed('{"x":' + entry("[-2]") + "}"), "no size"),
        (headed('{"x":' + entry("[2.0]") + "}"), "no size"),
        (headed('{"x":' + entry("[true]") + "}"), "no size"),
        (headed('{"x":' + entry(f"[{1 << 62},{1 << 62},4]") + "}"), "should have"),
        (headed('{"x":' + entry("[" + "9" * 5000 + "]") + "}"), "no JSON"),
        (headed('{"x":' + entry(offsets="[8,0]") + "}"), "should have 8 bytes, but has those from 8 to 0"),
        (headed('{"x":' + entry(offsets="[-8,0]") + "}"), "from -8 to 0"),
        (headed('{"x":' + entry(offsets="[4,12]") + "}"), "leaves a hole"),
        (headed('{"x":' + entry(offsets='[0,"8"]') + "}"), "not described"),
        (headed('{"x":' + entry(dtype='"F7"') + "}"), "unknown type 'F7'"),
        (headed('{"x":3}'), "not described"),
        (headed('{"x":' + entry() + ',"y":' + entry() + "}"), "overlaps"),
        (headed('{"x":' + entry() + "}", bytes(7)), "is truncated"),
        (headed('{"x":' + entry() + "}", bytes(9)), "bytes behind its tensors"),
        (headed('{"__metadata__":{"a":1}}', b""), "metadata that are no texts"),
    ],
)
def test_lies_in_a_header(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        safetensors.load(data)


def test_types_that_are_not_there() -> None:
    data = headed('{"x":' + entry("[8]", dtype='"F8_E8M0"') + "}")
    with safetensors.safe_open(data) as file:
        assert file.keys() == ["x"]
        with pytest.raises(DTypeError, match="F8_E8M0"):
            file.get_tensor("x")


def state() -> dict[str, Any]:
    x = tg.arange(12).float().reshape(3, 4)
    return {"x": x, "t": x.t(), "part": x[1:, ::2], "n": [1, 2.5, None, ("a", True)], "h": tg.ones(2).half()}


def checkpoint(legacy: bool = False) -> bytes:
    file = io.BytesIO()
    if legacy:
        torch = pytest.importorskip("torch")
        x = torch.arange(12.0).reshape(3, 4)
        torch.save({"x": x, "t": x.t(), "n": [1, "a"]}, file, _use_new_zipfile_serialization=False)
    else:
        save(state(), file)
    return file.getvalue()


def survives(read: Callable[[bytes], Any], data: bytes) -> None:
    """Reading gives something or raises one of our errors, and takes memory in proportion to the file."""
    tracemalloc.start()
    try:
        read(data)
    except TilegradError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 * len(data) + (1 << 20), f"{peak:,} bytes for a file of {len(data):,}"


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """The file with some bytes changed, cut out, doubled or cut off."""
    place = st.integers(0, len(data) - 1)
    change = st.one_of(
        st.tuples(st.just("set"), place, st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("insert"), place, st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("cut"), place, st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("end"), place, st.just(b"")),
    )

    def applied(changes: list[tuple[str, int, bytes]]) -> bytes:
        found = data
        for kind, at, new in changes:
            match kind:
                case "set":
                    found = found[:at] + new + found[at + len(new) :]
                case "insert":
                    found = found[:at] + new + found[at:]
                case "cut":
                    found = found[:at] + found[at + len(new) :]
                case "end":
                    found = found[:at]
        return found

    return st.lists(change, min_size=1, max_size=3).map(applied)


ZIPPED = checkpoint()
with zipfile.ZipFile(io.BytesIO(ZIPPED)) as _archive:
    PICKLE = _archive.read("archive/data.pkl")
    ENTRIES = [
        (name.removeprefix("archive/"), _archive.read(name)) for name in _archive.namelist() if "pkl" not in name
    ]


@given(mutated(ZIPPED))
def test_mutated_archives(data: bytes) -> None:
    survives(lambda data: load(io.BytesIO(data)), data)


@given(mutated(PICKLE))
def test_mutated_pickles(data: bytes) -> None:
    survives(lambda data: load(io.BytesIO(data)), zipped(data, *ENTRIES))


@given(st.data())
def test_mutated_files_from_before(data: st.DataObject) -> None:
    survives(lambda data: load(io.BytesIO(data)), data.draw(mutated(checkpoint(legacy=True))))


@given(mutated(safetensors.save({"x": tg.arange(6).reshape(2, 3), "h": tg.ones(3).half()}, {"k": "v"})))
def test_mutated_safetensors(data: bytes) -> None:
    survives(safetensors.load, data)


@given(st.binary(max_size=300))
def test_anything(data: bytes) -> None:
    survives(lambda data: load(io.BytesIO(data)), data)
    survives(lambda data: load(io.BytesIO(zipped(b"\x80\x02" + data + b"."))), data)
    survives(safetensors.load, data)
