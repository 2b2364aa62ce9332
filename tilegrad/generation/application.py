"""Serve the routes of generation: an application of the ASGI standard, alone or in front of another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from .generator import TextGenerator
from .http import RequestError, Route, routes, server_sent_events

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 1 << 20
"""Longest body of a request."""


class TextApplication:
    """Answer `/v2/models/NAME/generate` and `/v2/models/NAME/generate_stream`; pass other requests to `inner`.

    A request whose client closes the connection ends.
    """

    def __init__(
        self, generators: Mapping[str, TextGenerator], inner: Any = None, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self.inner, self.max_body_bytes = inner, max_body_bytes
        self.routes = {route.path.rpartition("/")[2]: route for route in routes(generators)}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request of ASGI."""
        match scope["type"], scope.get("path", "").split("/")[1:]:
            case "http", ["v2", "models", name, action] if action in self.routes:
                await self._answer(scope, self.routes[action], name, receive, send)
            case _ if self.inner is not None:
                await self.inner(scope, receive, send)
            case "lifespan", _:
                for _ in range(2):
                    message = await receive()
                    await send({"type": f"{message['type']}.complete"})
            case "http", _:
                await _send_error(send, RequestError(404, "there is nothing at this address"))

    async def _answer(self, scope: Message, route: Route, name: str, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != route.method:
                raise RequestError(405, f"the method here is {route.method}", {"Allow": route.method})
            body = await self._body(receive)
        except RequestError as problem:
            return await _send_error(send, problem)
        if body is None:
            return
        work = asyncio.ensure_future(_send_answer(route, name, body, send))
        disconnected = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, disconnected):
                task.cancel()
            await asyncio.gather(work, disconnected, return_exceptions=True)

    async def _body(self, receive: Receive) -> Any:
        """Read the JSON of a request; None: its client has disconnected."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.max_body_bytes:
                raise RequestError(413, f"a body has at most {self.max_body_bytes} bytes", {"Connection": "close"})
        try:
            return {"body": json.loads(body)}
        except (ValueError, RecursionError):
            raise RequestError(400, "the body is no JSON") from None


async def _send_answer(route: Route, name: str, body: dict[str, Any], send: Send) -> None:
    try:
        answer = await route.answer(name, body["body"])
    except RequestError as problem:
        return await _send_error(send, problem)
    if isinstance(answer, dict):
        return await _send_whole(send, 200, json.dumps(answer).encode())
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for piece in server_sent_events(answer):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send_error(send: Send, problem: RequestError) -> None:
    await _send_whole(send, problem.status, json.dumps(problem.body).encode(), problem.headers)


async def _send_whole(send: Send, status: int, body: bytes, more: Mapping[str, str] = {}) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
