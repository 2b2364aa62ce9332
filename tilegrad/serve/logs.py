"""Write a log of JSON lines, from a thread of its own: a reader that stalls delays no request."""

from __future__ import annotations

import json
import sys
import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

MAX_WAITING_LINES = 10_000
"""Lines that wait to be written; more are dropped, and counted."""


class EventLog:
    """A log of events, one JSON object a line. Without a stream nothing is written."""

    def __init__(self, stream: IO[str] | None = sys.stderr, requests: bool = False) -> None:
        self.requests = requests
        """Whether each request has its line."""
        self._stream = stream
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._dropped = 0
        self._writer: Thread | None = None
        if stream is not None:
            self._writer = Thread(target=self._write, name="tilegrad-serve-log", daemon=True)
            self._writer.start()

    def event(self, event: str, **facts: Any) -> None:
        """Write an event with facts about it."""
        if self._writer is None:
            return
        if self._lines.qsize() >= MAX_WAITING_LINES:
            self._dropped += 1
            return
        if self._dropped:
            facts, self._dropped = {**facts, "dropped_lines": self._dropped}, 0
        now = time.time()
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        line = {"time": f"{clock}.{int(now % 1 * 1e6):06d}Z", "event": event, **facts}
        self._lines.put(json.dumps(line, default=str))

    def close(self) -> None:
        """Write what waits, for a second at most."""
        if self._writer is not None:
            self._lines.put(None)
            self._writer.join(1.0)
            self._writer = None

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            lines = [line]
            try:
                while (more := self._lines.get_nowait()) is not None:
                    lines.append(more)
            except Empty:
                more = ""
            try:
                assert self._stream is not None
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads the log any more
                return
            if more is None:
                return
