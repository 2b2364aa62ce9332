import asyncio
import json
import re
import threading

import numpy as np
import pytest

from tests.serve.models import (
    application,
    ask,
    asked,
    encoded,
    linear,
    network,
    over_all_rows,
    refusing_negatives,
    request,
)
from tilegrad.config import VERSION
from tilegrad.errors import ShapeError
from tilegrad.serve.application import Application, ClientDisconnected
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.limits import RequestLimits
from tilegrad.serve.status_page import ASSETS
from tilegrad.viewer.page import script_text

INFER = "/v2/models/net/infer"
BODY = encoded(request([[1, 2, 3, 4]]))
TOKEN = "a token of the tests"


@pytest.fixture
def app() -> Application:
    return application({"net": network(refusing_negatives)}, local_port=8000, token=TOKEN)


def test_health_and_metadata(app: Application) -> None:
    assert ask(app, "GET", "/v2").json == {
        "name": "tilegrad", "version": VERSION, "extensions": ["binary_tensor_data", "model_repository"],
    }  # fmt: skip
    assert ask(app, "GET", "/v2/health/live").json == {"live": True}
    assert ask(app, "GET", "/v2/health/ready").json == {"ready": True}
    for path in ("/v2/models/net", "/v2/models/net/versions/1"):
        assert ask(app, "GET", path).json == {
            "name": "net",
            "versions": ["1"],
            "platform": "tilegrad",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }
        assert ask(app, "GET", path + "/ready").json == {"name": "net", "ready": True}
        assert ask(app, "POST", path + "/infer", BODY).status == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/v2/models/other", "/v2/models/net/versions/2", "/v2/models/net/versions/2/infer", "/v3", "/v2/models"),
        *(
            "/nothing",
            "/v2/health",
            "/v2/models/net/config",
            "//",
            "/v2/models/../net/infer",
            "/v2/models/%2e%2e/infer",
        ),
        *("/v2/models//infer", "/../../etc/passwd", "/v2/models/net/versions//infer", "/" + "a/" * 1000, "/v2/x/y/z"),
    ],
)
def test_there_is_nothing_elsewhere(app: Application, path: str) -> None:
    method = "POST" if path.endswith("infer") else "GET"
    assert ask(app, method, path).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(
            ("GET", INFER, "POST"),
            ("PUT", INFER, "POST"),
            ("POST", "/v2", "GET, HEAD"),
            ("DELETE", "/v2/models/net", ""),
        ),
        *(("POST", "/metrics", "GET, HEAD"), ("TRACE", "/v2/health/live", ""), ("GET", "/v2/repository/index", "POST")),
    ],
)
def test_wrong_methods(app: Application, method: str, path: str, allowed: str) -> None:
    reply = ask(app, method, path, authorization=f"Bearer {TOKEN}")
    assert reply.status == 405
    assert not allowed or reply.headers["allow"] == allowed


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "", "application/x-www-form-urlencoded"]
)
def test_wrong_content_types(app: Application, kind: str) -> None:
    assert ask(app, "POST", INFER, BODY, content_type=kind).status == 415


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_compressed_bodies_are_not_read(app: Application, coding: str) -> None:
    assert ask(app, "POST", INFER, BODY, content_encoding=coding).status == 415


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "9" * 30])
def test_wrong_lengths(app: Application, length: str) -> None:
    assert ask(app, "POST", INFER, BODY, content_length=length).status == 400


def test_bodies_are_bounded() -> None:
    app = application({"net": network(linear)}, limits=RequestLimits(max_body_bytes=500, max_waiting_bytes=600))
    assert ask(app, "POST", INFER, BODY).status == 200
    assert ask(app, "POST", INFER, b"", content_length="501").status == 413, "what it says is enough"
    reply = ask(app, "POST", INFER, [b" " * 100] * 6)
    assert reply.status == 413, "and what comes is counted"
    assert reply.headers["connection"] == "close"
    app.budget.reserve(400, 400)
    reply = ask(app, "POST", INFER, [b" " * 100] * 3)
    assert reply.status == 429, "all bodies together are bounded"
    assert int(reply.headers["retry-after"]) >= 1
    app.budget.release(400)
    assert app.budget.used == 0
    assert ask(app, "POST", INFER, BODY).status == 200


def test_a_body_may_come_in_parts(app: Application) -> None:
    assert ask(app, "POST", INFER, [BODY[n : n + 7] for n in range(0, len(BODY), 7)]).status == 200


def test_headers_are_bounded(app: Application) -> None:
    assert ask(app, "GET", "/v2", **{f"x-{n}": "1" for n in range(100)}).status == 431


def test_a_request_that_fails_fails_alone(app: Application) -> None:
    async def run() -> list[int]:
        bodies = [encoded(request([[n if n != 3 else -1, 2, 3, 4]])) for n in range(8)]
        replies = await asyncio.gather(*(asked(app, "POST", INFER, body) for body in bodies))
        for n, reply in enumerate(replies):
            if n != 3:
                np.testing.assert_allclose(reply.json["outputs"][0]["data"], linear(np.array([[n, 2, 3, 4.0]]))[0][0])
        assert "negative" in replies[3].json["error"]
        return [reply.status for reply in replies]

    assert asyncio.run(run()) == [200, 200, 200, 500, 200, 200, 200, 200]
    assert app.repository.find("net").metrics.batch_rows.counts[3] == 1, "they ran together"


def test_what_a_model_refuses_is_the_fault_of_the_request() -> None:
    def choosy(x: np.ndarray) -> list[np.ndarray]:
        if (x > 7).any():
            raise ShapeError("the table has 7 rows")
        return linear(x)

    app = application({"net": network(choosy)})
    reply = ask(app, "POST", INFER, encoded(request([[8, 1, 1, 1]])))
    assert reply.status == 400
    assert reply.json["error"].endswith("the table has 7 rows")
    assert ask(app, "POST", INFER, BODY).status == 200


def test_rows_that_depend_on_others_are_not_put_together() -> None:
    app = application({"net": network(over_all_rows)})
    model = app.repository.find("net")
    assert "depend on other rows" in str(model.objection)
    assert model.batcher.max_batch == 1

    async def run() -> None:
        bodies = [request(np.full((1, 4), n)) for n in range(4)]
        replies = await asyncio.gather(*(asked(app, "POST", INFER, encoded(body)) for body in bodies))
        for n, reply in enumerate(replies):
            expected = over_all_rows(np.full((1, 4), n, np.float32))[0]
            np.testing.assert_allclose(reply.json["outputs"][0]["data"], expected[0])

    asyncio.run(run())
    assert ask(app, "POST", INFER, encoded(request(np.ones((40, 4))))).status == 200, "its rows are its own business"


def test_a_client_that_leaves_is_no_failure(app: Application) -> None:
    async def run() -> None:
        sent: list[object] = []

        async def receive() -> dict[str, str]:
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "server": None}
        await app(scope, receive, lambda message: sent.append(message))
        assert not sent
        assert app.budget.used == 0

    asyncio.run(run())
    assert app.repository.find("net").metrics.statuses == {499: 1}


def test_a_client_that_leaves_the_queue_is_not_served() -> None:
    gate, calls = threading.Event(), []

    def model(x: np.ndarray) -> list[np.ndarray]:
        calls.append(len(x))
        if len(calls) > 0 and x[0, 0] == 7:
            assert gate.wait(20)
        return linear(x)

    app = application({"net": network(model)}, BatchSettings(max_batch=1))
    calls.clear()

    async def run() -> None:
        first = asyncio.ensure_future(asked(app, "POST", INFER, encoded(request([[7, 1, 1, 1]]))))
        batcher = app.repository.find("net").batcher
        while not batcher.running:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(asked(app, "POST", INFER, BODY))
        while not batcher.waiting:
            await asyncio.sleep(0)
        messages: list[dict[str, object]] = [{"type": "http.request", "body": BODY}, {"type": "http.disconnect"}]

        async def receive() -> dict[str, object]:
            return messages.pop(0)

        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "server": None}
        await app(scope, receive, pytest.fail)
        gate.set()
        assert (await first).status == (await second).status == 200

    asyncio.run(run())
    assert calls == [1, 1]
    with pytest.raises(ClientDisconnected):
        raise ClientDisconnected


def test_a_timeout_of_the_request() -> None:
    gate = threading.Event()
    app = application({"net": network(lambda x: linear(x) if gate.wait(20) else [])}, BatchSettings(max_batch=1))

    async def run() -> None:
        reply = await asked(app, "POST", INFER, encoded(request([[1, 2, 3, 4]], parameters={"timeout": 1000})))
        assert reply.status == 504
        gate.set()
        assert (await asked(app, "POST", INFER, BODY)).status == 200

    asyncio.run(run())


def test_overload_says_when_to_come_again() -> None:
    gate = threading.Event()
    app = application(
        {"net": network(lambda x: linear(x) if gate.wait(20) else [])}, BatchSettings(max_batch=1, max_queue=1)
    )

    async def run() -> None:
        batcher = app.repository.find("net").batcher
        tasks = [asyncio.ensure_future(asked(app, "POST", INFER, BODY))]
        while not batcher.running:
            await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(asked(app, "POST", INFER, BODY)))
        while not batcher.waiting:
            await asyncio.sleep(0)
        reply = await asked(app, "POST", INFER, BODY)
        assert reply.status == 429
        assert reply.headers["retry-after"].isdigit()
        gate.set()
        assert [task.status for task in await asyncio.gather(*tasks)] == [200, 200]

    asyncio.run(run())


LOCAL_PAGES = ["/", "/status", "/metrics", "/v2/repository/index"]


@pytest.mark.parametrize("path", LOCAL_PAGES)
def test_status_and_management_are_for_this_machine(app: Application, path: str) -> None:
    method = "POST" if "repository" in path else "GET"
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert ask(app, method, path, **headers).status == 200
    assert ask(app, method, path, **headers, host="example.org").status == 403, "a page elsewhere"
    assert ask(app, method, path, **headers, host="127.0.0.1:9").status == 403
    assert ask(app, method, path, **headers, port=9000).status == 403, "another listener"
    for proxy in ("x-forwarded-for", "forwarded", "via", "x-real-ip", "x-forwarded-host"):
        assert ask(app, method, path, **headers, **{proxy: "10.0.0.1"}).status == 403
    app.local_port = None
    assert ask(app, method, path, **headers).status == 403
    assert ask(app, "POST", INFER, BODY, port=9000).status == 200, "results are for everyone"


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", f"bearer {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Basic YTpi", "\xe9"]
)
@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/repository/models/net/unload"])
def test_management_asks_for_its_token(app: Application, path: str, given: str) -> None:
    assert ask(app, "POST", path, authorization=given).status == 401
    assert ask(app, "POST", INFER, BODY).status == 200


def test_management_is_off_without_a_token() -> None:
    app = application({"net": network(linear)}, local_port=8000)
    for path in ("index", "models/net/load", "models/net/unload"):
        assert ask(app, "POST", f"/v2/repository/{path}", authorization="Bearer ").status == 404


def test_metrics(app: Application) -> None:
    ask(app, "POST", INFER, BODY)
    ask(app, "POST", INFER, b"")
    ask(app, "GET", "/nowhere")
    lines = ask(app, "GET", "/metrics").body.decode().splitlines()
    assert 'tilegrad_requests_total{model="net",version="1",code="200"} 1' in lines
    assert 'tilegrad_requests_total{model="net",version="1",code="400"} 1' in lines
    assert 'tilegrad_requests_total{code="404"} 1' in lines
    assert 'tilegrad_request_seconds_count{model="net",version="1"} 2' in lines
    assert 'tilegrad_waiting_requests{model="net",version="1"} 0' in lines
    assert "tilegrad_request_bytes 0" in lines
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)


def test_the_status_page_shows_the_histograms(app: Application) -> None:
    ask(app, "POST", INFER, BODY)
    status = json.loads(ask(app, "GET", "/status").body)
    (model,) = status["models"]
    assert sum(model["request_seconds"]["counts"]) == 1
    assert model["statuses"] == {"200": 1}
    page = ask(app, "GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert b"connect-src 'self'" in page.body
    assert ask(app, "HEAD", "/").body == b""


def test_the_server_is_not_ready_while_it_ends(app: Application) -> None:
    async def run() -> None:
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[str] = []

        async def receive() -> dict[str, str]:
            return messages.pop(0)

        async def send(message: dict[str, str]) -> None:
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(run())
    assert ask(app, "GET", "/v2/health/ready").status == ask(app, "GET", "/v2/models/net/ready").status == 503
    assert ask(app, "GET", "/v2/health/live").status == 200
    assert ask(app, "POST", INFER, BODY).status == 503


def test_names_of_the_status_script_are_unique() -> None:
    text = script_text("status", ASSETS)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
