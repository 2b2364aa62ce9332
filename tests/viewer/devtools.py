"""A client of Chromium's DevTools protocol: enough to load a page, run scripts in it, click, type and take pictures."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1280,900",
)  # fmt: skip
PATIENCE = 30
"""Seconds to wait for the browser."""
KEYS = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}


def chromium() -> str | None:
    """The browser's program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Socket:
    """A web socket: texts in both directions."""

    def __init__(self, address: str) -> None:
        url = urlparse(address)
        self.socket = socket.create_connection((url.hostname, url.port), PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        while self.file.readline().strip():
            pass

    def send(self, text: str) -> None:
        data = text.encode()
        size = len(data)
        head = bytes([129, 128 | size]) if size < 126 else bytes([129, 254]) + size.to_bytes(2)
        if size >= 1 << 16:
            head = bytes([129, 255]) + size.to_bytes(8)
        mask = os.urandom(4)
        whole = int.from_bytes(data) ^ int.from_bytes((mask * (size // 4 + 1))[:size])
        self.socket.sendall(head + mask + whole.to_bytes(size))

    def receive(self) -> str:
        parts = []
        while True:
            first, second = self.file.read(2)
            size = second & 127
            if size >= 126:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            parts.append(self.file.read(size))
            if first & 128:
                return b"".join(parts).decode()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class Tab:
    """A page in the browser."""

    def __init__(self, address: str) -> None:
        self.socket = Socket(address)
        self.number = 0
        self.problems: list[str] = []
        """Exceptions, errors of the console, and refused requests."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.problems.append(message["params"]["entry"]["text"])
            case "Runtime.consoleAPICalled" if message["params"]["type"] == "error":
                self.problems.append(str(message["params"]["args"]))

    def open(self, address: str) -> None:
        """Load a page and wait for its script."""
        self.call("Page.navigate", url=address)
        self.until("window.tilegrad !== undefined && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]["exception"].get("description")
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}; {self.problems}"
            time.sleep(0.02)

    def frame(self) -> None:
        """Wait until the page has drawn itself."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.frame()

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element, scrolled into sight."""
        quoted = json.dumps(selector)
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({quoted}); e.scrollIntoView({{block: 'nearest'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return x, y

    def click(self, at: str | tuple[float, float], count: int = 1) -> None:
        """Click an element, or a point."""
        x, y = self.middle(at) if isinstance(at, str) else at
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=n)
        self.frame()

    def wheel(self, at: tuple[float, float], by: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=at[0], y=at[1], deltaX=0, deltaY=by)
        self.frame()

    def press(self, key: str) -> None:
        """Press a key: a name, or a character."""
        code = KEYS.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.frame()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        self.frame()

    def picture(self, path: Path) -> None:
        """Save what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start a browser with an empty profile, and end it."""
    program = chromium()
    assert program is not None
    command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        port = _port(started)
        tab = Tab(_address(port))
        try:
            yield tab
        finally:
            tab.socket.close()
    finally:
        started.terminate()
        started.wait(PATIENCE)


def _port(started: subprocess.Popen[str]) -> int:
    assert started.stderr is not None
    for line in started.stderr:
        found = re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line)
        if found:
            return int(found[1])
    raise AssertionError("the browser did not start")


def _address(port: int) -> str:
    """The address of the first page."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as asked:
        asked.request("GET", "/json/list")
        answer = asked.getresponse().read()
    return str(next(t["webSocketDebuggerUrl"] for t in json.loads(answer) if t["type"] == "page"))
