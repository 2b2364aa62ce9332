"""Models for tests of the server: plain functions, and a client that calls the application without a network."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilegrad.serve.application import Application
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.limits import RequestLimits
from tilegrad.serve.logs import EventLog
from tilegrad.serve.metrics import ServerMetrics
from tilegrad.serve.model import LoadedNetwork
from tilegrad.serve.repository import ModelFile, Repository
from tilegrad.serve.tensor_data import ServedTensor

FLOAT = np.dtype("float32")
NETWORK = """tilegrad network 1
tensors:
  w: parameter float32[3, 4] = ones
evaluate(x: float32[n, 4]) -> tensor:
  y = linear(x, w)
  return y
"""
"""A network that sums each row, three times."""
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def linear(x: np.ndarray) -> list[np.ndarray]:
    """A model of which each row can be told from every other."""
    return [x @ WEIGHTS]


def refusing_negatives(x: np.ndarray) -> list[np.ndarray]:
    """A model that fails for some inputs."""
    if (x < 0).any():
        raise ValueError("a number is negative")
    return linear(x)


def over_all_rows(x: np.ndarray) -> list[np.ndarray]:
    """A model that must not run requests together."""
    return [x @ WEIGHTS - x.mean()]


def network(call: Callable[..., Sequence[np.ndarray]], *, instances: int = 1) -> LoadedNetwork:
    """A network with one input and one output, of any number of rows."""
    return LoadedNetwork(
        (ServedTensor("x", FLOAT, ("n", 4)),), (ServedTensor("y", FLOAT, ("n", 3)),), (call,) * instances
    )


def two_inputs() -> LoadedNetwork:
    """A network with two inputs of a length that varies too, and integers."""
    inputs = (
        ServedTensor("tokens", np.dtype("int64"), ("n", "length")),
        ServedTensor("mask", np.dtype("bool"), ("n", "length")),
    )
    outputs = (ServedTensor("count", np.dtype("int64"), ("n",)), ServedTensor("sum", FLOAT, ("n",)))
    return LoadedNetwork(
        inputs, outputs, (lambda t, m: [m.sum(1), np.where(m, t, 0).sum(1).astype(np.float32)],), "test"
    )


def application(
    networks: dict[str, LoadedNetwork], settings: BatchSettings = BatchSettings(), **options: Any
) -> Application:
    """An application that serves networks, without files."""
    metrics, log = ServerMetrics(), EventLog(None)
    files = [ModelFile(name, "1", Path(name), settings) for name in networks]
    repository = Repository(files, lambda path, _: networks[path.name], metrics, log)
    repository.load_all()
    return Application(repository, metrics, log, options.pop("limits", RequestLimits()), **options)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        length = self.headers.get("inference-header-content-length")
        return json.loads(self.body[: int(length)] if length else self.body)


async def asked(
    app: Application,
    method: str,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    *,
    port: int = 8000,
    **headers: str,
) -> Reply:
    """The answer to a request; several bodies are parts that come one after the other."""
    parts = [body] if isinstance(body, bytes) else list(body)
    messages = [{"type": "http.request", "body": part, "more_body": n + 1 < len(parts)} for n, part in enumerate(parts)]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    named = {"host": f"127.0.0.1:{port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "method": method, "path": path, "server": ("127.0.0.1", port),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], found, b"".join(message["body"] for message in sent[1:]))


def ask(app: Application, *args: Any, **options: Any) -> Reply:
    """The answer to one request, on an event loop of its own."""
    return asyncio.run(asked(app, *args, **options))


def request(rows: Any, **more: Any) -> dict[str, Any]:
    """A request for the networks with one input."""
    array = np.asarray(rows, np.float32)
    return {"inputs": [{"name": "x", "shape": list(array.shape), "datatype": "FP32", "data": array.tolist()}], **more}


def encoded(content: Any) -> bytes:
    return json.dumps(content).encode()
