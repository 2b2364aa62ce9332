import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import tilegrad as tg
from tests.serve.models import NETWORK, encoded
from tilegrad.__main__ import main, parser
from tilegrad.serve.batching import BatchSettings
from tilegrad.serve.command_line import model_files, server_of

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.tgp"
    (tmp_path / "net.txt").write_text(NETWORK)
    tg.load_program(tmp_path / "net.txt").save(path)
    return path


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_server_from_the_first_line_of_its_log_to_the_last(net: Path, ending: int) -> None:
    command = [sys.executable, "-m", "tilegrad", "serve", f"sums={net},max_batch=4", "--port", "0", "--log", "requests"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    try:
        loaded, serving = (json.loads(process.stderr.readline()) for _ in range(2))
        assert (loaded["event"], loaded["model"], serving["event"]) == ("loaded", "sums", "serving")
        assert serving["address"].startswith("http://127.0.0.1:")
        body = encoded({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
        asked = Request(f"{serving['address']}/v2/models/sums/infer", body, {"content-type": "application/json"})
        with urlopen(asked, timeout=20) as answer:
            assert json.load(answer)["outputs"][0]["data"] == [10.0] * 3
        line = json.loads(process.stderr.readline())
        assert (line["event"], line["status"], line["model"]) == ("request", 200, "sums")
        process.send_signal(ending)
        assert process.wait(20) == 0
        assert json.loads(process.stderr.read().splitlines()[-1])["event"] == "ended"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


WRONG = {
    "no file": ["missing.tgp"],
    "no model of that name": ["a b={net}"],
    "an unknown setting": ["{net},max_size=3"],
    "a setting that is no number": ["{net},max_batch=many"],
    "a batch of nothing": ["{net},max_batch=0"],
    "an SLA of nothing": ["{net},sla=0"],
    "a wait of nan": ["{net},wait=nan"],
    "a wait before": ["{net},wait=-1"],
    "no place to wait": ["{net},max_queue=0"],
    "twice the same": ["{net}", "{net}"],
    "a batch of nothing for all": ["{net}", "--max-batch", "0"],
    "no instances": ["{net}", "--instances", "0"],
    "a deadline of nothing": ["{net}", "--deadline", "0"],
    "an infinite drain": ["{net}", "--drain", "inf"],
    "a negative size": ["{net}", "--max-body", "-1"],
    "watching always": ["{net}", "--watch", "0"],
    "a port that does not exist": ["{net}", "--port", "70000"],
    "a token file that is not there": ["{net}", "--token-file", "missing"],
    "a token of one letter": ["{net}", "--token-file", "{short}"],
    "a damaged file": ["{damaged}"],
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_options(net: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short").write_text("x\n")
    (tmp_path / "damaged.tgp").write_bytes(net.read_bytes()[:-9])
    paths = {"net": net, "short": tmp_path / "short", "damaged": tmp_path / "damaged.tgp"}
    options = [word.format(**paths) for word in WRONG[what]]
    assert main(["serve", *(["--port", "0"] if "--port" not in options else []), *options]) == 1
    assert capsys.readouterr().err.startswith("tilegrad serve: ")


def test_settings_of_a_model(net: Path) -> None:
    (file,) = model_files(f"{net},max_batch=64,wait=0.002,sla=0.05", BatchSettings(max_queue=7))
    assert file.settings == BatchSettings(64, 0.002, 0.05, 7)


def test_options_reach_the_server(net: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of the tests\n")
    options = ["serve", str(net), "--port", "0", "--max-body", "3", "--deadline", "2", "--token-file"]
    server = server_of(parser().parse_args([*options, str(tmp_path / "token"), "--host", "127.0.0.2", "--log", "off"]))
    assert server.limits.max_body_bytes == 3 << 20
    assert server.limits.deadline_seconds == 2
    assert server.application.token == "a token of the tests"
    assert [s.getsockname() for s in server.sockets] == [("127.0.0.2", server.port), ("127.0.0.1", server.local_port)]
    for listener in server.sockets:
        listener.close()


def test_what_is_missing_is_named(
    net: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tilegrad.serve.command_line.find_spec", lambda name: None)
    assert main(["serve", str(net)]) == 1
    assert "pip install 'tilegrad[serve]'" in capsys.readouterr().err
