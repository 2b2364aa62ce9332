"""Load installed extensions."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import ForeignError
from ..foreign.store import loaded as library_of
from . import kernels as kernels  # who launches
from .extension import Library, filled


def loaded(name: str, folder: str) -> None:
    """Fill the module of an installed extension with its functions."""
    path = Path(folder) / "extension.so"
    try:
        image = path.read_bytes()
    except OSError as problem:
        raise ForeignError(f"{name}: {path} cannot be read ({problem.strerror}): build the extension again") from None
    try:
        code = library_of(image, name.rpartition(".")[2])
    except OSError as problem:
        raise ForeignError(f"{name}: {path} was built for another machine: build it here ({problem})") from None
    filled(sys.modules[name], Library(name, code))
