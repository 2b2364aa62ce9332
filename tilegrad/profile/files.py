"""Write files whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Write a file atomically (compressed if its name ends in `.gz`): a full disk leaves the old contents."""
    target = Path(path)
    data = gzip.compress(text.encode()) if target.suffix == ".gz" else text.encode()
    try:
        _replace(target, data)
    except OSError as problem:
        raise OSError(problem.errno, f"{path} cannot be written: {problem.strerror}") from None
    return target


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
