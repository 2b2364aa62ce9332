"""The wire format: what is written is read back, also by the package `onnx`; damaged bytes end in an error."""

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tilegrad.onnx import messages
from tilegrad.onnx.messages import (
    AttributeProto,
    DimensionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TensorShapeProto,
    TensorTypeProto,
    TypeProto,
    ValueInfoProto,
)
from tilegrad.onnx.problems import OnnxError
from tilegrad.onnx.wire import MAX_DEPTH, Message, declared, varint

MESSAGES = [x for x in vars(messages).values() if isinstance(x, type) and issubclass(x, Message) and x is not Message]
OTHER_NAMES = {
    "DimensionProto": "TensorShapeProto.Dimension",
    "TensorTypeProto": "TypeProto.Tensor",
    "ContainerTypeProto": "TypeProto.Sequence",
    "MapTypeProto": "TypeProto.Map",
}
LABELS = {"INT": (3, 4, 5, 13, 14), "FLOAT": (2,), "DOUBLE": (1,), "TEXT": (9,), "BYTES": (12,)}
"""Numbers of types in descriptors of Protocol Buffers."""


def value(name: str, *dims: int | str) -> ValueInfoProto:
    shape = [DimensionProto(dim_param=n) if isinstance(n, str) else DimensionProto(dim_value=n) for n in dims]
    return ValueInfoProto(name, TypeProto(TensorTypeProto(1, TensorShapeProto(shape))))


def small_model() -> ModelProto:
    """One product and one activation, with every kind of field."""
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    nodes = [
        NodeProto(["x", "w"], ["y"], "product", "MatMul"),
        NodeProto(["y"], ["z"], "", "LeakyRelu", [AttributeProto("alpha", f=0.25, type=1)]),
        NodeProto(["z"], ["t"], "", "Transpose", [AttributeProto("perm", ints=[1, 0], type=7)]),
    ]
    tensors = [
        TensorProto([3, 2], 1, name="w", raw_data=weight.tobytes()),
        TensorProto([4], 7, name="shape", int64_data=np.array([1, -1, 300, 1 << 40])),
        TensorProto([2], 11, name="bounds", double_data=np.array([0.5, -np.inf])),
    ]
    graph = GraphProto(nodes, "net", tensors, input=[value("x", "N", 3)], output=[value("t", 2, "N")])
    return ModelProto(10, "tests", graph=graph, opset_import=[OperatorSetIdProto("", 17)])


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Message):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_round_trip() -> None:
    model = small_model()
    again = ModelProto.parse(model.encoded())
    assert same(model, again)
    assert again.encoded() == model.encoded()


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
def test_varints(number: int) -> None:
    found = TensorProto.parse(TensorProto([number], int64_data=np.array([number, 5, number])).encoded())
    assert found.dims == [number]
    assert found.int64_data is not None
    assert found.int64_data.tolist() == [number, 5, number]


def test_numbers_that_are_not_packed() -> None:
    unpacked = b"".join(varint(8) + varint(n) for n in (7, 300, -2))
    assert TensorProto.parse(unpacked).dims == [7, 300, -2]


@pytest.mark.parametrize(
    "damaged, words",
    [
        (b"\x3a", "cut off"),
        (b"\x3a\xff\xff\xff\xff\x0f", "bytes are announced where"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more than 10 bytes"),
        (b"\x02\x00", "number 0"),
        (b"\x0b", "no wire type 3"),
        (b"\x0f", "no wire type 7"),
        (b"\x12\x01\xff", "not UTF-8"),
        (b"\x10\x01", "another wire type"),
        (b"\x3d\x00\x00", "bytes are announced where"),
    ],
)
def test_damaged(damaged: bytes, words: str) -> None:
    with pytest.raises(OnnxError, match=words):
        ModelProto.parse(damaged)


def nested(depth: int) -> bytes:
    """A graph within an attribute of a node of a graph, and so on."""
    inner = b""
    for _ in range(depth):
        for number in (6, 5, 1):
            inner = varint(number << 3 | 2) + varint(len(inner)) + inner
    return varint(7 << 3 | 2) + varint(len(inner)) + inner


def test_depth_is_bounded() -> None:
    ModelProto.parse(nested(MAX_DEPTH // 3 - 1))
    with pytest.raises(OnnxError, match="nested"):
        ModelProto.parse(nested(10_000))


def test_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegrad.onnx.wire.MAX_VALUES", 100)
    ModelProto.parse(b"\x72\x00" * 99)
    with pytest.raises(OnnxError, match="more than 100 values"):
        ModelProto.parse(b"\x72\x00" * 100)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Bytes with flips, cuts, copies, or large numbers in places."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(made) or 1)
        match draw.randrange(5):
            case 0:
                made[place : place + 1] = bytes([draw.randrange(256)])
            case 1:
                del made[place : place + draw.randint(1, 9)]
            case 2:
                made[place:place] = bytes(made[draw.randrange(len(made) or 1) :][: draw.randint(1, 30)])
            case 3:
                made[place:place] = varint(1 << draw.randrange(64))
            case _:
                del made[place:]
    return bytes(made)


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed: int) -> None:
    draw, data = random.Random(seed), small_model().encoded()
    read = 0
    for _ in range(1000):
        try:
            found = ModelProto.parse(mutated(data, draw))
        except OnnxError:
            continue
        read += 1
        found.encoded()
    assert 10 < read < 500


def descriptor(onnx: Any, kind: type[Message]) -> Any:
    found = onnx.onnx_ml_pb2
    for part in OTHER_NAMES.get(kind.__name__, kind.__name__).split("."):
        found = getattr(found, part)
    return found.DESCRIPTOR


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_fields_are_those_of_the_standard(kind: type[Message]) -> None:
    onnx = pytest.importorskip("onnx")
    known = {field.number: field for field in descriptor(onnx, kind).fields}
    for number, (name, what) in declared(kind).items():
        field = known[number]
        assert field.name == name
        assert field.is_repeated == what.many
        if what.of_messages:
            assert field.message_type.name in (what.kind().__name__, *OTHER_NAMES.values(), "Dimension", "Tensor") or (  # type: ignore[operator]
                what.kind().__name__ in OTHER_NAMES  # type: ignore[operator]
            )
        else:
            assert field.type in LABELS[str(what.kind).upper()]


def test_the_package_reads_what_is_written() -> None:
    onnx = pytest.importorskip("onnx")
    model = small_model()
    theirs = onnx.load_from_string(model.encoded())
    onnx.checker.check_model(theirs)
    assert same(ModelProto.parse(theirs.SerializeToString()), model)
