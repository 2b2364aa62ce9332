"""The server answers this machine alone, with the page and its news, and with nothing else."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

import tilegrad as tg
from tests.source import ROOT
from tests.viewer.saved import data_alone
from tilegrad.errors import ArgumentError
from tilegrad.viewer.server import HOST, Server, served
from tilegrad.viewer.sources import PageSource


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tg.tensorboard.SummaryWriter]:
    with tg.tensorboard.SummaryWriter(tmp_path / "runs" / "first") as made:
        made.add_scalar("loss", 1.0, 0)
        made.flush()
        yield made


@pytest.fixture
def server(writer: tg.tensorboard.SummaryWriter, tmp_path: Path) -> Iterator[Server]:
    with served(PageSource(tmp_path / "runs"), None) as made:
        thread = Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: Server, path: str, method: str = "GET", host: str = "") -> tuple[HTTPResponse, str]:
    with closing(HTTPConnection(HOST, server.server_port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"{HOST}:{server.server_port}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read().decode()


def test_the_page(server: Server) -> None:
    answer, text = ask(server, "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert data_alone(text)["live"]
    assert "connect-src 'self'" in text
    assert ask(server, "/", "HEAD")[1] == ""


def test_it_listens_to_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:6007", "127.0.0.1:1", " "])
def test_other_hosts_are_refused(server: Server, host: str) -> None:
    """A page elsewhere whose name leads to this machine must not read what is served."""
    answer, text = ask(server, "/", host=host)
    assert answer.status == 403
    assert "127.0.0.1 only" in text


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/etc/passwd", "/runs/", "/runs/first",
        "/assets/main.js", "/favicon.ico", "http://127.0.0.1/x", "/\\..\\x", "/%00",
    ],
)  # fmt: skip
def test_there_are_no_files(server: Server, path: str) -> None:
    answer, text = ask(server, path)
    assert answer.status == 404
    assert "root:" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    assert ask(server, "/", method)[0].status == 501


def test_news(server: Server, writer: tg.tensorboard.SummaryWriter) -> None:
    news = json.loads(ask(server, "/runs?seen=")[1])
    assert len(news["runs"][0]["curves"]["loss"]) == 1
    assert ask(server, f"/runs?seen={news['version']}")[0].status == 204
    writer.add_scalar("loss", 0.5, 1)
    writer.flush()
    later = json.loads(ask(server, f"/runs?seen={news['version']}")[1])
    assert len(later["runs"][0]["curves"]["loss"]) == 2


def test_a_port_in_use(server: Server) -> None:
    with pytest.raises(ArgumentError, match=f"port {server.server_port} cannot be had .*: leave --port out"):
        served(server.source, server.server_port)
    with served(server.source, None) as other:
        assert other.server_port != server.server_port


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_is_none(server: Server, port: int) -> None:
    with pytest.raises(ArgumentError, match="a port is a number up to 65535"):
        served(server.source, port)


def test_the_command(writer: tg.tensorboard.SummaryWriter, tmp_path: Path) -> None:
    """It says where the page is, serves it, and ends when it is interrupted."""
    command = [sys.executable, "-m", "tilegrad", "view", str(tmp_path / "runs")]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=plain()
    )
    assert started.stdout is not None
    try:
        line = started.stdout.readline()
        port = int(line.rpartition("127.0.0.1:")[2].partition("/")[0])
        with closing(HTTPConnection(HOST, port, timeout=10)) as connection:
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
    finally:
        started.send_signal(2)
        _, errors = started.communicate(timeout=20)
    assert (started.returncode, errors) == (0, "")


def plain() -> dict[str, str]:
    """The environment without a display: no browser is opened."""
    import os

    return {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}


def test_a_connection_that_says_nothing_stops_nobody(server: Server) -> None:
    with socket.create_connection((HOST, server.server_port)):
        assert ask(server, "/")[0].status == 200
