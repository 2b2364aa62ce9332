"""Guard connections: against headers without end, and clients that send or read slowly.

An application sees requests when their headers are there; this protocol of uvicorn limits what comes before, and how
long sending takes after it. Deadlines are only set for what does not come, or leave, at once.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from .limits import RequestLimits

Connection: Any
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    Connection = HttpToolsProtocol
except ImportError:  # `tilegrad serve` says what to install
    Connection = object


class GuardedConnection(Connection):  # type: ignore[misc]
    """One connection."""

    limits = RequestLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._is_reading_headers = True
        self._is_reading_body = False
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin; the first request must come in time."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._close_with(503, "there are too many connections")
        else:
            self._set_timer(self.limits.header_seconds, 408, "no request came in time")

    def connection_lost(self, problem: Exception | None) -> None:
        """End."""
        self._clear_timers()
        super().connection_lost(problem)

    def data_received(self, data: bytes) -> None:
        """Read what came; what is not complete then has its limits."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_reading_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.max_header_bytes:
                self._close_with(431, f"a request has at most {self.limits.max_header_bytes} bytes of headers")
            elif self._read_timer is None and self._header_bytes:
                self._set_timer(self.limits.header_seconds, 408, "the headers did not come in time")
        elif self._is_reading_body and self._read_timer is None:
            self._set_timer(self.limits.body_seconds, 408, "the body did not come in time")

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        self._is_reading_headers, self._header_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to read a body."""
        self._is_reading_headers, self._is_reading_body = False, True
        self._clear_read_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request; the next may take its time to begin."""
        self._is_reading_body, self._header_bytes = False, 0
        self._clear_read_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly, but not for ever."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _set_timer(self, seconds: float, status: int, message: str) -> None:
        self._read_timer = self.loop.call_later(seconds, self._close_with, status, message)

    def _clear_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _clear_timers(self) -> None:
        self._clear_read_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _close_with(self, status: int, message: str) -> None:
        """Say why, unless an answer was begun, and close the connection."""
        self._clear_timers()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": message}).encode()
            more = b"connection: close\r\n" + (b"retry-after: 1\r\n" if status == 503 else b"")
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s"
                % (status, HTTPStatus(status).phrase.encode(), more, len(body), body)
            )
        self.transport.close()


def guarded(limits: RequestLimits) -> type[GuardedConnection]:
    """Make the protocol with these limits: uvicorn makes its objects itself."""
    return type("GuardedConnection", (GuardedConnection,), {"limits": limits})
