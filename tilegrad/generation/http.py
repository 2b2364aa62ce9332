"""The generate extension of the Open Inference Protocol (KServe): routes for a server, over plain dicts.

A server awaits `route.answer(name, body)` with the model's name from the path and the parsed body. It gets a dict to
send as JSON, or, for `generate_stream`, an asynchronous iterator of dicts, which `server_sent_events` turns into bytes.
A `RequestError` has the status and headers to answer with. Closing the iterator ends the request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError, TilegradError
from .completion import Completion, OverloadedError
from .generator import TextGenerator

PATH = "/v2/models/{name}"


class RequestError(TilegradError):
    """A request that is answered with an error status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers)
        self.location = None
        """Clients are not told lines of the server."""

    @property
    def body(self) -> dict[str, str]:
        """The body to answer with."""
        return {"error": str(self)}


class Route(NamedTuple):
    """A path of a server with its method and what answers it."""

    method: str
    path: str
    answer: Callable[[str, Any], Awaitable[Any]]


def routes(generators: Mapping[str, TextGenerator]) -> list[Route]:
    """Return the routes of some models by name. The mapping is read at each request: it may change.

    >>> [f"{route.method} {route.path}" for route in routes({})]
    ['POST /v2/models/{name}/generate', 'POST /v2/models/{name}/generate_stream']
    """

    async def generate(name: str, body: Any) -> dict[str, Any]:
        completion = _begin(generators, name, body)
        try:
            async for _ in completion:
                pass
        except TilegradError as problem:
            raise RequestError(500, _message(problem)) from problem
        finally:
            completion.cancel()
        return _whole(name, body, completion)

    async def generate_stream(name: str, body: Any) -> AsyncIterator[dict[str, Any]]:
        return _events(name, body, _begin(generators, name, body))

    return [Route("POST", f"{PATH}/generate", generate), Route("POST", f"{PATH}/generate_stream", generate_stream)]


def _begin(generators: Mapping[str, TextGenerator], name: str, body: Any) -> Completion:
    """Begin the answer to a request, whose errors are raised before anything is sent."""
    generator = generators.get(name)
    if generator is None:
        raise RequestError(404, f"there is no model {name!r}; there are {', '.join(sorted(generators)) or 'none'}")
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object with text_input (or input_ids) and parameters")
    given = [body[key] for key in ("text_input", "input_ids") if key in body]
    if len(given) != 1:
        raise RequestError(400, "give either text_input, a text, or input_ids, a list of tokens")
    if not isinstance(given[0], str if "text_input" in body else list):
        raise RequestError(400, "text_input must be a text, input_ids a list of tokens")
    settings = body.get("parameters", {})
    if not isinstance(settings, dict):
        raise RequestError(400, "parameters must be an object of names and values")
    settings = {key: value for key, value in settings.items() if key != "stream"}
    try:
        return generator.submit(given[0], **settings)
    except OverloadedError as problem:
        raise RequestError(429, _message(problem), {"Retry-After": str(round(problem.retry_after))}) from problem
    except (ArgumentError, ValueError, TypeError) as problem:
        raise RequestError(400, _message(problem)) from problem


def _message(problem: BaseException) -> str:
    """Return the message of an error without the line of the server that raised it."""
    return str(problem.args[0]) if problem.args else type(problem).__name__


def _named(name: str, body: Any) -> dict[str, Any]:
    return {**({"id": body["id"]} if "id" in body else {}), "model_name": name}


def _details(completion: Completion) -> dict[str, Any]:
    counts = {"prompt_tokens": len(completion.prompt), "generated_tokens": len(completion.tokens)}
    return {"finish_reason": completion.finish_reason, **counts, "seed": completion.seed}


def _whole(name: str, body: Any, completion: Completion) -> dict[str, Any]:
    text = {"text_output": completion.text()} if completion.has_tokenizer else {}
    return {**_named(name, body), **text, "output_ids": list(completion.tokens), "details": _details(completion)}


async def _events(name: str, body: Any, completion: Completion) -> AsyncIterator[dict[str, Any]]:
    """Yield an event for each token, and a last one with details."""
    try:
        async for token, piece in completion.apieces():
            text = {"text_output": piece} if completion.has_tokenizer else {}
            yield {**_named(name, body), **text, **({} if token is None else {"output_ids": [token]})}
    except TilegradError as problem:
        yield {**_named(name, body), "error": _message(problem)}
    finally:
        completion.cancel()
    yield {**_named(name, body), "details": _details(completion)}


async def server_sent_events(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Encode events as a stream of the type text/event-stream."""
    try:
        async for event in events:
            yield b"data: " + json.dumps(event).encode() + b"\n\n"
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
