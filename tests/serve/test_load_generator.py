import numpy as np
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from tests.serve.models import linear
from tests.serve.test_server import INFER, serving
from tilegrad.errors import ArgumentError, DataError
from tilegrad.serve.__main__ import main
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.load_generator import ServedAddress, address_of, run_load


def test_results_are_verified(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        address = address_of(server.address, "net")
        assert address.path == INFER
        for binary in (True, False):
            report = run_load(address, 200, 8, rows=2, binary=binary, inputs=5, warm_up=20)
            assert dict(report.statuses) == {200: 200}
            assert report.wrong == 0
            assert len(report.latencies) == 200
            assert report.percentile(50) <= report.percentile(99)
        assert main(["bench", server.address, "net", "--requests", "50", "--connections", "4"]) == 0
        assert "50 requests" in capsys.readouterr().out


def test_wrong_results_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def forgetful(x: np.ndarray) -> list[np.ndarray]:
        calls.append(len(x))
        return [linear(x)[0] * (1 if len(calls) < 100 else 2)]

    with serving(forgetful, settings=BatchSettings(max_batch=1)) as server:
        assert run_load(address_of(server.address, "net"), 100, 4).wrong > 0
        calls.clear()
        assert main(["bench", server.address, "net", "--requests", "100"]) == 1


def test_failures_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def failing(x: np.ndarray) -> list[np.ndarray]:
        calls.append(len(x))
        if len(calls) > 80:
            raise RuntimeError("it is worn out")
        return linear(x)

    with serving(failing, settings=BatchSettings(max_batch=1)) as server:
        report = run_load(address_of(server.address, "net"), 50, 4)
        assert report.statuses == {200: 16, 500: 34}
        assert main(["bench", server.address, "net"]) == 1
        assert "fail" in capsys.readouterr().err


def test_what_is_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        with pytest.raises(DataError, match="no model"):
            run_load(address_of(server.address, "other"), 1, 1)
    with pytest.raises(DataError, match="does not answer"):
        ServedAddress(server.host, server.port, "net").metadata()
    for url in ("https://x", "", "ftp://x"):
        with pytest.raises(ArgumentError):
            address_of(url, "net")
    assert main(["bench", "ftp://x", "net"]) == 1
    with pytest.raises(SystemExit):
        main(["bench", server.address, "net", "--requests", "0"])
