import asyncio
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.serve.models import asked, encoded, network, request
from tilegrad.errors import ArgumentError, DataError, MissingFileError, TilegradError
from tilegrad.serve.application import Application
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.faults import RequestFault
from tilegrad.serve.logs import EventLog
from tilegrad.serve.metrics import ServerMetrics
from tilegrad.serve.model import LoadedNetwork
from tilegrad.serve.repository import ModelFile, Repository, files_of

TOKEN = "a token of the tests"
BODY = encoded(request([[1, 1, 1, 1]]))


def scaled(path: Path, settings: BatchSettings) -> LoadedNetwork:
    """Read a factor from a file, as a stand-in for a network."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    try:
        factor = float(path.read_text())
    except ValueError:
        raise DataError(f"{path} is damaged") from None
    return network(lambda x: [factor * x[:, :3]])


def made(folder: Path, log: EventLog | None = None, **factors: str) -> Repository:
    files = []
    for name, factor in factors.items():
        model, _, version = name.partition("_")
        path = folder / f"{name}.txt"
        path.write_text(factor)
        files.append(ModelFile(model, version or "1", path))
    repository = Repository(files, scaled, ServerMetrics(), log or EventLog(None))
    repository.load_all()
    return repository


def application(repository: Repository) -> Application:
    return Application(repository, ServerMetrics(), EventLog(None), local_port=8000, token=TOKEN)


async def value(app: Application, path: str = "/v2/models/net/infer") -> float:
    return (await asked(app, "POST", path, BODY)).json["outputs"][0]["data"][0]


async def manage(app: Application, path: str) -> int:
    return (await asked(app, "POST", f"/v2/repository/models/{path}", authorization=f"Bearer {TOKEN}")).status


def test_the_newest_version_answers_unless_another_is_named(tmp_path: Path) -> None:
    app = application(made(tmp_path, net_9="9", net_10="10", net_old="1"))

    async def run() -> None:
        assert await value(app) == 10
        for version in ("9", "10"):
            assert await value(app, f"/v2/models/net/versions/{version}/infer") == float(version)
        assert (await asked(app, "GET", "/v2/models/net")).json["versions"] == ["old", "9", "10"]

    asyncio.run(run())


def test_a_file_is_loaded_again_while_the_old_model_answers(tmp_path: Path) -> None:
    repository = made(tmp_path, net="1")
    app = application(repository)

    async def run() -> None:
        assert await value(app) == 1
        (tmp_path / "net.txt").write_text("2")
        assert await value(app) == 1, "nothing is loaded that nobody asked for"
        assert await manage(app, "net/load") == 200
        assert await value(app) == 2
        assert await manage(app, "net/unload") == 200
        assert (await asked(app, "POST", "/v2/models/net/infer", BODY)).status == 404
        assert (await asked(app, "GET", "/v2/health/ready")).status == 503
        assert await manage(app, "net/load") == 200
        assert await value(app) == 2
        for path, status in (("other/load", 404), ("other/unload", 404), ("net/delete", 404), ("../net/load", 404)):
            assert await manage(app, path) == status

    asyncio.run(run())


@pytest.mark.parametrize("damage", ["text", "empty", "gone"])
def test_a_broken_file_leaves_the_old_model(tmp_path: Path, damage: str) -> None:
    repository = made(tmp_path, net="1")
    app = application(repository)
    path = tmp_path / "net.txt"

    async def run() -> None:
        path.unlink() if damage == "gone" else path.write_text({"text": "?", "empty": ""}[damage])
        assert await manage(app, "net/load") == 400
        assert await value(app) == 1
        (entry,) = repository.index()
        assert entry["state"] == "READY"
        assert "file" in entry["reason"] or "damaged" in entry["reason"]
        path.write_text("3")
        assert await manage(app, "net/load") == 200
        assert await value(app) == 3
        assert repository.index()[0]["reason"] == ""

    asyncio.run(run())


def test_files_that_change_are_loaded_where_they_are_watched(tmp_path: Path) -> None:
    repository = made(tmp_path, net="1")
    app = application(repository)
    path = tmp_path / "net.txt"
    loads: list[Path] = []
    load, repository._load = repository._load, lambda path, settings: (loads.append(path), load(path, settings))[1]

    def rewrite(text: str, time: int) -> None:
        path.write_text(text)
        os.utime(path, ns=(time, time))

    async def run() -> None:
        await repository.reload_changed()
        assert not loads
        rewrite("2", 10**18)
        await repository.reload_changed()
        assert await value(app) == 2
        rewrite("broken", 2 * 10**18)
        await repository.reload_changed()
        await repository.reload_changed()
        assert len(loads) == 2, "a broken file is not tried again before it changes"
        assert await value(app) == 2
        path.unlink()
        await repository.reload_changed()
        assert await value(app) == 2

    asyncio.run(run())


def test_requests_of_the_old_model_are_answered(tmp_path: Path) -> None:
    repository = made(tmp_path, net="1")

    async def run() -> None:
        old = repository.find("net")
        results = [
            asyncio.ensure_future(old.batcher.run((np.ones((1, 4), np.float32),), float("inf"))) for _ in range(9)
        ]
        await asyncio.sleep(0)
        (tmp_path / "net.txt").write_text("5")
        await repository.reload("net")
        assert [float(x[0][0, 0]) for x in await asyncio.gather(*results)] == [1.0] * 9
        assert repository.find("net") is not old
        with pytest.raises(RequestFault):
            await old.batcher.run((np.ones((1, 4), np.float32),), float("inf"))

    asyncio.run(run())


def test_what_the_command_line_names(tmp_path: Path) -> None:
    for path in ("a.tgp", "odd=name.tgp", "models/b/1/x.onnx", "models/b/2/y.tgp", "models/b/2/notes.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    settings = BatchSettings()
    file = tmp_path / "a.tgp"
    assert files_of(str(file), settings) == [ModelFile("a", "1", file, settings)]
    assert files_of(f"net={file}", settings) == [ModelFile("net", "1", file, settings)]
    assert files_of(f"net:7={file}", settings) == [ModelFile("net", "7", file, settings)]
    folder = tmp_path / "models"
    assert files_of(str(folder), settings) == [
        ModelFile("b", "1", folder / "b/1/x.onnx", settings),
        ModelFile("b", "2", folder / "b/2/y.tgp", settings),
    ]
    wrong = [
        "missing.tgp",
        f"a/b={file}",
        f"..%2f={file}",
        f"a:b/c={file}",
        f"net={folder}",
        str(tmp_path / "models/b"),
    ]
    for text in [*wrong, str(tmp_path / "odd=name.tgp"), "", "net="]:
        with pytest.raises(TilegradError):
            files_of(text, settings)


def test_a_version_is_there_once(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="two files"):
        Repository([ModelFile("a", "1", tmp_path)] * 2, scaled, ServerMetrics(), EventLog(None))


def test_the_log_is_lines_of_json(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    repository = made(tmp_path, log, net="1")

    async def run() -> None:
        (tmp_path / "net.txt").write_text("broken\n")
        with pytest.raises(RequestFault):
            await repository.reload("net")
        await repository.unload("net")

    asyncio.run(run())
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["loaded", "not loaded", "unloaded"]
    assert all(line["time"].endswith("Z") and line["model"] == "net" for line in lines)


def test_a_log_that_nobody_reads_any_more_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    log = EventLog(stream)
    for n in range(20_000):
        log.event("something", number=n)
    log.close()
