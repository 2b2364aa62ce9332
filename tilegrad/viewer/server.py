"""Serve a page to the browsers of this machine, and news of a training that goes on."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from ..errors import ArgumentError
from .page import json_text, page
from .sources import PageSource

HOST = "127.0.0.1"
PORTS = range(6007, 6027)
"""The ports to try where none is asked for."""
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Server(ThreadingHTTPServer):
    """Serves one source to this machine alone."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, source: PageSource, port: int) -> None:
        self.source = source
        self.reading = Lock()
        """Held while the source is read: requests come in threads."""
        super().__init__((HOST, port), Handler)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def whole(self) -> str:
        """Return the page."""
        with self.reading:
            return page(self.source.page(live=self.source.folder is not None))

    def news(self, seen: str) -> str | None:
        """Return the runs, as JSON; None if nothing is new since the version that the page has seen."""
        folder = self.source.folder
        if folder is None:
            return None
        with self.reading:
            version = str(folder.refresh())
            if version == seen:
                return None
            return json_text({"version": version, "runs": folder.runs(), "notes": folder.notes()})


class Handler(BaseHTTPRequestHandler):
    """Answers for the page and its news; there are no other addresses, and no files."""

    server: Server
    server_version = "tilegrad"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer a request; one that was made for another host may come from a page elsewhere."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return self._send(403, "text/plain", "this server answers for 127.0.0.1 only\n")
        url = urlsplit(self.path)
        match url.path:
            case "/":
                return self._made("text/html", self.server.whole)
            case "/runs":
                seen = parse_qs(url.query).get("seen", [""])[0]
                return self._made("application/json", lambda: self.server.news(seen))
        return self._send(404, "text/plain", "there is nothing here: the page is at /\n")

    do_HEAD = do_GET

    def _made(self, kind: str, make: Callable[[], str | None]) -> None:
        """Send what is made; what went wrong in making it is said in a sentence."""
        try:
            made = make()
        except ArgumentError as problem:
            return self._send(500, "text/plain", f"{problem}\n")
        return self._send(200, kind, made) if made is not None else self._send(204, kind, "")

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in SAFETY.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and data:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Ignore messages about requests."""


def served(source: PageSource, port: int | None) -> Server:
    """Make a server on a port, or on a free one."""
    if port is not None:
        if not 0 <= port < 1 << 16:
            raise ArgumentError(f"--port {port}: a port is a number up to 65535")
        try:
            return Server(source, port)
        except OSError as problem:
            raise ArgumentError(f"port {port} cannot be had ({problem.strerror}): leave --port out to get another")  # noqa: B904
    for free in (*PORTS, 0):
        try:
            return Server(source, free)
        except OSError:
            continue
    raise ArgumentError("no port of this machine is free")


def view(path: Path, port: int | None = None, save: Path | None = None) -> int:
    """Show a file or a folder: serve it until interrupted, or write it to a file. Return the exit status."""
    source = PageSource(path)
    if save is not None:
        try:
            save.write_text(page(source.page()), encoding="utf-8")
        except OSError as problem:
            raise ArgumentError(f"{save} cannot be written: {problem.strerror}") from None
        print(f"written to {save}")
        return 0
    with served(source, port) as server:
        print(f"{path} is shown at {server.address} (Ctrl+C ends it)", flush=True)
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
