"""Define the limits that protect the server from its clients."""

from __future__ import annotations

from dataclasses import dataclass

from .faults import RequestFault, overloaded, refused

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class RequestLimits:
    """Bound what requests take. The defaults suit networks with inputs of some megabytes."""

    max_body_bytes: int = 64 * MEBIBYTE
    """Bytes of one body."""
    max_waiting_bytes: int = 1024 * MEBIBYTE
    """Bytes of all bodies that are being received or worked on."""
    max_header_bytes: int = 16 << 10
    """Bytes of the first line and the headers."""
    max_headers: int = 64
    """Number of headers."""
    max_connections: int = 1024
    """Connections at the same time."""
    header_seconds: float = 10.0
    """Time in which the headers must have come."""
    body_seconds: float = 60.0
    """Time in which the body must have come."""
    idle_seconds: float = 60.0
    """Time that a connection may be kept without a request."""
    write_seconds: float = 30.0
    """Time in which a client must take what is sent to it."""
    deadline_seconds: float = 60.0
    """Time in which a request is answered: with an error if there is no result."""
    drain_seconds: float = 30.0
    """Time that requests have to be answered when the server ends."""


class ByteBudget:
    """Count the bytes of the bodies that are in memory."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.used = 0

    def reserve(self, count: int, body_bytes: int) -> None:
        """Take memory for a part of a body that has so many bytes by now."""
        if body_bytes > self.limits.max_body_bytes:
            raise refused(f"a body has at most {self.limits.max_body_bytes} bytes", 413)
        if self.used + count > self.limits.max_waiting_bytes:
            raise overloaded("the requests that wait take all memory that they may", 1.0)
        self.used += count

    def release(self, count: int) -> None:
        """Give memory back."""
        self.used -= count


def header_number(text: bytes | None, name: str) -> int | None:
    """Read a header that is a number of bytes."""
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise RequestFault(400, f"the header {name} is a number of bytes")
    return int(text)
