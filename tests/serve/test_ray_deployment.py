"""Replicas of Ray Serve; without Ray they are called as it calls them."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.serve.models import NETWORK, encoded, request
from tilegrad.errors import ArgumentError, TilegradError
from tilegrad.serve.ray_deployment import Replica, _absolute, deployment

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
SUMS = ROWS.sum(1, keepdims=True).repeat(3, 1)
BODY = encoded(request(ROWS))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.txt"
    path.write_text(NETWORK)
    return path


def test_a_replica_answers_calls_with_arrays(net: Path) -> None:
    replica = Replica([f"sums={net}"], {"max_batch": 4})

    async def run() -> None:
        results = await asyncio.gather(*(replica.infer("sums", x=ROWS + n) for n in range(3)))
        for n, found in enumerate(results):
            (output,) = found.values()
            np.testing.assert_allclose(output, SUMS + 4 * n)
        await replica.check_health()
        for wrong in ({}, {"y": ROWS}, {"x": np.zeros((9, 4), np.float32)}):
            with pytest.raises(ArgumentError):
                await replica.infer("sums", **wrong)
        await replica.repository.unload("sums")
        with pytest.raises(ArgumentError):
            await replica.check_health()

    asyncio.run(run())


def test_a_replica_answers_requests(net: Path) -> None:
    pytest.importorskip("starlette")
    replica = Replica([str(net)], {})

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": BODY}

    async def run() -> None:
        scope = {"type": "http", "method": "POST", "path": "/at/v2/models/net/infer", "root_path": "/at", "headers": []}
        answer = await replica(SimpleNamespace(scope=scope, receive=receive))
        assert answer.status_code == 200
        np.testing.assert_allclose(json.loads(answer.body)["outputs"][0]["data"], SUMS.ravel())

    asyncio.run(run())


def test_a_replica_without_its_file() -> None:
    with pytest.raises(TilegradError):
        Replica(["missing.tgp"], {})
    assert _absolute("a:2=/x/../net.tgp") == "a:2=/net.tgp"


def test_two_replicas(net: Path) -> None:
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        serve.start(proxy_location="Disabled")  # requests over HTTP are tested above
        options = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.1}}
        handle = serve.run(deployment(str(net), **options), route_prefix="/")
        answers = [handle.infer.remote("net", x=ROWS + n) for n in range(20)]
        for n, answer in enumerate(answers):
            (found,) = answer.result(timeout_s=120).values()
            np.testing.assert_allclose(found, SUMS + 4 * n)
        (application,) = serve.status().applications.values()
        (state,) = application.deployments.values()
        assert state.replica_states == {"RUNNING": 2}
    finally:
        serve.shutdown()
        ray.shutdown()
