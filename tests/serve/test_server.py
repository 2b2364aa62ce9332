"""A real server on a free port, and clients that behave badly."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.generation.language_models import gpt
from tests.serve.models import encoded, linear, network, request
from tilegrad.errors import ArgumentError
from tilegrad.generation import TextGenerator
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.limits import RequestLimits
from tilegrad.serve.repository import ModelFile
from tilegrad.serve.server import InferenceServer, listening

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

INFER = "/v2/models/net/infer"
BODY = encoded(request([[1, 2, 3, 4]]))
PATIENCE = 20.0
LIMITS = RequestLimits(max_body_bytes=1 << 20, max_header_bytes=4096)
IMPATIENT = replace(LIMITS, header_seconds=0.4, body_seconds=0.4, write_seconds=0.4)
"""For tests of what does not come: others have the time that a busy machine takes."""
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
PARTS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY


def serving(model: object = linear, **options: object) -> InferenceServer:
    file = ModelFile("net", "1", Path("net"), options.pop("settings", BatchSettings()))
    return InferenceServer([file], lambda path, settings: network(model), port=0, **{"limits": LIMITS, **options})


@pytest.fixture(scope="module")
def server() -> Iterator[InferenceServer]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def impatient_server() -> Iterator[InferenceServer]:
    with serving(limits=IMPATIENT) as made:
        yield made


def ask(port: int, method: str, path: str, body: bytes | None = None, host: str = "127.0.0.1", **headers: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def connected(server: InferenceServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=PATIENCE)


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def test_results_over_a_connection_that_is_kept(server: InferenceServer) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    for n in range(3):
        rows = np.full((n + 1, 4), n, np.float32)
        connection.request("POST", INFER, encoded(request(rows)), {"content-type": "application/json"})
        found = json.loads(connection.getresponse().read())["outputs"][0]
        np.testing.assert_allclose(np.reshape(found["data"], (n + 1, 3)), linear(rows)[0])
    connection.close()


def test_many_threads_get_their_own_results(server: InferenceServer) -> None:
    wrong: list[object] = []

    def client(seed: int) -> None:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        random = np.random.default_rng(seed)
        for _ in range(10):
            rows = random.random((random.integers(1, 5), 4), np.float32)
            connection.request("POST", INFER, encoded(request(rows)), {"content-type": "application/json"})
            found = json.loads(connection.getresponse().read())["outputs"][0]["data"]
            if not np.allclose(found, linear(rows)[0].ravel(), rtol=1e-5):
                wrong.append(rows)
        connection.close()

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


SENT: dict[str, tuple[bytes, list[int]]] = {
    "no HTTP": (b"hello\r\n\r\n", [400]),
    "zeros": (b"\0" * 1000, [400]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, [400]),
    "a method that does not exist": (b"FETCH / HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
    "another version": (b"GET /v2 HTTP/7.3\r\nHost: x\r\n\r\n", [400]),
    "a header without a name": (b"GET /v2 HTTP/1.1\r\n: x\r\n\r\n", [400]),
    "a header with a line feed": (b"GET /v2 HTTP/1.1\r\nA: x\n y\r\0\r\n\r\n", [400]),
    "a length that is negative": (HEAD + b"Content-Length: -5\r\n\r\n", [400]),
    "a length that is text": (HEAD + b"Content-Length: many\r\n\r\n", [400]),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", [400]),
    "a length and parts": (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    "a part of a length that is no number": (PARTS + b"zz\r\n", [400]),
    "a part of 2^64 bytes": (PARTS + b"f" * 17 + b"\r\n", [400]),
    "a body of 1 GB, as it says": (HEAD + b"Content-Length: 1000000000\r\n\r\n", [413]),
    "a body without end": (PARTS + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 40, [413]),
    "a header of a megabyte": (b"GET /v2 HTTP/1.1\r\nA: " + b"x" * (1 << 20), [431]),
    "an address of a megabyte": (b"GET /" + b"x" * (1 << 20), [431]),
    "headers without end": (b"GET /v2 HTTP/1.1\r\n" + b"A: x\r\n" * 200_000, [431]),
    "a thousand headers": (b"GET /v2 HTTP/1.1\r\n" + b"A: x\r\n" * 1000 + b"\r\n", [431]),
    "nothing": (b"", [408]),
    "half a line": (b"GET /v", [408]),
    "half of the headers": (b"GET /v2 HTTP/1.1\r\nHost: x\r\n", [408]),
    "half of a body": (WHOLE[:-10], [408]),
    "half of the parts": (PARTS + b"5\r\nabcde\r\n", [408]),
    "a second request that is half": (WHOLE + WHOLE[:40], [200, 408]),
    "a request, then no HTTP": (WHOLE + b"hello\r\n\r\n", [400]),
    "an upgrade": (
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        [200],
    ),
    "HTTP 1.0": (b"GET /v2 HTTP/1.0\r\n\r\n", [200]),
    "two requests at once": (WHOLE + WHOLE.replace(b"Host: x", b"Host: x\r\nConnection: close"), [200, 200]),
}  # fmt: skip


@pytest.mark.parametrize("what", SENT)
def test_what_clients_send(server: InferenceServer, impatient_server: InferenceServer, what: str) -> None:
    data, expected = SENT[what]
    with connected(impatient_server if 408 in expected else server) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:
            pass  # the server had seen enough
        found = statuses(received(connection))
    # a connection that is closed while data arrive may be reset, and its answer lost with it
    assert found == expected or (len(data) > LIMITS.max_header_bytes and found == [])
    assert ask(server.port, "POST", INFER, BODY) == 200


@pytest.mark.parametrize("count", [0, 1, 20, len(HEAD), len(WHOLE) - 1, len(WHOLE)])
def test_clients_that_leave(server: InferenceServer, count: int) -> None:
    for _ in range(5):
        with connected(server) as connection:
            connection.sendall(WHOLE[:count])
    assert ask(server.port, "POST", INFER, BODY) == 200


def test_a_client_that_sends_slowly_is_cut_off_after_its_time(impatient_server: InferenceServer) -> None:
    with connected(impatient_server) as connection:
        connection.sendall(b"GET /v2 HT")
        assert statuses(received(connection)) == [408]


def test_a_client_that_sends_slowly_delays_no_others(server: InferenceServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /v2 HT")
        assert ask(server.port, "POST", INFER, BODY) == 200


def test_a_client_that_does_not_read_is_cut_off() -> None:
    ended = threading.Event()
    slow_readers = replace(LIMITS, write_seconds=0.4)
    with serving(lambda x: [np.repeat(x[:, :3], 1, 0)], limits=slow_readers) as server, connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        page = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port

        def send() -> None:
            try:
                while True:
                    connection.sendall(page)
            except OSError:
                ended.set()

        threading.Thread(target=send, daemon=True).start()
        assert ended.wait(PATIENCE), "the server ends the connection"
        assert ask(server.port, "POST", INFER, BODY) == 200


def test_connections_are_bounded() -> None:
    with serving(limits=RequestLimits(max_connections=2)) as server:
        held = [connected(server) for _ in range(2)]
        for connection in held:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert statuses(connection.recv(4096)) == [200]
        with connected(server) as third:
            answer = received(third)
            assert statuses(answer) == [503]
            assert b"retry-after: 1" in answer
        for connection in held:
            connection.close()


@pytest.mark.parametrize("path", ["/", "/metrics", "/status", "/v2/repository/index"])
def test_another_address_shows_results_alone(path: str) -> None:
    token = "a token of the tests"
    method = "POST" if "repository" in path else "GET"
    with serving(host="127.0.0.2", token=token) as server:
        assert server.local_port != server.port
        bearer = {"authorization": f"Bearer {token}"}
        assert ask(server.port, method, path, host="127.0.0.2", **bearer) == 403
        assert ask(server.port, method, path, host="127.0.0.2", **bearer, Host=f"127.0.0.1:{server.local_port}") == 403
        assert ask(server.local_port, method, path, **bearer) == 200
        assert ask(server.port, "POST", INFER, BODY, host="127.0.0.2") == 200


def test_nothing_but_this_machine_is_listened_to() -> None:
    with serving() as server:
        assert server.host == "127.0.0.1"
        assert [s.getsockname()[0] for s in server.sockets if s.fileno() >= 0] in ([], ["127.0.0.1"])


def connect_for_ever(server: InferenceServer) -> None:
    while True:
        connected(server).close()


def test_requests_that_are_there_are_answered_before_the_end() -> None:
    gate, entered = threading.Event(), threading.Event()

    def model(x: np.ndarray) -> list[np.ndarray]:
        entered.set()
        assert gate.wait(PATIENCE)
        return linear(x)

    with serving(model, settings=BatchSettings(max_batch=1)) as server:
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(ask(server.port, "POST", INFER, BODY))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        assert entered.wait(PATIENCE)
        batcher = server.repository.find("net").batcher
        while len(batcher.waiting) + batcher.running < 3:
            pass
        server.stop()
        with pytest.raises(OSError):
            connect_for_ever(server)
        gate.set()
        for thread in threads:
            thread.join()
    assert found == [200] * 3


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_that_do_not_exist(port: int) -> None:
    with pytest.raises(ArgumentError, match="port"):
        listening("127.0.0.1", port)


def test_a_port_or_an_address_that_cannot_be_had(server: InferenceServer) -> None:
    with pytest.raises(ArgumentError, match="cannot be had"):
        listening("127.0.0.1", server.port)
    with pytest.raises(ArgumentError, match="cannot be had"):
        listening("203.0.113.1", 0)


def test_a_token_is_long() -> None:
    with pytest.raises(ArgumentError, match="16 characters"):
        serving(token="short")


def test_text_is_streamed_beside_results() -> None:
    with TextGenerator(gpt(), max_batch=2) as generator, serving(generators={"writer": generator}) as server:
        expected = list(generator.generate([1, 2], max_new_tokens=5, temperature=0.0))
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        body = encoded({"input_ids": [1, 2], "parameters": {"max_new_tokens": 5, "temperature": 0.0}})
        connection.request("POST", "/v2/models/writer/generate_stream", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.headers["content-type"] == "text/event-stream"
        events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
        assert len(events) == len(expected) + 1
        assert events[-1]["details"]["finish_reason"] == "length"
        connection.close()
        assert ask(server.port, "POST", "/v2/models/writer/generate", body) == 200
        assert ask(server.port, "POST", INFER, BODY) == 200
        assert ask(server.port, "GET", "/v2") == 200
