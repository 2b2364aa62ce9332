"""Networks from files on the server."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.serve.models import asked, encoded
from tilegrad.errors import ArgumentError, DataError, MissingFileError
from tilegrad.serve.application import Application
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.engine_models import engine_loader
from tilegrad.serve.logs import EventLog
from tilegrad.serve.metrics import ServerMetrics
from tilegrad.serve.model import objection_to_batches
from tilegrad.serve.repository import ModelFile, Repository

ROWS = np.random.default_rng(0).random((5, 4), np.float32)


class AcrossRows(tg.nn.Module):
    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return x.softmax(0)


def exported(path: Path, model: tg.nn.Module, dynamic: bool = True) -> Path:
    x = tg.ones(3, 4)
    if path.suffix == ".onnx":
        tg.onnx.export(model, (x,), path, dynamic_axes={"x": {0: "n"}} if dynamic else None, input_names=["x"])
    else:
        name = "x" if isinstance(model, AcrossRows) else "input"
        tg.export(model, x, dynamic={name: {0: "n"}} if dynamic else None).save(path)
    return path


def net() -> tg.nn.Module:
    tg.manual_seed(1)
    return tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.ReLU(), tg.nn.Linear(8, 2)).eval()


@pytest.mark.parametrize("ending", ["tgp", "onnx"])
def test_requests_that_run_together_get_the_results_of_the_network(tmp_path: Path, ending: str) -> None:
    model = net()
    path = exported(tmp_path / f"net.{ending}", model)
    with tg.no_grad():
        expected = model(tg.tensor(ROWS)).numpy()
    metrics = ServerMetrics()
    repository = Repository([ModelFile("net", "1", path)], engine_loader(2), metrics, EventLog(None))
    repository.load_all()
    served = repository.find("net")
    assert served.objection is None
    app = Application(repository, metrics, EventLog(None))
    (spec,) = served.inputs

    async def run() -> None:
        entries = [
            {"inputs": [{"name": spec.name, "shape": [1, 4], "datatype": "FP32", "data": row.tolist()}]} for row in ROWS
        ]
        replies = await asyncio.gather(*(asked(app, "POST", "/v2/models/net/infer", encoded(x)) for x in entries))
        found = [reply.json["outputs"][0]["data"] for reply in replies]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

    asyncio.run(run())
    assert served.metrics.batch_rows.sum == len(ROWS)
    assert served.metrics.batch_rows.count < len(ROWS)


def test_a_network_across_rows_is_not_put_in_batches(tmp_path: Path) -> None:
    network = engine_loader()(exported(tmp_path / "net.tgp", AcrossRows()), BatchSettings())
    assert "other rows" in str(objection_to_batches(network))


def test_a_network_for_one_size_of_batches_serves_that(tmp_path: Path) -> None:
    network = engine_loader()(exported(tmp_path / "net.tgp", net(), dynamic=False), BatchSettings())
    assert network.inputs[0].shape == (3, 4)
    assert network.row_size is None


@pytest.mark.parametrize("ending", ["tgp", "onnx", "txt"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_damaged_files_are_refused_by_their_own_name(tmp_path: Path, ending: str, damage: str) -> None:
    path = tmp_path / f"net.{ending}"
    if ending == "txt":
        path.write_text("tilegrad network 1\nnonsense\n")
    else:
        exported(path, net())
        data = path.read_bytes()
        changed = {
            "cut": data[: len(data) // 2],
            "flipped": data[:20] + bytes(255 - b for b in data[20:60]) + data[60:],
            "empty": b"",
            "other": b"PK\x03\x04" * 20,
        }
        path.write_bytes(changed[damage])
    with pytest.raises(DataError) as problem:
        engine_loader()(path, BatchSettings())
    assert "tilegrad-serve-" not in str(problem.value)


def test_a_file_that_is_written_over_does_not_change_the_model_that_answers(tmp_path: Path) -> None:
    path = exported(tmp_path / "net.tgp", net())
    network = engine_loader()(path, BatchSettings())
    before = network.inferencers[0](ROWS)[0]
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(os.urandom(size))
        file.truncate(100)
    np.testing.assert_array_equal(network.inferencers[0](ROWS)[0], before)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        engine_loader()(tmp_path / "net.tgp", BatchSettings())


@pytest.mark.parametrize("count", [0, -1, 1000])
def test_numbers_of_instances(count: int) -> None:
    with pytest.raises(ArgumentError, match="instances"):
        engine_loader(count)
