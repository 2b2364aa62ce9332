"""Deploy networks on Ray Serve: the same engines and batches, in replicas on many machines.

Ray routes requests to replicas and replaces those that fail; nothing of that is done here. A replica answers the paths
of the Open Inference Protocol over HTTP, and calls of other deployments with arrays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .application import Application
from .batching import BatchSettings
from .engine_models import engine_loader
from .faults import RequestFault
from .limits import RequestLimits
from .logs import EventLog
from .metrics import ServerMetrics
from .protocol import InferenceRequest
from .repository import Repository, files_of

DEADLINE_SECONDS = 60.0


class Replica:
    """Answers requests in one process of Ray. `files` are those of `tilegrad serve`, which each machine must have."""

    def __init__(self, files: Sequence[str], settings: dict[str, Any], instances: int = 1) -> None:
        metrics, log = ServerMetrics(), EventLog()
        chosen = BatchSettings(**settings)
        found = [file for text in files for file in files_of(text, chosen)]
        self.repository = Repository(found, engine_loader(instances), metrics, log)
        self.repository.load_all()
        self.application = Application(self.repository, metrics, log, RequestLimits())

    async def __call__(self, request: Any) -> Any:
        """Answer a request of HTTP, which Ray gives as one of starlette."""
        from starlette.responses import Response

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {**request.scope, "path": request.scope["path"].removeprefix(request.scope.get("root_path", ""))}
        await self.application(scope, request.receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Response(body, sent[0]["status"], headers)

    async def infer(self, model: str, **inputs: Any) -> dict[str, Any]:
        """Return the outputs of a model by name, for arrays by name."""
        served = self.repository.find(model)
        names = [spec.name for spec in served.inputs]
        if set(names) != inputs.keys():
            raise ArgumentError(f"the model {model} has the inputs {', '.join(names)}")
        arrays = tuple(np.ascontiguousarray(inputs[x.name], x.dtype) for x in served.inputs)
        wanted = tuple((n, True) for n in range(len(served.outputs)))
        try:
            results = await served.infer(InferenceRequest(arrays, wanted), time.monotonic() + DEADLINE_SECONDS)
        except RequestFault as fault:
            raise ArgumentError(fault.message) from None
        return {spec.name: array for spec, array in zip(served.outputs, results, strict=True)}

    async def check_health(self) -> None:
        """Raise if no model can answer: Ray asks, and replaces the replica."""
        await asyncio.sleep(0)
        if not self.repository.models():
            raise ArgumentError("no model is loaded")


def deployment(*files: str, settings: BatchSettings = BatchSettings(), instances: int = 1, **options: Any) -> Any:
    """Make an application of Ray Serve; options are those of `ray.serve.deployment`, such as `num_replicas`.

    ray.serve.run(deployment("net.tgp", num_replicas=2), route_prefix="/")
    """
    from ray import serve

    if not files:
        raise ArgumentError("deployment: no file is given")
    absolute = [_absolute(text) for text in files]
    return serve.deployment(Replica, **options).bind(absolute, asdict(settings), instances)


def _absolute(text: str) -> str:
    """Name a file so that processes in other folders find it."""
    name, equals, path = text.rpartition("=")
    return f"{name}{equals}{Path(path).resolve()}"
