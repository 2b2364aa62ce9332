"""Python from a text, with lines that messages can show: as if it stood in a file."""

import linecache
from itertools import count
from typing import Any

_numbers = count()


def from_text(text: str, what: str) -> dict[str, Any]:
    """Run a text and return the names that it defines."""
    file = f"<{what} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    return names
