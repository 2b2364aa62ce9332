"""Generate load for a server: connections that each send a request when the last one is answered.

Every answer is verified: each input is first asked about alone, and what comes under load must agree with that.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ..errors import ArgumentError, DataError
from .tensor_data import DATATYPES, Elements

TOLERANCE = 1e-3
"""Largest difference from the answer to a lone request, relative to the largest element."""
DEFAULT_EXTENT = 8
"""Extent of sizes that vary, other than the first."""
SEPARATOR = b"\r\n\r\n"
LENGTH = b"content-length: "


@dataclass
class LoadReport:
    """Report the rates, latencies and errors of a run of load."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0
    """Answers that differ from those to lone requests."""

    @property
    def requests_per_second(self) -> float:
        """Answers with results in a second."""
        return self.statuses[200] / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies, in seconds."""
        return float(np.percentile(self.latencies, percent)) if self.latencies else 0.0

    def __str__(self) -> str:
        failed = {status: count for status, count in self.statuses.items() if status != 200}
        latency = ", ".join(f"p{q:g} {1e3 * self.percentile(q):.2f} ms" for q in (50, 90, 99, 99.9))
        return (
            f"{sum(self.statuses.values())} requests in {self.seconds:.2f} s: {self.requests_per_second:.0f} a second\n"
            f"latency: {latency}\n"
            f"failed: {failed or 'none'}; results that differ from those of lone requests: {self.wrong}"
        )


@dataclass(frozen=True)
class ServedAddress:
    """A model on a server."""

    host: str
    port: int
    model: str

    @property
    def path(self) -> str:
        """Return the path of requests for results."""
        return f"/v2/models/{self.model}/infer"

    def metadata(self) -> dict[str, Any]:
        """Ask the server about the model."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request("GET", f"/v2/models/{self.model}")
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as problem:
            raise DataError(f"{self.host}:{self.port} does not answer as it should: {problem}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise DataError(f"{self.host}:{self.port}: {found.get('error', answer.status)}")
        assert isinstance(found, dict)
        return found


def address_of(url: str, model: str) -> ServedAddress:
    """Read where a server is.

    >>> address_of("http://127.0.0.1:8000", "net").port
    8000
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ArgumentError(f"{url!r} is no address of a server, such as http://127.0.0.1:8000")
    return ServedAddress(parts.hostname, parts.port or 80, model)


def random_inputs(metadata: dict[str, Any], rows: int, seed: int) -> list[Elements]:
    """Draw inputs that fit a model."""
    random = np.random.default_rng(seed)
    made = []
    for spec in metadata["inputs"]:
        shape = [n if n >= 0 else (DEFAULT_EXTENT if axis else rows) for axis, n in enumerate(spec["shape"])]
        dtype = DATATYPES[spec["datatype"]]
        is_real = dtype.kind in "fV" or dtype.name == "bfloat16"
        made.append((random.random(shape) if is_real else random.integers(0, 2, shape)).astype(dtype))
    return made


def request_bytes(
    address: ServedAddress, metadata: dict[str, Any], inputs: Sequence[Elements], binary: bool = True
) -> bytes:
    """Write a request as it is sent."""
    entries, data = [], b""
    for spec, array in zip(metadata["inputs"], inputs, strict=True):
        entry: dict[str, Any] = {"name": spec["name"], "datatype": spec["datatype"], "shape": array.shape}
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            data += array.tobytes()
        else:
            entry["data"] = array.astype(object).ravel().tolist()
        entries.append(entry)
    content: dict[str, Any] = {"inputs": entries}
    kind, more = "application/json", ""
    if binary:
        content["parameters"] = {"binary_data_output": True}
        kind = "application/octet-stream"
    text = json.dumps(content, separators=(",", ":")).encode()
    if binary:
        more = f"Inference-Header-Content-Length: {len(text)}\r\n"
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nContent-Type: {kind}\r\n{more}"
        f"Content-Length: {len(text) + len(data)}\r\n\r\n"
    )
    return head.encode() + text + data


def answer_arrays(head: bytes, body: bytes) -> list[Elements]:
    """Read the outputs of an answer."""
    marker = b"inference-header-content-length: "
    at = head.lower().find(marker)
    length = int(head[at + len(marker) :].split(b"\r\n", 1)[0]) if at >= 0 else len(body)
    start, found = length, []
    for output in json.loads(body[:length])["outputs"]:
        dtype = DATATYPES[output["datatype"]]
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            made = np.array(output["data"]).astype(dtype)
        else:
            made = np.frombuffer(body[start : start + size], dtype)
            start += size
        found.append(made.reshape(output["shape"]))
    return found


class LoadConnection(asyncio.Protocol):
    """Sends requests one after the other, until there are no more."""

    def __init__(self, load: LoadRun) -> None:
        self.load = load
        self.buffer = b""
        self.index = 0
        self.sent = 0.0
        self.expected = 0
        """Bytes of the answer, once its headers are there."""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self.transport = transport
        self.send_next()

    def send_next(self) -> None:
        """Send the next request."""
        if self.load.left <= 0:
            return self.transport.close()  # type: ignore[no-any-return]
        self.load.left -= 1
        self.index = self.load.left % len(self.load.requests)
        self.buffer, self.expected = b"", 0
        self.sent = time.perf_counter()
        self.transport.write(self.load.requests[self.index])

    def data_received(self, data: bytes) -> None:
        """Read a part of an answer."""
        self.buffer = self.buffer + data if self.buffer else data
        if not self.expected:
            end = self.buffer.find(SEPARATOR)
            if end < 0:
                return
            start = self.buffer.lower().find(LENGTH, 0, end)
            self.expected = end + len(SEPARATOR) + int(self.buffer[start + len(LENGTH) :].split(b"\r\n", 1)[0])
        if len(self.buffer) >= self.expected:
            self.load.answered(self.index, self.buffer, time.perf_counter() - self.sent)
            self.send_next()

    def connection_lost(self, problem: Exception | None) -> None:
        """End; a server that closes early is a failure."""
        self.load.ended(self.expected == 0 and self.buffer == b"" and self.load.left > 0)


class LoadRun:
    """The requests of one run, and their answers."""

    def __init__(self, requests: Sequence[bytes], count: int, connections: int) -> None:
        self.requests = requests
        self.left = count
        self.open = connections
        self.report = LoadReport()
        self.answers: dict[tuple[int, bytes], int] = {}
        """How often each answer came, by the request: the same bytes are verified once."""
        self.is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, index: int, answer: bytes, seconds: float) -> None:
        """Keep an answer."""
        self.report.latencies.append(seconds)
        status = int(answer[9:12])
        self.report.statuses[status] += 1
        if status == 200:
            head, _, body = answer.partition(SEPARATOR)
            at = head.lower().find(b"inference-header")
            key = (index, (head[at:] if at >= 0 else b"") + SEPARATOR + body)
            self.answers[key] = self.answers.get(key, 0) + 1

    def ended(self, too_early: bool) -> None:
        """Count the connections that are open."""
        self.open -= 1
        if too_early:
            self.report.statuses[0] += 1
        if not self.open and not self.is_done.done():
            self.is_done.set_result(None)


async def generate(address: ServedAddress, requests: Sequence[bytes], count: int, connections: int) -> LoadRun:
    """Send so many requests over so many connections."""
    loop = asyncio.get_running_loop()
    load = LoadRun(requests, count, connections)
    start = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: LoadConnection(load), address.host, address.port)
    await load.is_done
    load.report.seconds = time.perf_counter() - start
    return load


def verified(load: LoadRun, expected: Sequence[Sequence[Elements]]) -> LoadReport:
    """Compare all answers with those to lone requests."""
    for (index, answer), count in load.answers.items():
        head, _, body = answer.partition(SEPARATOR)
        if not all(map(agree, answer_arrays(head, body), expected[index])):
            load.report.wrong += count
    return load.report


def agree(x: Elements, y: Elements) -> bool:
    """Tell whether two results are the same up to rounding."""
    if x.shape != y.shape:
        return False
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    scale = np.abs(wide_y[np.isfinite(wide_y)]).max(initial=0.0)
    return bool(np.allclose(wide_x, wide_y, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True))


def run_load(
    address: ServedAddress,
    count: int,
    connections: int,
    *,
    rows: int = 1,
    inputs: int = 64,
    binary: bool = True,
    warm_up: int = 0,
) -> LoadReport:
    """Measure a server, and verify what it answers."""
    metadata = address.metadata()
    requests = [request_bytes(address, metadata, random_inputs(metadata, rows, seed), binary) for seed in range(inputs)]
    factory = _loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        alone = runner.run(generate(address, requests, inputs, 1))
        if alone.report.statuses[200] != inputs:
            raise DataError(f"requests that come alone fail: {dict(alone.report.statuses)}")
        expected: list[list[Elements]] = [[] for _ in requests]
        for index, answer in alone.answers:
            head, _, body = answer.partition(SEPARATOR)
            expected[index] = answer_arrays(head, body)
        if warm_up:
            runner.run(generate(address, requests, warm_up, connections))
        return verified(runner.run(generate(address, requests, count, connections)), expected)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
