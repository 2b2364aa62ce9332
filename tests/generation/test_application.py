"""The ASGI application: whole answers, streams, clients that go, wrong requests, and what it passes on."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.generation.language_models import begun_requests, gpt
from tilegrad.generation import TextGenerator
from tilegrad.generation.application import TextApplication


@pytest.fixture(scope="module")
def generator() -> Iterator[TextGenerator]:
    with TextGenerator(gpt(), max_batch=2) as made:
        yield made


def asked(app: Any, action: str, parts: list[bytes], method: str = "POST", leave_after: int | None = None) -> list[Any]:
    """The messages that a client gets, which closes the connection after so many of them."""

    async def run() -> list[Any]:
        sent: list[Any] = []
        left = asyncio.Event()
        received = [{"type": "http.request", "body": x, "more_body": n + 1 < len(parts)} for n, x in enumerate(parts)]

        async def receive() -> Any:
            if received:
                return received.pop(0)
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == leave_after:
                left.set()

        if leave_after == 0:
            left.set()
        path = f"/v2/models/{action}"
        await asyncio.wait_for(app({"type": "http", "path": path, "method": method}, receive, send), 600)
        return sent

    return asyncio.run(run())


def body(**settings: Any) -> list[bytes]:
    return [json.dumps({"input_ids": [1, 2], "parameters": settings}).encode()]


def test_a_whole_answer(generator: TextGenerator) -> None:
    wanted = generator.generate([1, 2], max_new_tokens=4, seed=1).result()
    (text,) = body(max_new_tokens=4, seed=1)
    start, last = asked(TextApplication({"m": generator}), "m/generate", [text[:5], text[5:]])
    assert (start["status"], last.get("more_body", False)) == (200, False)
    assert dict(start["headers"])[b"content-length"] == str(len(last["body"])).encode()
    assert json.loads(last["body"])["output_ids"] == wanted


def test_a_stream(generator: TextGenerator) -> None:
    start, *events, details, last = asked(
        TextApplication({"m": generator}), "m/generate_stream", body(max_new_tokens=4)
    )
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    assert len(events) == 4
    assert all(event["more_body"] for event in (*events, details))
    assert json.loads(details["body"][6:])["details"]["generated_tokens"] == 4
    assert last == {"type": "http.response.body", "body": b""}


@pytest.mark.parametrize("action, leave_after", [("m/generate_stream", 2), ("m/generate", 0), ("m/generate_stream", 0)])
def test_a_client_that_goes_ends_its_request(
    generator: TextGenerator, action: str, leave_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_requests(generator, monkeypatch)
    asked(TextApplication({"m": generator}), action, body(), leave_after=leave_after)
    assert all(x._request.is_cancelled for x in begun)
    assert len(begun) == 1 or leave_after == 0


@pytest.mark.parametrize(
    "action, parts, method, status, message",
    [
        ("m/generate", [b"{"], "POST", 400, "the body is no JSON"),
        ("m/generate", [b"\xff"], "POST", 400, "the body is no JSON"),
        ("m/generate", [b"[" * 100_000], "POST", 400, "the body is no JSON"),
        ("m/generate", [b" " * 2000] * 600, "POST", 413, "a body has at most 1048576 bytes"),
        ("m/generate", body(), "GET", 405, "the method here is POST"),
        ("x/generate_stream", body(), "POST", 404, "there is no model 'x'; there are m"),
        ("m/generate_stream", body(top_p=2), "POST", 400, "top_p is 2: give"),
        ("m/other", body(), "POST", 404, "nothing at this address"),
    ],
)
def test_wrong_requests(
    generator: TextGenerator, action: str, parts: list[bytes], method: str, status: int, message: str
) -> None:
    start, last = asked(TextApplication({"m": generator}), action, parts, method)
    assert start["status"] == status
    assert message in json.loads(last["body"])["error"]


def test_other_requests_are_passed_on(generator: TextGenerator) -> None:
    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"path": scope["path"]})

    assert asked(TextApplication({"m": generator}, inner), "m/infer", [b""]) == [{"path": "/v2/models/m/infer"}]


def test_a_server_begins_and_ends() -> None:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(TextApplication({})({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
