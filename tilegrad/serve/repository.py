"""Keep the models that are served: load their files, replace them while requests are answered, unload them.

A model is loaded and tried in a thread, while the old one goes on answering. It takes its place when it has worked; a
file that cannot be loaded changes nothing. The old one still answers the requests that it has.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, MissingFileError
from .batching import BatchSettings
from .faults import RequestFault, refused
from .logs import EventLog
from .metrics import ServerMetrics
from .model import LoadedNetwork, ServedModel

Loader = Callable[[Path, BatchSettings], LoadedNetwork]
NAME = re.compile(r"[\w.+-]{1,128}", re.ASCII)
"""Names of models and versions: they are parts of addresses."""
ENDINGS = (".tgp", ".onnx")
"""Endings of the files in a folder of models."""


@dataclass(frozen=True)
class ModelFile:
    """A file to be served under a name and a version."""

    name: str
    version: str
    path: Path
    settings: BatchSettings = field(default_factory=BatchSettings)

    def __post_init__(self) -> None:
        for word in (self.name, self.version):
            if not NAME.fullmatch(word):
                raise ArgumentError(f"{word!r} is no name for a model or a version: letters, digits and _ . + - only")


def files_of(text: str, settings: BatchSettings) -> list[ModelFile]:
    """Read what the command line says: `net.tgp`, `name=net.tgp`, `name:2=net.tgp`, or a folder `NAME/VERSION/FILE`."""
    named, _, path_text = text.rpartition("=")
    if os.path.exists(text):
        named, path_text = "", text
    path = Path(path_text)
    if path_text and path.is_dir():
        found = sorted(p for p in path.glob("*/*/*") if p.suffix in ENDINGS)
        if named or not found:
            raise ArgumentError(f"{path} is a folder: it has files NAME/VERSION/FILE that end in {', '.join(ENDINGS)}")
        return [ModelFile(p.parent.parent.name, p.parent.name, p, settings) for p in found]
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    name, _, version = named.partition(":")
    return [ModelFile(name or path.stem, version or "1", path, settings)]


@dataclass
class ModelEntry:
    """A file, and the model that was made of it; None while it is unloaded."""

    file: ModelFile
    model: ServedModel | None = None
    stamp: tuple[int, ...] = ()
    """Time, size and number of the file, which change when it is written anew."""
    problem: str | None = None
    """Why the last loading failed."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the model is loaded or unloaded."""


class Repository:
    """The models by name and version."""

    def __init__(self, files: Sequence[ModelFile], load: Loader, metrics: ServerMetrics, log: EventLog) -> None:
        self.entries: dict[str, dict[str, ModelEntry]] = {}
        self._load = load
        self._metrics = metrics
        self._log = log
        for file in files:
            versions = self.entries.setdefault(file.name, {})
            if file.version in versions:
                raise ArgumentError(f"there are two files for version {file.version} of {file.name}")
            versions[file.version] = ModelEntry(file)

    def load_all(self) -> None:
        """Load every model, before anything is served; a file that cannot be loaded is an error."""
        for entry in self.all_entries():
            entry.stamp = stamp_of(entry.file.path)
            entry.model = self._made(entry.file)

    def _made(self, file: ModelFile) -> ServedModel:
        network = self._load(file.path, file.settings)
        model = ServedModel(file.name, file.version, network, file.settings, self._metrics.of(file.name, file.version))
        self._log.event("loaded", model=file.name, version=file.version, file=str(file.path))
        if model.objection is not None:
            self._log.event("not batched", model=file.name, version=file.version, reason=model.objection)
        return model

    def all_entries(self) -> list[ModelEntry]:
        """Return all versions of all models."""
        return [entry for versions in self.entries.values() for entry in versions.values()]

    def models(self) -> list[ServedModel]:
        """Return the models that can answer."""
        return [entry.model for entry in self.all_entries() if entry.model is not None]

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model that can answer, the newest last."""
        found = [version for version, entry in self.entries.get(name, {}).items() if entry.model is not None]
        return sorted(found, key=_version_order)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model; without a version the newest."""
        versions = self.versions(name)
        entry = self.entries.get(name, {}).get((versions or [""])[-1] if version is None else version)
        if entry is None or entry.model is None:
            which = name[:100] if version is None else f"{name[:100]}, version {version[:100]}"
            raise refused(f"there is no model {which}", 404)
        return entry.model

    async def reload(self, name: str) -> None:
        """Load the files of a model again, in all versions; the first that fails is the answer."""
        for entry in self._known(name):
            await self._replace(entry)

    def _known(self, name: str) -> list[ModelEntry]:
        if name not in self.entries:
            raise refused(f"there is no model {name[:100]}", 404)
        return list(self.entries[name].values())

    async def _replace(self, entry: ModelEntry) -> None:
        """Put a new model in the place of the old one, if its file can be loaded."""
        async with entry.changing:
            file = entry.file
            entry.stamp = stamp_of(file.path)
            try:
                made = await asyncio.get_running_loop().run_in_executor(None, partial(self._made, file))
            except Exception as problem:
                entry.problem = f"{type(problem).__name__}: {problem}"[:1000]
                state = "the old one goes on answering" if entry.model else "it is not loaded"
                self._log.event("not loaded", model=file.name, version=file.version, problem=entry.problem)
                raise RequestFault(400, f"{file.name}, version {file.version}: {entry.problem} ({state})") from None
            old, entry.model, entry.problem = entry.model, made, None
        if old is not None:
            await old.batcher.close()

    async def unload(self, name: str) -> None:
        """Remove a model; it still answers the requests that it has."""
        for entry in self._known(name):
            async with entry.changing:
                old, entry.model = entry.model, None
            if old is not None:
                await old.batcher.close()
                self._log.event("unloaded", model=name, version=entry.file.version)

    async def reload_changed(self) -> None:
        """Load those files again that were written since they were loaded."""
        for entry in self.all_entries():
            if entry.model is not None and stamp_of(entry.file.path) not in ((), entry.stamp):
                try:
                    await self._replace(entry)
                except RequestFault:
                    pass  # it is in the log, and in the index of the models

    async def close(self, seconds: float) -> None:
        """Unload everything; requests have some seconds to be answered."""
        await asyncio.gather(*(model.batcher.close(seconds) for model in self.models()))

    def index(self) -> list[dict[str, Any]]:
        """List the models as the repository extension of the protocol does."""
        return [
            {
                "name": entry.file.name,
                "version": entry.file.version,
                "state": "UNAVAILABLE" if entry.model is None else "READY",
                "reason": entry.problem or "",
            }
            for entry in self.all_entries()
        ]


def _version_order(version: str) -> tuple[bool, int, str]:
    """Order versions: words, then numbers by their value.

    >>> sorted(["10", "9", "beta"], key=_version_order)
    ['beta', '9', '10']
    """
    is_number = version.isdigit()
    return is_number, int(version) if is_number else 0, version


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written; nothing if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
