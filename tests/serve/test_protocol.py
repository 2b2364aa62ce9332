"""Bodies of requests, right and wrong, through the application."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.models import application, ask, encoded, linear, network, request, two_inputs
from tilegrad.serve.application import Application
from tilegrad.serve.limits import RequestLimits
from tilegrad.serve.model import LoadedNetwork
from tilegrad.serve.protocol import MAX_KNOWN_BODIES, MAX_KNOWN_BYTES, BinaryLayout, KnownBodies
from tilegrad.serve.tensor_data import DATATYPES, ServedTensor

INFER = "/v2/models/net/infer"
WORDS = ("name", "shape", "datatype", "data", "inputs", "outputs", "parameters", "binary_data_size", "id", "timeout")
LENGTHS = st.sampled_from(["0", "1", "50", "130", "200"])
ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
EXPECTED = linear(ROWS)[0]


@pytest.fixture(scope="module")
def app() -> Application:
    networks = {"net": network(linear), "two": two_inputs()}
    return application(networks, limits=RequestLimits(max_body_bytes=4096, max_waiting_bytes=8192))


def binary(header: dict[str, Any], *data: bytes) -> tuple[bytes, str]:
    text = encoded(header)
    return text + b"".join(data), str(len(text))


def x_of(**changes: Any) -> bytes:
    """A request with one input, in which some entries are others, or left out (None)."""
    entry = {**request(ROWS)["inputs"][0], **changes}
    return encoded({"inputs": [{name: value for name, value in entry.items() if value is not None}]})


def test_json(app: Application) -> None:
    reply = ask(app, "POST", INFER, encoded(request(ROWS, id="a7")), content_type="application/json; charset=utf-8")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    found = reply.json
    (output,) = found.pop("outputs")
    assert found == {"model_name": "net", "model_version": "1", "id": "a7"}
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [2, 3])
    np.testing.assert_allclose(np.reshape(output["data"], (2, 3)), EXPECTED)


def test_elements_may_be_flat() -> None:
    app = application({"net": network(linear)})
    body = x_of(data=ROWS.ravel().tolist())
    np.testing.assert_allclose(ask(app, "POST", INFER, body).json["outputs"][0]["data"], EXPECTED.ravel())


@pytest.mark.parametrize("ask_for", ["request", "output", "input only"])
def test_binary(app: Application, ask_for: str) -> None:
    header: dict[str, Any] = {
        "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": ROWS.nbytes}}]
    }
    if ask_for == "request":
        header["parameters"] = {"binary_data_output": True}
    elif ask_for == "output":
        header["outputs"] = [{"name": "y", "parameters": {"binary_data": True}}]
    body, length = binary(header, ROWS.tobytes())
    reply = ask(app, "POST", INFER, body, inference_header_content_length=length)
    assert reply.status == 200, reply.body
    (output,) = reply.json["outputs"]
    if ask_for == "input only":
        return np.testing.assert_allclose(output["data"], EXPECTED.ravel())
    rest = reply.body[int(reply.headers["inference-header-content-length"]) :]
    assert output["parameters"] == {"binary_data_size": len(rest)}
    assert "data" not in output
    assert reply.headers["content-type"] == "application/octet-stream"
    np.testing.assert_allclose(np.frombuffer(rest, np.float32).reshape(2, 3), EXPECTED)


def test_a_body_may_be_the_elements_alone(app: Application) -> None:
    reply = ask(
        app, "POST", INFER, ROWS.tobytes(), inference_header_content_length="0", content_type="application/octet-stream"
    )
    rest = reply.body[int(reply.headers["inference-header-content-length"]) :]
    np.testing.assert_allclose(np.frombuffer(rest, np.float32).reshape(2, 3), EXPECTED)


def test_several_inputs_in_any_order_and_some_of_the_outputs(app: Application) -> None:
    tokens, mask = np.array([[5, 6, 7], [1, 2, 3]]), np.array([[1, 0, 1], [0, 0, 1]], bool)
    header = {
        "inputs": [
            {"name": "mask", "shape": [2, 3], "datatype": "BOOL", "parameters": {"binary_data_size": 6}},
            {"name": "tokens", "shape": [2, 3], "datatype": "INT64", "data": tokens.tolist()},
        ],
        "outputs": [{"name": "sum"}],
    }
    body, length = binary(header, mask.tobytes())
    reply = ask(app, "POST", "/v2/models/two/infer", body, inference_header_content_length=length)
    assert reply.json["outputs"] == [{"name": "sum", "datatype": "FP32", "shape": [2], "data": [12.0, 3.0]}]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back_as_it_was_sent(datatype: str) -> None:
    dtype = DATATYPES[datatype]
    specs = (ServedTensor("x", dtype, ("n",)),), (ServedTensor("y", dtype, ("n",)),)
    app = application({"net": LoadedNetwork(*specs, (lambda x: [x],))})
    low, high = (0, 1) if dtype.kind == "b" else (-2, 3)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    elements = [bool(low), bool(high)] if dtype.kind == "b" else [low if dtype.kind != "u" else 0, high]
    entry: dict[str, Any] = {"name": "x", "shape": [2], "datatype": datatype}
    reply = ask(app, "POST", INFER, encoded({"inputs": [{**entry, "data": elements}]}))
    assert reply.json["outputs"][0]["data"] == elements
    data = np.array(elements, dtype).tobytes()
    body, length = binary({"inputs": [{**entry, "parameters": {"binary_data_size": len(data)}}]}, data)
    assert ask(app, "POST", INFER, body, inference_header_content_length=length).json["outputs"][0]["data"] == elements


def test_nan_goes_through_binary_data_and_is_refused_as_json(app: Application) -> None:
    rows = np.array([[np.nan, 1, 2, 3], [0, 1, 2, 3]], np.float32)
    entry = {"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": rows.nbytes}}
    body, length = binary({"inputs": [entry], "parameters": {"binary_data_output": True}}, rows.tobytes())
    reply = ask(app, "POST", INFER, body, inference_header_content_length=length)
    found = np.frombuffer(reply.body[int(reply.headers["inference-header-content-length"]) :], np.float32)
    np.testing.assert_array_equal(np.isnan(found), [True] * 3 + [False] * 3)
    body, length = binary({"inputs": [entry]}, rows.tobytes())
    assert ask(app, "POST", INFER, body, inference_header_content_length=length).status == 422


def test_the_binary_part_need_not_be_aligned() -> None:
    app = application({"net": network(lambda x: linear(x) if x.flags.aligned else [])})
    for spaces in range(8):
        text = encoded(
            {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32}}]}
        )
        text += b" " * spaces
        reply = ask(app, "POST", INFER, text + ROWS.tobytes(), inference_header_content_length=str(len(text)))
        np.testing.assert_allclose(reply.json["outputs"][0]["data"], EXPECTED.ravel())


MANY = "[" * 100_000
GOOD = x_of()
WRONG_BODIES: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"hello",
    "cut": GOOD[:-5],
    "bytes that are no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "an object without inputs": b"{}",
    "inputs that are null": b'{"inputs": null}',
    "inputs that are an object": b'{"inputs": {"x": 1}}',
    "no input": b'{"inputs": []}',
    "an input that is a number": b'{"inputs": [1]}',
    "an input without a name": x_of(name=None),
    "a name that is a number": x_of(name=7),
    "an unknown input": x_of(name="z"),
    "an input twice": encoded({"inputs": request(ROWS)["inputs"] * 2}),
    "a key twice": GOOD.replace(b'"name"', b'"name": "y", "name"'),
    "no datatype": x_of(datatype=None),
    "an unknown datatype": x_of(datatype="FP31"),
    "another datatype": x_of(datatype="FP64"),
    "text as datatype": x_of(datatype="BYTES"),
    "a datatype that is a list": x_of(datatype=["FP32"]),
    "no shape": x_of(shape=None),
    "a shape that is a number": x_of(shape=8),
    "a shape of text": x_of(shape=["2", "4"]),
    "a shape of fractions": x_of(shape=[2.0, 4]),
    "a shape of truth": x_of(shape=[True, 4]),
    "a negative size": x_of(shape=[-2, -4]),
    "a size that varies, as -1": x_of(shape=[-1, 4]),
    "no rows": x_of(shape=[0, 4], data=[]),
    "an axis too few": x_of(shape=[8]),
    "an axis too many": x_of(shape=[2, 4, 1]),
    "another width": x_of(shape=[4, 2]),
    "fewer elements than the shape says": x_of(data=[1.0] * 7),
    "more elements than the shape says": x_of(data=[1.0] * 9),
    "2^60 rows": x_of(shape=[2**60, 4]),
    "2^1000 rows": x_of(shape=[2**1000, 4]),
    "a thousand axes": x_of(shape=[1] * 1000),
    "no data": x_of(data=None),
    "data that are text": x_of(data="12345678"),
    "data that are a number": x_of(data=3),
    "data that are an object": x_of(data={"0": 1}),
    "text among the numbers": x_of(data=[*[1.0] * 7, "1"]),
    "null among the numbers": GOOD.replace(b"7.0", b"null"),
    "truth among the numbers": x_of(data=[*[1.0] * 7, True]),
    "an object among the numbers": x_of(data=[*[1.0] * 7, {}]),
    "a list among the numbers": x_of(data=[*[1.0] * 7, [1.0]]),
    "rows of other lengths": x_of(data=[[1.0] * 5, [1.0] * 3]),
    "nested too deep": x_of(data=[[[1.0, 1.0], [1.0, 1.0]]] * 2),
    "nested in another order": x_of(data=[[1.0, 1.0]] * 4),
    "nested without end": b'{"inputs": ' + MANY[:4000].encode(),
    "NaN": GOOD.replace(b"7.0", b"NaN"),
    "infinity": GOOD.replace(b"7.0", b"-Infinity"),
    "a number too large": GOOD.replace(b"7.0", b"1e39"),
    "a number too large for any float": GOOD.replace(b"7.0", b"1e999"),
    "an integer too large": GOOD.replace(b"7.0", b"1" + b"0" * 400),
    "an id that is a number": encoded(request(ROWS, id=7)),
    "an id without end": encoded(request(ROWS, id="x" * 300)),
    "parameters that are a list": encoded(request(ROWS, parameters=[])),
    "a sequence of requests": encoded(request(ROWS, parameters={"sequence_id": 3})),
    "shared memory": x_of(parameters={"shared_memory_region": "r"}),
    "a timeout of 0": encoded(request(ROWS, parameters={"timeout": 0})),
    "a negative timeout": encoded(request(ROWS, parameters={"timeout": -5})),
    "a timeout of text": encoded(request(ROWS, parameters={"timeout": "5"})),
    "a flag that is a number": encoded(request(ROWS, parameters={"binary_data_output": 1})),
    "outputs that are an object": encoded(request(ROWS, outputs={})),
    "an output that is text": encoded(request(ROWS, outputs=["y"])),
    "an unknown output": encoded(request(ROWS, outputs=[{"name": "z"}])),
    "an output twice": encoded(request(ROWS, outputs=[{"name": "y"}] * 2)),
    "classes for an output": encoded(request(ROWS, outputs=[{"name": "y", "parameters": {"classification": 2}}])),
    "binary data that are not there": x_of(data=None, parameters={"binary_data_size": 32}),
    "more rows than run at once": encoded(request(np.zeros((33, 4)))),
}


@pytest.mark.parametrize("what", WRONG_BODIES)
def test_wrong_bodies(app: Application, what: str) -> None:
    reply = ask(app, "POST", INFER, WRONG_BODIES[what])
    assert reply.status == 400, reply.body
    assert reply.json.keys() == {"error"}
    assert 5 < len(reply.json["error"]) < 500
    assert ask(app, "POST", INFER, GOOD).status == 200
    assert app.budget.used == 0


SIZES: dict[str, tuple[Any, bytes, str | None]] = {
    "too few bytes": (32, b"\0" * 31, None),
    "too many bytes": (32, b"\0" * 33, None),
    "a size for another shape": (16, b"\0" * 16, None),
    "a size that is negative": (-32, b"\0" * 32, None),
    "a size that is text": ("32", b"\0" * 32, None),
    "a size that is true": (True, b"\0", None),
    "2^62 bytes": (2**62, b"\0" * 32, None),
    "a header longer than the body": (32, b"\0" * 32, "100000"),
    "a header shorter than the JSON": (32, b"\0" * 32, "20"),
    "a header that is negative": (32, b"\0" * 32, "-1"),
    "a header that is no number": (32, b"\0" * 32, "many"),
    "a header of digits of other scripts": (32, b"\0" * 32, "\xb2"),
    "a header of a thousand digits": (32, b"\0" * 32, "1" * 1000),
}


@pytest.mark.parametrize("what", SIZES)
def test_wrong_binary_data(app: Application, what: str) -> None:
    size, data, header = SIZES[what]
    entry = {"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    body, length = binary({"inputs": [entry]}, data)
    reply = ask(app, "POST", INFER, body, inference_header_content_length=header or length)
    assert reply.status == 400, reply.body


def test_data_and_binary_data(app: Application) -> None:
    entry = {**request(ROWS)["inputs"][0], "parameters": {"binary_data_size": 32}}
    body, length = binary({"inputs": [entry]}, ROWS.tobytes())
    assert ask(app, "POST", INFER, body, inference_header_content_length=length).status == 400


@pytest.mark.parametrize("count", [0, 1, 15, 17])
def test_elements_alone_that_are_no_rows(app: Application, count: int) -> None:
    reply = ask(app, "POST", INFER, b"\0" * count, inference_header_content_length="0")
    assert reply.status == 400
    reply = ask(app, "POST", "/v2/models/two/infer", b"\0" * 16, inference_header_content_length="0")
    assert reply.status == 400
    assert "one input" in reply.json["error"]


@pytest.mark.parametrize("shapes", [([2, 3], [1, 3]), ([2, 3], [2, 4]), ([3, 2], [2, 3])])
def test_sizes_of_one_name_are_one_size(app: Application, shapes: tuple[list[int], list[int]]) -> None:
    entries = [
        {"name": "tokens", "shape": shapes[0], "datatype": "INT64", "data": [1] * int(np.prod(shapes[0]))},
        {"name": "mask", "shape": shapes[1], "datatype": "BOOL", "data": [True] * int(np.prod(shapes[1]))},
    ]
    reply = ask(app, "POST", "/v2/models/two/infer", encoded({"inputs": entries}))
    assert reply.status == 400
    assert "another input" in reply.json["error"]


@pytest.mark.parametrize("value", [2, -1, 1.0, "true", None])
def test_truth_is_true_or_false(app: Application, value: object) -> None:
    entries = [
        {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "data": [1]},
        {"name": "mask", "shape": [1, 1], "datatype": "BOOL", "data": [value]},
    ]
    assert ask(app, "POST", "/v2/models/two/infer", encoded({"inputs": entries})).status == 400


def test_a_byte_that_is_no_truth(app: Application) -> None:
    entries = [
        {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "data": [1]},
        {"name": "mask", "shape": [1, 1], "datatype": "BOOL", "parameters": {"binary_data_size": 1}},
    ]
    body, length = binary({"inputs": entries}, b"\x02")
    reply = ask(app, "POST", "/v2/models/two/infer", body, inference_header_content_length=length)
    assert reply.status == 400
    assert "BOOL" in reply.json["error"]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.5, "1"])
def test_integers_have_a_range(app: Application, value: object) -> None:
    entries = [
        {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "data": [value]},
        {"name": "mask", "shape": [1, 1], "datatype": "BOOL", "data": [True]},
    ]
    assert ask(app, "POST", "/v2/models/two/infer", encoded({"inputs": entries})).status == 400


@pytest.mark.parametrize("cut", range(0, len(GOOD), 7))
def test_cut_bodies_and_flipped_bytes_are_answered(app: Application, cut: int) -> None:
    for bit in (1, 4, 32, 128):
        damaged = bytearray(GOOD)
        damaged[cut] ^= bit
        assert ask(app, "POST", INFER, bytes(damaged)).status in (200, 400)
    assert ask(app, "POST", INFER, GOOD[:cut]).status == 400


def test_elements_of_types_that_the_protocol_lacks() -> None:
    with pytest.raises(ValueError, match="complex64"):
        ServedTensor("x", np.dtype("complex64"), ())
    assert json.dumps(ServedTensor("x", np.dtype(ml_dtypes.bfloat16), ("n", 2)).metadata())


def test_requests_whose_json_is_known_are_read_as_others() -> None:
    app = application({"net": network(linear)})
    entry = {"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32}}
    header = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    for n in range(3):
        body, length = binary(header, (ROWS + n).tobytes())
        reply = ask(app, "POST", INFER, body, inference_header_content_length=length)
        assert reply.json["outputs"][0]["shape"] == [2, 3]
        rest = reply.body[int(reply.headers["inference-header-content-length"]) :]
        np.testing.assert_allclose(np.frombuffer(rest, np.float32).reshape(2, 3), linear(ROWS + n)[0])
    known = app.repository.find("net").known
    assert len(known.layouts) == len(known.answers) == 1
    body, length = binary(header, ROWS.tobytes()[:-1])
    assert ask(app, "POST", INFER, body, inference_header_content_length=length).status == 400
    for more in ({"id": "a"}, {"outputs": [{"name": "y", "parameters": {"binary_data": False}}]}):
        body, length = binary({**header, **more}, ROWS.tobytes())
        assert ask(app, "POST", INFER, body, inference_header_content_length=length).json.get("id") == more.get("id")
    for rows in range(1, 33):
        shaped = {"inputs": [{**entry, "shape": [rows, 4], "parameters": {"binary_data_size": 16 * rows}}]}
        body, length = binary(shaped, bytes(16 * rows))
        assert ask(app, "POST", INFER, body, inference_header_content_length=length).status == 200


def test_what_is_kept_of_bodies_is_bounded() -> None:
    known = KnownBodies()
    layout = BinaryLayout((), 0, (), None)
    for n in range(3 * MAX_KNOWN_BODIES):
        known.keep_layout(b"%d" % n, layout)
        known.keep_answer(n, b"")
    known.keep_layout(b" " * (MAX_KNOWN_BYTES + 1), layout)
    assert max(len(known.layouts), len(known.answers)) <= MAX_KNOWN_BODIES
    assert all(len(text) <= MAX_KNOWN_BYTES for text in known.layouts)


def test_a_truth_is_checked_in_known_bodies_too() -> None:
    app = application({"two": two_inputs()})
    entries = [
        {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "parameters": {"binary_data_size": 8}},
        {"name": "mask", "shape": [1, 1], "datatype": "BOOL", "parameters": {"binary_data_size": 1}},
    ]
    for byte, status in ((1, 200), (0, 200), (2, 400), (1, 200)):
        body, length = binary({"inputs": entries}, bytes(8), bytes([byte]))
        reply = ask(app, "POST", "/v2/models/two/infer", body, inference_header_content_length=length)
        assert reply.status == status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.data())
def test_whatever_json_says_is_answered(app: Application, data: st.DataObject) -> None:
    content = json.loads(GOOD)
    at: Any = content
    for _ in range(data.draw(st.integers(0, 5))):
        inner = [x for x in (at.values() if isinstance(at, dict) else at) if isinstance(x, dict | list) and x]
        if inner:
            at = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from([*at] if isinstance(at, dict) else range(len(at))))
    at[key] = data.draw(JSON)
    if isinstance(at, dict):
        at[data.draw(st.sampled_from(WORDS))] = data.draw(JSON)
    reply = ask(app, "POST", INFER, encoded(content), inference_header_content_length=data.draw(LENGTHS))
    assert reply.status in (200, 400, 422), reply.body


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_whatever_bytes_say_is_answered(app: Application, body: bytes, length: int) -> None:
    assert ask(app, "POST", INFER, body, inference_header_content_length=str(length)).status in (200, 400, 422)
