"""Elements of tensors: each type in each of its forms, as the package `onnx` reads them; hostile sizes and paths."""

from pathlib import Path

import numpy as np
import pytest

from tilegrad.errors import DataError
from tilegrad.onnx.messages import StringStringEntryProto, TensorProto
from tilegrad.onnx.problems import OnnxError
from tilegrad.onnx.tensors import ELEMENT_TYPES, array_of

HELD = {number: kind for number, kind in ELEMENT_TYPES.items() if kind.held is not None}


def external(**entries: object) -> list[StringStringEntryProto]:
    return [StringStringEntryProto(key, str(value)) for key, value in entries.items()]


@pytest.mark.parametrize("number", HELD, ids=lambda number: ELEMENT_TYPES[number].name)
@pytest.mark.parametrize("raw", [True, False])
def test_types(number: int, raw: bool) -> None:
    onnx = pytest.importorskip("onnx")
    kind = HELD[number]
    values = np.array([0, 1, 1, 0, 1, 1, 1] if kind.name in ("bool", "uint2", "int2") else [0, 1, 2, 4, 2, 1, 4])
    theirs = onnx.helper.make_tensor("t", number, [7], values.tolist())
    if raw:
        theirs = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(theirs), "t")
    found = array_of(TensorProto.parse(theirs.SerializeToString()))
    assert kind.held is not None
    assert found.dtype == kind.held.numpy
    expected = onnx.numpy_helper.to_array(theirs)
    assert np.array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_negative_numbers_of_few_bits() -> None:
    assert array_of(TensorProto([3], 22, raw_data=b"\xf8\x07")).tolist() == [-8, -1, 7]
    assert array_of(TensorProto([3], 26, raw_data=b"\x1e")).tolist() == [-2, -1, 1]


@pytest.mark.parametrize(
    "tensor, words",
    [
        (TensorProto([3], 1, raw_data=b"\0" * 8), "take 12 bytes, and there are 8"),
        (TensorProto([1 << 60], 1, raw_data=b""), "bytes, and there are 0"),
        (TensorProto([1 << 62, 4], 1, raw_data=b""), "no tensors of shape"),
        (TensorProto([0, 1 << 62], 1, raw_data=b""), "no tensors of shape"),
        (TensorProto([-1, 3], 1, raw_data=b""), "no tensors of shape"),
        (TensorProto([1] * 70, 1, raw_data=b"\0" * 4), "no tensors of shape"),
        (TensorProto([2], 99, raw_data=b""), "no element type 99"),
        (TensorProto([2], 0), "no element type 0"),
        (TensorProto([2], 8, string_data=[b"a", b"b"]), "type string are not supported"),
        (TensorProto([2], 1), "2 elements are wanted, and float_data has 0"),
        (TensorProto([2], 1, data_location=1, external_data=external(location="w")), "load the model by its path"),
    ],
)
def test_bad_tensors(tensor: TensorProto, words: str) -> None:
    with pytest.raises(OnnxError, match=words):
        array_of(tensor)


def test_external_data(tmp_path: Path) -> None:
    elements = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(b"head" * 4 + elements.tobytes())
    tensor = TensorProto([2, 3], 1, data_location=1, external_data=external(location="weights.bin", offset=16))
    found = array_of(tensor, str(tmp_path))
    assert np.array_equal(found, elements.reshape(2, 3))


@pytest.mark.parametrize(
    "entries, words",
    [
        ({"location": "../outside.bin"}, "only read from files in the folder"),
        ({"location": "inner/../../outside.bin"}, "only read from files in the folder"),
        ({"location": "/etc/hostname"}, "only read from files in the folder"),
        ({"location": "link.bin"}, "only read from files in the folder"),
        ({"location": "we\0ights.bin"}, "only read from files in the folder"),
        ({"location": ""}, "only read from files in the folder"),
        ({"location": "."}, "no such file"),
        ({"location": "missing.bin"}, "no such file"),
        ({"location": "weights.bin", "offset": "four"}, "no numbers"),
        ({"location": "weights.bin", "offset": -4}, "asked for"),
        ({"location": "weights.bin", "offset": 1 << 60}, "asked for"),
        ({"location": "weights.bin", "length": 4}, "the elements take 24 bytes"),
    ],
)
def test_hostile_locations(tmp_path: Path, entries: dict[str, object], words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (tmp_path / "outside.bin", folder / "weights.bin"):
        path.write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(DataError, match=words):
        array_of(TensorProto([6], 1, data_location=1, external_data=external(**entries)), str(folder))
