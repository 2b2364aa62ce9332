"""Keep on disk what LLVM says about the processor: a process that finds its code there loads no LLVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.machinery import PathFinder

from ...config import settings
from ...runtime.cache import key, shared

IDENTITY = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
"""Fields of the system's description of a processor that decide which code it runs."""
FIRST_BYTES = 1 << 14
"""Bytes of the list of processors that have the first one."""
SEPARATOR = "\n"


def recorded(detect: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Return what was detected on this processor by this LLVM with these settings, or detect it and keep it."""
    processor, library = _processor(), _library()
    if not processor or not library:
        return detect()
    store, name = shared("hosts"), key("host", processor, library, settings().vectors)
    found = store.read(name)
    if found is not None:
        return tuple(found.decode().split(SEPARATOR))
    made = detect()
    store.write(name, SEPARATOR.join(made).encode())
    return made


def _processor() -> str:
    """Return what identifies the processor; empty if the system does not tell."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            lines = file.read(FIRST_BYTES).decode(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return ""
    known = {name.strip(): value.strip() for name, _, value in [line.partition(":") for line in lines]}
    return "\n".join([known[name] for name in IDENTITY]) if all(name in known for name in IDENTITY) else ""


def _library() -> str:
    """Return what identifies the library of LLVM, without loading it; empty if it is not found."""
    spec = PathFinder.find_spec("llvmlite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "binding", "libllvmlite.so")
        try:
            status = os.stat(path)
        except OSError:
            continue
        return f"{path} {status.st_size} {status.st_mtime_ns}"
    return ""
