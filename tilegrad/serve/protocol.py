"""Read and write the bodies of the Open Inference Protocol, version 2: JSON, and JSON followed by binary tensors.

A binary request is JSON of the length that the header `Inference-Header-Content-Length` says, then the elements of
those inputs whose parameters have `binary_data_size`, in their order. The length 0 says that the body is nothing but
the elements of the only input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .faults import refused
from .tensor_data import Elements, ServedTensor, array_from_bytes, array_from_json, check_shape, json_elements

MAX_ID_CHARACTERS = 256
MICROSECONDS = 1e6
MAX_KNOWN_BODIES = 256
"""Requests and answers of a model whose JSON is kept."""
MAX_KNOWN_BYTES = 4096
"""Longest JSON of a request that is kept."""
UNSUPPORTED = {
    "sequence_id": "sequences of requests are not supported: each request is answered for itself",
    "shared_memory_region": "shared memory is not supported: send binary data",
    "classification": "classification is not supported: ask for the output itself",
}
"""Parameters that change the meaning of a request, and what to do without them. Others are hints, and ignored."""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One request for results: inputs in the order of the model's, and the outputs that are wanted."""

    inputs: tuple[Elements, ...]
    outputs: tuple[tuple[int, bool], ...]
    """Indices of the model's outputs, and whether they are wanted as binary data."""
    id: str | None = None
    timeout: float | None = None
    """Seconds in which the client wants its answer."""


@dataclass(frozen=True, slots=True)
class BinaryLayout:
    """Describe a binary request as its JSON does: the place of each input, and the results that are wanted."""

    inputs: tuple[tuple[ServedTensor, tuple[int, ...], int, int], ...]
    """In the order of the model's: the tensor, its shape, where its bytes begin and end."""
    byte_count: int
    outputs: tuple[tuple[int, bool], ...]
    timeout: float | None

    def request(self, binary: memoryview) -> InferenceRequest:
        """Read the elements of a request of this layout."""
        if len(binary) != self.byte_count:
            raise refused(f"there are {len(binary)} bytes of binary data; the inputs take {self.byte_count}")
        arrays = tuple([array_from_bytes(binary[i:j], spec, shape) for spec, shape, i, j in self.inputs])
        return InferenceRequest(arrays, self.outputs, None, self.timeout)


class KnownBodies:
    """The JSON of binary requests and answers of a model: clients send the same again and again.

    Requests are known by their whole JSON, answers by the shapes in them. Those with an id are not kept.
    """

    def __init__(self) -> None:
        self.layouts: dict[bytes, BinaryLayout] = {}
        self.answers: dict[Any, bytes] = {}

    def keep_layout(self, text: bytes, layout: BinaryLayout) -> None:
        """Keep the layout of a request."""
        if len(text) <= MAX_KNOWN_BYTES:
            if len(self.layouts) >= MAX_KNOWN_BODIES:
                self.layouts.clear()
            self.layouts[text] = layout

    def keep_answer(self, key: Any, text: bytes) -> None:
        """Keep the JSON of an answer."""
        if len(self.answers) >= MAX_KNOWN_BODIES:
            self.answers.clear()
        self.answers[key] = text


def read_request(
    body: bytes,
    header_length: int | None,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    known: KnownBodies | None = None,
) -> InferenceRequest:
    """Read a request for a model with these inputs and outputs."""
    if header_length is not None and known is not None:
        layout = known.layouts.get(body[:header_length])
        if layout is not None:
            return layout.request(memoryview(body)[header_length:])
    if header_length == 0:
        return InferenceRequest((_raw_input(memoryview(body), inputs),), tuple((n, True) for n in range(len(outputs))))
    if header_length is not None and header_length > len(body):
        raise refused(f"Inference-Header-Content-Length is {header_length}, and the body has {len(body)} bytes")
    text, binary = (body, memoryview(b"")) if header_length is None else (body[:header_length], memoryview(body))
    request = read_json(text)
    parameters = _parameters(request, "the request")
    arrays, spans = _inputs(request.get("inputs"), inputs, binary[header_length or 0 :])
    wanted = _outputs(request.get("outputs"), outputs, _flag(parameters, "binary_data_output"))
    made = InferenceRequest(arrays, wanted, _id(request.get("id")), _timeout(parameters.get("timeout")))
    if known is not None and made.id is None and all(span is not None for span in spans):
        places = tuple((x, y.shape, *span) for x, y, span in zip(inputs, arrays, spans, strict=True) if span)
        known.keep_layout(text, BinaryLayout(places, sum(x.nbytes for x in arrays), wanted, made.timeout))
    return made


def read_json(text: bytes) -> dict[str, Any]:
    """Read a JSON object, strictly: no NaN, no key twice, no nesting without end."""
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise refused(f"the body is not JSON: {type(problem).__name__}: {problem}"[:300]) from None
    if type(found) is not dict:
        raise refused("the body is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON: send binary data")


def _parameters(holder: Mapping[str, Any], what: str) -> dict[str, Any]:
    found = holder.get("parameters", {})
    if type(found) is not dict:
        raise refused(f"the parameters of {what} are an object")
    for name, advice in UNSUPPORTED.items():
        if name in found:
            raise refused(f"{what}: {advice}")
    return found


def _flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    found = parameters.get(name, default)
    if type(found) is not bool:
        raise refused(f"the parameter {name} is true or false")
    return found


def _id(given: Any) -> str | None:
    if given is not None and (type(given) is not str or len(given) > MAX_ID_CHARACTERS):
        raise refused(f"the id of a request is a string of at most {MAX_ID_CHARACTERS} characters")
    return given


def _timeout(given: Any) -> float | None:
    """Convert the parameter `timeout`, in microseconds."""
    if given is None:
        return None
    if type(given) not in (int, float) or not 0 < given < 1e15:
        raise refused("the parameter timeout is a positive number of microseconds")
    return float(given) / MICROSECONDS


def _raw_input(data: memoryview, inputs: Sequence[ServedTensor]) -> Elements:
    """Infer the shape of the only input from the number of its bytes."""
    varying = [n for spec in inputs for n in spec.shape if not isinstance(n, int)]
    if len(inputs) != 1 or len(varying) > 1:
        raise refused("a body without JSON is for models with one input of which at most one size varies")
    (spec,) = inputs
    unit = spec.dtype.itemsize
    for n in spec.shape:
        unit *= n if isinstance(n, int) else 1
    count = len(data) // unit if unit else 0
    if varying and (not count or count * unit != len(data)):
        raise refused(f"input {spec.name!r}: {len(data)} bytes are no positive multiple of {unit}")
    return array_from_bytes(data, spec, tuple(n if isinstance(n, int) else count for n in spec.shape))


def _inputs(
    given: Any, specs: Sequence[ServedTensor], binary: memoryview
) -> tuple[tuple[Elements, ...], list[tuple[int, int] | None]]:
    """Convert the inputs, in the order of the model's; also return where the bytes of binary ones are."""
    if type(given) is not list:
        raise refused("the request has no list of inputs")
    by_name = {spec.name: spec for spec in specs}
    found: dict[str, Elements] = {}
    sizes: dict[str, int] = {}
    spans: dict[str, tuple[int, int] | None] = {}
    start = 0
    for entry in given:
        name = _name(entry, "input")
        if name not in by_name or name in found:
            problem = "is there twice" if name in found else f"is not of the model, which has {', '.join(by_name)}"
            raise refused(f"input {name[:100]!r} {problem}")
        found[name], used = _input(entry, by_name[name], sizes, binary[start:])
        spans[name] = None if used is None else (start, start + used)
        start += used or 0
    missing = [name for name in by_name if name not in found]
    if missing:
        raise refused(f"inputs are missing: {', '.join(missing)}")
    if start != len(binary):
        raise refused(f"there are {len(binary)} bytes of binary data; the inputs take {start}")
    return tuple(found[spec.name] for spec in specs), [spans[spec.name] for spec in specs]


def _name(entry: Any, what: str) -> str:
    if type(entry) is not dict or type(entry.get("name")) is not str:
        raise refused(f"an {what} of the request is no object with a name")
    name: str = entry["name"]
    return name


def _input(
    entry: dict[str, Any], spec: ServedTensor, sizes: dict[str, int], binary: memoryview
) -> tuple[Elements, int | None]:
    """Convert an input; also return how many bytes of the binary data it took, or None if it is JSON."""
    if entry.get("datatype") != spec.datatype:
        raise refused(f"input {spec.name!r} has the datatype {entry.get('datatype')!r:.40}; the model takes {spec}")
    shape = check_shape(spec, entry.get("shape"), sizes)
    size = _parameters(entry, f"input {spec.name!r}").get("binary_data_size")
    if size is None:
        return array_from_json(entry.get("data"), spec, shape), None
    if "data" in entry:
        raise refused(f"input {spec.name!r} has data, and binary data too")
    if type(size) is not int or not 0 <= size <= len(binary):
        raise refused(f"input {spec.name!r}: binary_data_size is {size!r:.40}; {len(binary)} bytes are left")
    return array_from_bytes(binary[:size], spec, shape), size


def _outputs(given: Any, specs: Sequence[ServedTensor], binary: bool) -> tuple[tuple[int, bool], ...]:
    names = [spec.name for spec in specs]
    if given is None or given == []:
        return tuple((n, binary) for n in range(len(specs)))
    if type(given) is not list:
        raise refused("the outputs of a request are a list")
    found: dict[int, bool] = {}
    for entry in given:
        name = _name(entry, "output")
        if name not in names or names.index(name) in found:
            problem = "is there twice" if name in names else f"is not of the model, which has {', '.join(names)}"
            raise refused(f"output {name[:100]!r} {problem}")
        found[names.index(name)] = _flag(_parameters(entry, f"output {name!r}"), "binary_data", binary)
    return tuple(found.items())


def write_response(
    request: InferenceRequest,
    model: str,
    version: str,
    specs: Sequence[ServedTensor],
    results: Sequence[Elements],
    known: KnownBodies | None = None,
) -> tuple[bytes, int | None]:
    """Write the answer to a request; also return the length of its JSON if binary data follow it."""
    key: Any = None
    if known is not None and request.id is None and all(is_binary for _, is_binary in request.outputs):
        key = (request.outputs, tuple([x.shape for x in results]))
        if (text := known.answers.get(key)) is not None:
            return b"".join([text, *[results[n].tobytes() for n, _ in request.outputs]]), len(text)
    outputs, binary = [], []
    for n, is_binary in request.outputs:
        spec, array = specs[n], results[n]
        entry: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": array.shape}
        if is_binary:
            data = array.tobytes()
            entry["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            entry["data"] = json_elements(array, spec.name)
        outputs.append(entry)
    answer: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        answer["id"] = request.id
    answer["outputs"] = outputs
    text = json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
    if key is not None and known is not None:
        known.keep_answer(key, text)
    return (b"".join([text, *binary]), len(text)) if binary else (text, None)
