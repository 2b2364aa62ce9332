"""The layout of safetensors files, byte by byte, and what is read of them lazily."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad.errors import ArgumentError
from tilegrad.ir.dtype import DTYPES
from tilegrad.serialization import safe_open, safetensors


def test_the_bytes() -> None:
    """Wider types come first, then names in their order; the header is padded to eight bytes."""
    x = tg.tensor([[1, 2, 3], [4, 5, 6]], dtype=tg.int16)
    data = safetensors.save({"b": tg.tensor([True, False]), "a": x, "c": tg.tensor(1.0)}, {"z": "é", "k": "v"})
    header = (
        '{"__metadata__":{"k":"v","z":"é"},'
        '"c":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
        '"a":{"dtype":"I16","shape":[2,3],"data_offsets":[4,16]},'
        '"b":{"dtype":"BOOL","shape":[2],"data_offsets":[16,18]}}'
    ).encode()
    header += b" " * (-len(header) % 8)
    assert data == struct.pack("<Q", len(header)) + header + struct.pack("<f6h2?", 1, 1, 2, 3, 4, 5, 6, True, False)


def test_a_file_that_others_wrote() -> None:
    """Any order of the header, spaces, no padding, names that need escapes, elements that are not aligned."""
    header = (
        b'{ "odd \\"name\\" \\u00e9" : {"shape":[2], "data_offsets":[3, 11], "dtype":"F32"},\n'
        b'"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}, "__metadata__":{"format":"pt"}}  '
    )
    data = struct.pack("<Q", len(header)) + header + struct.pack("<3B2f", 1, 2, 255, 0.5, -2)
    found = safetensors.load(data)
    assert list(found) == ["x", 'odd "name" é']
    assert found["x"].tolist() == [1, 2, 255]
    assert found['odd "name" é'].tolist() == [0.5, -2]
    with safe_open(data) as file:
        assert file.metadata() == {"format": "pt"}


def test_nothing_at_all() -> None:
    assert safetensors.save({}) == struct.pack("<Q", 8) + b"{}      "
    assert safetensors.load(safetensors.save({})) == {}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(shape=st.lists(st.integers(0, 4), max_size=4))
def test_round_trip(dtype: tg.DType, shape: list[int]) -> None:
    x = (tg.rand(shape) * 100).to(dtype)
    found = safetensors.load(safetensors.save({"x": x, "t": x.movedim(0, -1) if shape else x}))
    assert found["x"].dtype is dtype
    assert found["x"].shape == tuple(shape)
    assert found["x"].numpy().tobytes() == x.numpy().tobytes()
    assert found["t"].tolist() == (x.movedim(0, -1) if shape else x).tolist()


def test_lazy(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    x = tg.arange(24).float().reshape(2, 3, 4)
    tg.save_safetensors({"x": x, "y": tg.ones(3)}, path)
    with safe_open(path, framework="pt", device="cpu") as file:
        assert list(file.keys()) == ["x", "y"]
        part = file.get_slice("x")
        assert (part.get_shape(), part.get_dtype()) == ([2, 3, 4], "F32")
        np.testing.assert_array_equal(part[1:, ::2].numpy(), x[1:, ::2].numpy())
        with pytest.raises(ArgumentError, match="has no tensor 'xx': did you mean 'x'"):
            file.get_tensor("xx")
        y = file.get_tensor("y")
    y += 1  # memory of ours: neither the file nor another reader sees it
    tg.save_safetensors({"x": x}, path)
    assert y.tolist() == [2, 2, 2]
    for mmap in (False, True):
        assert tg.load_safetensors(path, mmap=mmap)["x"].tolist() == x.tolist()
    assert tg.load_safetensors(path, device="reference")["x"].device.name == "reference"


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ([tg.ones(1)], None, "takes a dict"),
        ({"x": 1}, None, "'x' is .*int.*, not a tensor"),
        ({1: tg.ones(1)}, None, "1 cannot name a tensor"),
        ({"__metadata__": tg.ones(1)}, None, "cannot name"),
        ({}, {"epoch": 3}, "metadata are texts by name, not 'epoch': 3"),
    ],
)
def test_what_cannot_be_written(tensors: Any, metadata: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        safetensors.save(tensors, metadata)
