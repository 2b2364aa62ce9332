"""Answer requests: an application of the ASGI standard, for any server of it.

    GET  /v2                            the server; /v2/health/live, /v2/health/ready: whether it works
    GET  /v2/models/NAME                a model; also .../versions/VERSION, each with /ready
    POST /v2/models/NAME/infer          results; also .../versions/VERSION/infer
    GET  /                              the status page; /status: its data; /metrics: for Prometheus
    POST /v2/repository/index           the models; /v2/repository/models/NAME/load and .../unload change them

The last two rows are answered on connections to this machine's own address alone, the last one with a token only.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..config import VERSION
from ..errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from .faults import RequestFault, refused
from .limits import ByteBudget, RequestLimits, header_number
from .logs import EventLog
from .metrics import CONTENT_TYPE, ServerMetrics, model_label
from .model import ServedModel
from .protocol import read_request, write_response
from .repository import Repository
from .status_page import SAFETY_HEADERS, status_page

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
JSON_LENGTH = b"inference-header-content-length"
ACCEPTED = (b"application/json", b"application/octet-stream", b"application/vnd.sagemaker-triton.binary+json")
FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"via", b"x-real-ip"}
"""Headers of requests that come through a proxy, perhaps from elsewhere."""
EXTENSIONS = ["binary_tensor_data", "model_repository"]
MIN_TOKEN_CHARACTERS = 16


class ClientDisconnected(Exception):
    """The client has closed its connection: there is nobody to answer."""


class Application:
    """Answers the requests of one server."""

    def __init__(
        self,
        repository: Repository,
        metrics: ServerMetrics,
        log: EventLog,
        limits: RequestLimits = RequestLimits(),
        *,
        local_port: int | None = None,
        token: str | None = None,
    ) -> None:
        self.repository = repository
        self.metrics = metrics
        self.log = log
        self.limits = limits
        self.budget = ByteBudget(limits)
        self.local_port = local_port
        """The port of 127.0.0.1 where the status, the metrics and the management are; None: nowhere."""
        self.token = token
        """The word that management asks for; None: there is no management."""
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of ASGI."""
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] != "http":
            return None
        answer = Answer(send)
        try:
            await self._answer(scope, receive, answer)
        except RequestFault as fault:
            await self._refuse(scope, answer, fault)
        except ClientDisconnected:
            pass
        except Exception as problem:
            self.log.event("failed", path=scope["path"], problem=repr(problem)[:1000])
            await self._refuse(scope, answer, RequestFault(500, "the server failed: its log says more"))

    async def _refuse(self, scope: Scope, answer: Answer, fault: RequestFault) -> None:
        """Answer with an error, unless an answer has begun."""
        if answer.status:
            return
        headers: Headers = [JSON]
        if fault.retry_after is not None:
            headers.append((b"retry-after", str(max(1, math.ceil(fault.retry_after))).encode()))
        if fault.status == 405:
            headers.append((b"allow", b"POST" if scope["method"] != "POST" else b"GET, HEAD"))
        if fault.status in (408, 413, 431):
            headers.append((b"connection", b"close"))
        await answer.send(fault.status, headers, json.dumps({"error": fault.message}).encode())
        if not scope.get("tilegrad.counted"):
            self.metrics.answered(fault.status)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.is_draining = True
                await self.repository.close(self.limits.drain_seconds)
                self.log.event("ended")
                return await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Find what a path stands for."""
        headers: Headers = scope["headers"]
        if len(headers) > self.limits.max_headers:
            raise refused(f"a request has at most {self.limits.max_headers} headers", 431)
        match scope["path"].split("/")[1:]:
            case ["v2", "models", name, "infer"]:
                await self._infer(scope, receive, answer, name, None)
            case ["v2", "models", name, "versions", version, "infer"]:
                await self._infer(scope, receive, answer, name, version)
            case ["v2", "repository", *rest]:
                await self._manage(scope, answer, rest)
            case ["v2", *rest]:
                description = self._described(rest)
                _check_method(scope, "GET", "HEAD")
                await answer.send_json(scope, *description)
            case [page]:
                await self._show(scope, answer, page)
            case _:
                raise refused("there is nothing at this address", 404)
        if not scope.get("tilegrad.counted"):
            self.metrics.answered(answer.status)

    def _described(self, path: list[str]) -> tuple[int, Any]:
        """Describe the server or a model."""
        match path:
            case [] | [""]:
                return 200, {"name": "tilegrad", "version": VERSION, "extensions": EXTENSIONS}
            case ["health", "live"]:
                return 200, {"live": True}
            case ["health", "ready"]:
                is_ready = not self.is_draining and all(e.model for e in self.repository.all_entries())
                return (200 if is_ready else 503), {"ready": is_ready}
            case ["models", name]:
                return self._described_model(name, None, [])
            case ["models", name, "versions", version, *rest]:
                return self._described_model(name, version, rest)
            case ["models", name, *rest]:
                return self._described_model(name, None, rest)
        raise refused("there is nothing at this address", 404)

    def _described_model(self, name: str, version: str | None, rest: list[str]) -> tuple[int, Any]:
        """Describe a model, or tell whether it is ready."""
        if rest not in ([], ["ready"]):
            raise refused("there is nothing at this address", 404)
        model = self.repository.find(name, version)
        if not rest:
            return 200, model.metadata(self.repository.versions(name))
        is_ready = not self.is_draining and not model.batcher.is_closed
        return (200 if is_ready else 503), {"name": model.name, "ready": is_ready}

    async def _infer(self, scope: Scope, receive: Receive, answer: Answer, name: str, version: str | None) -> None:
        """Answer a request for results, and count it."""
        _check_method(scope, "POST")
        model = self.repository.find(name, version)
        scope["tilegrad.counted"] = True
        start, status, reserved = time.monotonic(), 500, [0]
        try:
            status = await self._results(scope, receive, answer, model, start, reserved)
        except RequestFault as fault:
            status = fault.status
            raise
        except (ClientDisconnected, asyncio.CancelledError):
            status = 499
            raise
        finally:
            self.budget.release(reserved[0])
            seconds = time.monotonic() - start
            model.metrics.answered(status, seconds)
            if self.log.requests:
                self.log.event("request", model=name, version=model.version, status=status, seconds=round(seconds, 6))

    async def _results(
        self, scope: Scope, receive: Receive, answer: Answer, model: ServedModel, start: float, reserved: list[int]
    ) -> int:
        """Read a request, run the model, write its results; return the status."""
        found = dict(scope["headers"])
        kind = found.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
        if kind not in ACCEPTED:
            raise refused("the content type is application/json, or application/octet-stream with binary data", 415)
        if found.get(b"content-encoding", b"identity") != b"identity":
            raise refused("compressed bodies are not read", 415)
        json_length = header_number(found.get(JSON_LENGTH), "Inference-Header-Content-Length")
        body = await self._body(receive, header_number(found.get(b"content-length"), "Content-Length"), reserved)
        request = read_request(body, json_length, model.inputs, model.outputs, model.known)
        deadline = start + min(request.timeout or math.inf, self.limits.deadline_seconds)
        try:
            results = await self._run(model, request, deadline, receive)
        except (RequestFault, ClientDisconnected):
            raise
        except (ShapeError, DTypeError, IndexRangeError, ArgumentError) as problem:
            raise refused(
                f"the model refuses its inputs: {problem.args[0] if problem.args else problem}"[:500]
            ) from None
        except Exception as problem:
            self.log.event("model failed", model=model.name, version=model.version, problem=repr(problem)[:1000])
            raise RequestFault(500, f"the model failed: {type(problem).__name__}: {problem}"[:500]) from None
        text, length = write_response(request, model.name, model.version, model.outputs, results, model.known)
        headers = [JSON] if length is None else [BINARY, (JSON_LENGTH, b"%d" % length)]
        await answer.send(200, headers, text)
        return 200

    async def _run(self, model: ServedModel, request: Any, deadline: float, receive: Receive) -> Any:
        """Run a model; where requests wait long, also watch whether the client is still there."""
        batcher = model.batcher
        if len(batcher.waiting) < batcher.max_batch:
            return await model.infer(request, deadline)
        result = asyncio.ensure_future(model.infer(request, deadline))
        disconnected = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((result, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClientDisconnected
            return result.result()
        finally:
            result.cancel()
            disconnected.cancel()

    async def _body(self, receive: Receive, length: int | None, reserved: list[int]) -> bytes:
        """Receive a body, of which no more is kept than may be."""
        if length is not None:
            self.budget.reserve(length, length)
            reserved[0] = length
        parts, count = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part = message.get("body", b"")
            count += len(part)
            if count > reserved[0]:
                self.budget.reserve(count - reserved[0], count)
                reserved[0] = count
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _show(self, scope: Scope, answer: Answer, page: str) -> None:
        """Show the status or the metrics, to this machine alone."""
        if page not in ("", "status", "metrics"):
            raise refused("there is nothing at this address", 404)
        self._check_local(scope)
        _check_method(scope, "GET", "HEAD")
        match page:
            case "":
                text, kind = status_page(self.status()), b"text/html; charset=utf-8"
            case "metrics":
                text, kind = self.metrics.text(self.gauges()), CONTENT_TYPE.encode()
            case _:
                text, kind = json.dumps(self.status()), b"application/json"
        await answer.send(200, [(b"content-type", kind), *SAFETY_HEADERS], text.encode(), scope["method"] == "HEAD")

    def _check_local(self, scope: Scope) -> None:
        """Refuse requests that do not come from this machine: by another address, or through a proxy or a page."""
        server = scope.get("server") or ("", None)
        found = dict(scope["headers"])
        hosts = {f"{name}:{self.local_port}".encode() for name in ("127.0.0.1", "localhost")}
        is_local = self.local_port is not None and tuple(server) == ("127.0.0.1", self.local_port)
        if not is_local or found.get(b"host") not in hosts or FORWARDED & found.keys():
            raise refused("this is shown to the machine of the server alone", 403)

    def status(self) -> dict[str, Any]:
        """Return the data of the status page."""
        return {
            "version": VERSION,
            "started": self.metrics.started,
            "now": time.time(),
            "draining": self.is_draining,
            "waiting_bytes": self.budget.used,
            "models": [model.state() for model in self.repository.models()],
            "index": self.repository.index(),
        }

    def gauges(self) -> dict[str, dict[str, float]]:
        """Return the values of now, by name and labels."""
        models = self.repository.models()
        return {
            "waiting_requests": {model_label(m.name, m.version): len(m.batcher.waiting) for m in models},
            "running_requests": {model_label(m.name, m.version): m.batcher.running for m in models},
            "request_bytes": {"": self.budget.used},
            "draining": {"": self.is_draining},
        }

    async def _manage(self, scope: Scope, answer: Answer, path: list[str]) -> None:
        """List, load or unload models, for whoever knows the token."""
        if self.token is None:
            raise refused("management is off", 404)
        self._check_local(scope)
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise refused("management asks for its token", 401)
        _check_method(scope, "POST")
        match path:
            case ["index"]:
                return await answer.send_json(scope, 200, self.repository.index())
            case ["models", name, "load"]:
                await self.repository.reload(name)
            case ["models", name, "unload"]:
                await self.repository.unload(name)
            case _:
                raise refused("there is nothing at this address", 404)
        await answer.send_json(scope, 200, {})


class Answer:
    """Send one answer, and remember its status."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, status: int, headers: Headers, body: bytes, without_body: bool = False) -> None:
        """Send headers and body."""
        self.status = status
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": b"" if without_body else body})

    async def send_json(self, scope: Scope, status: int, content: Any) -> None:
        """Send JSON."""
        await self.send(status, [JSON], json.dumps(content).encode(), scope["method"] == "HEAD")


def _check_method(scope: Scope, *allowed: str) -> None:
    if scope["method"] not in allowed:
        raise refused(f"the method here is {' or '.join(allowed)}", 405)
