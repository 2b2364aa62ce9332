"""Define the error of ONNX files, and collect the problems of one file, so that they are reported together."""

from __future__ import annotations

from ..errors import DataError

MAX_LISTED = 20
"""Problems that one message lists; the others are counted."""


class OnnxError(DataError):
    """An ONNX file that is damaged, or that needs what is not supported."""


class Problems:
    """Collect what is wrong with a file.

    >>> problems = Problems("net.onnx")
    >>> problems.add("node 'a' (Foo)", "there is no such operator")
    >>> problems.add("node 'b' (Bar)", "there is no such operator")
    >>> problems.check()
    Traceback (most recent call last):
    ...
    tilegrad.onnx.problems.OnnxError: net.onnx has 2 problems:
      node 'a' (Foo): there is no such operator
      node 'b' (Bar): there is no such operator
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[str] = []

    def add(self, place: str, words: str) -> None:
        line = f"{place}: {words}"
        if line not in self.found[-MAX_LISTED:]:
            self.found.append(line)

    def check(self) -> None:
        """Raise an error that lists all problems, if there are any."""
        if not self.found:
            return
        count = len(self.found)
        more = [f"and {count - MAX_LISTED} more"] if count > MAX_LISTED else []
        lines = "\n  ".join([*self.found[:MAX_LISTED], *more])
        raise OnnxError(f"{self.file} has {count} {'problem' if count == 1 else 'problems'}:\n  {lines}")
