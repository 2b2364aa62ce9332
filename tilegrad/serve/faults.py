"""Define what a request can fail with: a status of HTTP and a sentence for the client."""

from __future__ import annotations


class RequestFault(Exception):
    """A request that gets no result. It is an answer, not an error of the user of the package: it has no location."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """Seconds after which the request may succeed; None if it should not be repeated."""


def refused(message: str, status: int = 400) -> RequestFault:
    """Make the fault of a request that is wrong."""
    return RequestFault(status, message)


def overloaded(message: str, seconds: float) -> RequestFault:
    """Make the fault of a request that comes while there is too much to do."""
    return RequestFault(429, message, max(seconds, 0.0))
