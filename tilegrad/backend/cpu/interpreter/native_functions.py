"""Compile and link the native functions of the block interpreter (`blocks.ll`, `elements.ll`) when one is first needed.

Functions that are used alike are compiled together, the others of the text are left out: the first computation on a
machine waits for what it needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ....runtime import events
from ....runtime.cache import key, shared, sources
from ....runtime.index_faults import SYMBOL
from ....runtime.singletons import lock
from .. import objects
from ..build import index_faults

GROUPS = (
    ("run_blocks", "run_program", "locate", "place", "put_back", "store"),
    ("iota", "check", "clamp", "locate_offset", "first_group", "by_rows"),
)
"""Functions that are compiled together."""
MOVES = (("constant", "splat", "strided", "store_strided"), ("guarded", "merge", "gather", "offset"))
"""The same for functions that there are for each width of an element, in bits."""

FOLDER = Path(__file__).parent

_addresses: dict[str, int] = {}
_linked: list[objects.LinkedCode] = []
"""Code that stays mapped as long as the process."""
_lock = lock()


def native_function(name: str, bits: int = 0) -> int:
    """Return the address of a function, for elements of a width if it has one."""
    full = f"{name}_{bits}" if bits else name
    found = _addresses.get(full)
    return _link(name, bits, full) if found is None else found


def is_move(name: str) -> bool:
    """Whether there is a function of this name for each width of an element."""
    return any(name in group for group in MOVES)


def linked_functions() -> Mapping[str, int]:
    """Return the addresses of the functions that programs have needed so far."""
    return _addresses


def _link(name: str, bits: int, full: str) -> int:
    with _lock:
        if full not in _addresses:
            group = next(group for group in (MOVES if bits else GROUPS) if name in group)
            names = [f"{each}_{bits}" if bits else each for each in group]
            code = objects.link([_object(bits, names)], names, {SYMBOL: index_faults.address})
            _linked.append(code)
            _addresses.update(code.addresses)
        return _addresses[full]


def _object(bits: int, names: list[str]) -> bytes:
    """Compile functions to an object file; one in the disk cache is found without making their text."""
    store, files = shared("objects"), [FOLDER / "blocks.ll", FOLDER / "elements.ll"]
    made_from = [(status.st_size, status.st_mtime_ns) for status in map(os.stat, files)]
    code = sources("backend/cpu", "ir", "runtime/target_model.py")
    name = key("block functions", code, *made_from, *objects.host(), objects.version(), *names)
    found = store.read(name)
    if found is None:
        with events.timed("compile", f"{names[0]} ..", "cpu"):
            found = objects.compile_object(names[0], _text(bits, names), objects.host(), optimise="inline")
        store.write(name, found)
    return found


def _text(bits: int, names: list[str]) -> str:
    """Return the functions with these names, and those that they need: the inliner drops what is private and unused."""
    text = (FOLDER / "blocks.ll").read_text().replace("@RECORD", f"@{SYMBOL}")
    if bits:
        elements = (FOLDER / "elements.ll").read_text()
        text += elements.replace("{bits}", str(bits)).replace("{bytes}", str(bits // 8))
    hidden = re.compile(rf"^define void @(?!(?:{'|'.join(names)})\()", re.MULTILINE)
    return hidden.sub("define private void @", text)
