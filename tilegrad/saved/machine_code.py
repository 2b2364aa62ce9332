"""Store what a network is compiled to in its file: loading it needs no compiler on the same kind of machine.

What is stored are the entries that the cache on disk has after a call in a fresh process: the program as text, and the
object files of its kernels. Each comes with the parts of its key: the graph, the features of the processor, cores and
caches, the version of LLVM. A process that loads them makes the keys anew from its own: code for another kind of
machine is never asked for, and what is missing is compiled from the graph. Keys name source files of tilegrad by the
time of their last change; so the contents of these files have to be the same, too.

The entries are executed. Checksums show damage, not intention: they are only used where the user trusts the file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..config import PREFIX, VERSION, Config, settings
from ..errors import CheckpointError, CompileError
from ..runtime import cache

PACKAGE = Path(__file__).parent.parent
ExampleTypes = list[tuple[str, list[int]]]
"""The dtype and the shape of each tensor of a call."""
COLLECT = "from tilegrad.saved.collect_code import collect; collect()"


def code_of(network: str, examples: Sequence[ExampleTypes]) -> bytes:
    """Compile a network, given as text, for calls of these types, in a process whose cache on disk is empty."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.txt"
        path.write_text(network)
        knobs = {f"{PREFIX}{name.upper()}": _knob(value) for name, value in _changed_settings().items()}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environment |= knobs | {f"{PREFIX}CACHE": str(Path(folder) / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", COLLECT, str(path)],
            input=json.dumps(examples).encode(),
            capture_output=True,
            env=environment,
            check=False,
        )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CompileError(f"the machine code of the network cannot be stored: {last}")
    return done.stdout


def _changed_settings() -> dict[str, Any]:
    now, default = settings()._asdict(), Config()._asdict()
    return {name: value for name, value in now.items() if value != default[name]}


def _knob(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def packed(collected: dict[str, tuple[object, ...]]) -> bytes:
    """Pack the entries that are in the cache with the parts of their keys."""
    folder = settings().cache_folder
    assert folder is not None
    files = {made: _source_paths(parts) for made, parts in collected.items() if _source_paths(parts)}
    entries = []
    for name in sorted(os.listdir(folder)):
        for made, parts in collected.items():
            payload = cache.shared(name).read(made)
            if payload is not None:
                text = [{"sources": p} if isinstance(p, str) and p in files else _part(p) for p in parts]
                entries.append([text, base64.b64encode(payload).decode()])
    paths = sorted({path for listed in files.values() for path in listed})
    stored = {"version": VERSION, "sources": files, "contents": contents(paths), "entries": entries}
    return zlib.compress(json.dumps(stored).encode())


def _source_paths(parts: tuple[object, ...]) -> list[str]:
    """Return the paths of the source files that a key stands for (`cache.sources`); none if it is another key."""
    files = [part for part in parts if isinstance(part, tuple) and len(part) == 3 and str(part[0]).endswith(".py")]
    return [str(part[0]) for part in files] if len(files) == len(parts) else []


def _part(part: object) -> object:
    return {"bytes": base64.b64encode(part).decode()} if isinstance(part, bytes) else str(part)


def contents(paths: Sequence[str]) -> str:
    """Hash source files of the package; empty if one is missing."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            digest.update(path.encode() + b"\n" + (PACKAGE / path.lstrip("/")).read_bytes())
    except OSError:
        return ""
    return digest.hexdigest()


def provide(code: bytes, name: str) -> int:
    """Put stored code where compilers look for it; return the number of entries: 0 if it is of another tilegrad."""
    try:
        found = json.loads(zlib.decompress(code))
        files = found["sources"]
        paths = sorted({path for listed in files.values() for path in listed})
        if found["version"] != VERSION or contents(paths) != found["contents"]:
            return 0
        here = {made: cache.key(*[(path, *_status(path)) for path in listed]) for made, listed in files.items()}
        entries = [([_local(p, here) for p in parts], base64.b64decode(data)) for parts, data in found["entries"]]
        made = {cache.key(*parts): payload for parts, payload in entries}
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError, OSError) as why:
        raise CheckpointError(f"{name} is damaged: its machine code cannot be read ({why})") from None
    cache.provided.update(made)
    return len(made)


def _local(part: Any, sources: Mapping[str, str]) -> object:
    """Return the part of a key for the source files of this installation."""
    match part:
        case {"sources": made}:
            return sources[made]
        case {"bytes": data}:
            return base64.b64decode(data)
    return part


def _status(path: str) -> tuple[int, int]:
    status = os.stat(PACKAGE / path.lstrip("/"))
    return status.st_size, status.st_mtime_ns
