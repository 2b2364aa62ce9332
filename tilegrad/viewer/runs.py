"""Read the runs of a folder that `SummaryWriter` writes (TensorBoard's event files), also while it is written."""

from __future__ import annotations

import json
import math
import os
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

from ..serialization.event_files import Damaged, fields, records
from .model import PageMatrix, PageRun, PageStep, Picture
from .network_graph import step_of_graph

EVENTS = "events.out.tfevents."
PNG = b"\x89PNG\r\n\x1a\n"
MAX_FILES = 500
"""Event files of a folder that are read."""
MAX_READ_BYTES = 4_000_000
"""Bytes of a file that are read at a time: the rest is read when the page asks again."""
MAX_ROUNDS = 64
"""How often a folder is read before it is shown."""
MAX_POINTS = 1_000
"""Points of a curve that a page has."""
MAX_KEPT_POINTS = 200_000
"""Points of a curve that are kept: beyond, every second one is dropped."""
MAX_PICTURE_BYTES, MAX_PICTURES, MAX_STEPS = 2_000_000, 48, 4
"""Largest picture, number of tags, and number of steps of each tag, that a page has."""
Points = list[list[float | None]]


class EventReader:
    """One event file, of which everything up to an offset has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.problem = ""

    def messages(self) -> list[bytes]:
        """Return the messages that were added since the last call."""
        if self.problem:
            return []
        found = []
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(MAX_READ_BYTES)
            for message, end in records(data):
                found.append(message)
                last = end
            if not found and len(data) == MAX_READ_BYTES:
                self.problem = f"{self.path.name} has an event of more than {MAX_READ_BYTES / 1e6:.0f} MB"
            self.offset += last if found else 0
        except Damaged as problem:
            self.problem = f"{self.path.name} is damaged: {problem}; what stands before it is shown"
        except OSError as problem:
            self.problem = f"{self.path.name} cannot be read: {problem.strerror}"
        return found


class RunReader:
    """A run: the event files of one folder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.readers: dict[Path, EventReader] = {}
        self.curves: dict[str, Points] = {}
        self.norms: dict[str, Points] = {}
        self.pictures: dict[str, list[Picture]] = {}
        self.matrices: dict[str, list[PageMatrix]] = {}
        self.texts: dict[str, str] = {}
        self.graph: PageStep | None = None
        """The network that was last added."""
        self.damaged = 0

    def read(self) -> bool:
        """Read what is new, and tell whether there was anything."""
        found = False
        for reader in self.readers.values():
            for message in reader.messages():
                found = True
                try:
                    self._event(message)
                except (Damaged, ValueError, TypeError, struct.error):
                    self.damaged += 1
        return found

    def notes(self) -> list[str]:
        """Return what could not be read, in words."""
        found = [f"{self.name}: {r.problem}" for r in self.readers.values() if r.problem]
        return found + ([f"{self.name}: {self.damaged:,} damaged events are left out"] if self.damaged else [])

    def run(self) -> PageRun:
        """Describe what was read."""
        return PageRun(
            name=self.name,
            curves={tag: thinned(points) for tag, points in self.curves.items()},
            norms={tag: thinned(points) for tag, points in self.norms.items()},
            pictures=[p for found in list(self.pictures.values())[:MAX_PICTURES] for p in found],
            matrices=[m for found in self.matrices.values() for m in found],
            texts=self.texts,
        )

    def _event(self, message: bytes) -> None:
        found = dict(fields(message))
        step, wall = int(found.get(2, 0)), float(found.get(1, 0.0))
        if not 0 <= step < 1 << 53:
            raise Damaged("a step is out of range")
        if 4 in found:
            self.graph = step_of_graph(f"graph of {self.name}", found[4])
        for number, value in fields(found.get(5, b"")):
            if number == 1:
                self._value(dict(fields(value)), step, wall)

    def _value(self, value: dict[int, Any], step: int, wall: float) -> None:
        """Keep one value of a summary; kinds that the viewer does not show are skipped."""
        tag = value.get(1, b"").decode("utf-8", "replace")
        plugin = dict(fields(dict(fields(value.get(9, b""))).get(1, b"")))
        kind = plugin.get(1, b"").decode("utf-8", "replace")
        if 2 in value:
            self._point(self.curves, tag, step, wall, float(value[2]))
        elif 4 in value:
            self._picture(tag, step, dict(fields(value[4])).get(4, b""))
        elif 5 in value:
            squares = float(dict(fields(value[5])).get(5, 0.0))
            self._point(self.norms, tag, step, wall, math.sqrt(max(0.0, squares)))
        elif 8 in value:
            tensor = dict(fields(value[8]))
            if kind == "confusion_matrix":
                self._matrix(tag, step, tensor, plugin.get(2, b"[]"))
            elif kind == "text":
                self.texts[tag.removesuffix("/text_summary")] = tensor.get(8, b"").decode("utf-8", "replace")[:20_000]
            elif kind == "scalars" and 5 in tensor:
                self._point(self.curves, tag, step, wall, _floats(tensor[5])[0])

    def _point(self, curves: dict[str, Points], tag: str, step: int, wall: float, value: float) -> None:
        points = curves.setdefault(tag, [])
        points.append([step, wall, value if math.isfinite(value) else None])
        if len(points) > MAX_KEPT_POINTS:
            del points[1:-1:2]

    def _picture(self, tag: str, step: int, data: bytes) -> None:
        if not data.startswith(PNG) or len(data) > MAX_PICTURE_BYTES:
            raise Damaged("a picture is no PNG file, or too large")
        found = self.pictures.setdefault(tag, [])
        found.append(Picture(tag=tag, step=step, png=b64encode(data).decode()))
        del found[:-MAX_STEPS]

    def _matrix(self, tag: str, step: int, tensor: dict[int, Any], content: bytes) -> None:
        numbers = _floats(tensor.get(5, b""))
        size = math.isqrt(len(numbers))
        if not numbers or size * size != len(numbers) or not all(map(math.isfinite, numbers)):
            raise Damaged("a confusion matrix is not square")
        names = json.loads(content)
        labels = [str(names[n]) if n < len(names) else str(n) for n in range(size)]
        rows = [numbers[n * size : (n + 1) * size] for n in range(size)]
        found = self.matrices.setdefault(tag, [])
        found.append(PageMatrix(tag=tag, step=step, labels=labels, rows=rows))
        del found[:-MAX_STEPS]


class RunFolder:
    """All runs below a folder: each folder with event files is one, as TensorBoard sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.readers: dict[str, RunReader] = {}
        self.version = 0
        self.left_out = 0

    def refresh(self) -> int:
        """Read what is new; return a number that changes when something was."""
        changed = self._find()
        for reader in self.readers.values():
            changed = reader.read() or changed
        self.version += changed
        return self.version

    def read_all(self) -> int:
        """Read everything that is there now, and return the version; files that are still written may have more."""
        for _ in range(MAX_ROUNDS):
            before = self.version
            if self.refresh() == before:
                break
        return self.version

    def _find(self) -> bool:
        """Look for event files; tell whether there are new ones."""
        known = {path for r in self.readers.values() for path in r.readers}
        found = sorted(event_files(self.root))
        self.left_out = max(0, len(found) - MAX_FILES)
        for path in found[:MAX_FILES]:
            if path not in known:
                name = path.parent.relative_to(self.root).as_posix()
                name = self.root.resolve().name if name == "." else name
                self.readers.setdefault(name, RunReader(name)).readers[path] = EventReader(path)
        return len(known) != len(found[:MAX_FILES])

    def runs(self) -> list[PageRun]:
        """Describe all runs."""
        return [self.readers[name].run() for name in sorted(self.readers)]

    def graphs(self) -> list[PageStep]:
        """Describe the networks of all runs."""
        return [graph for name in sorted(self.readers) if (graph := self.readers[name].graph) is not None]

    def notes(self) -> list[str]:
        """Return what could not be read, in words."""
        found = [note for r in self.readers.values() for note in r.notes()]
        return found + ([f"{self.left_out:,} more event files are not read"] if self.left_out else [])


def event_files(root: Path) -> list[Path]:
    """Find the event files below a folder; links to other folders are not followed."""
    return [
        Path(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.startswith(EVENTS) and not os.path.islink(os.path.join(folder, name))
    ]


def thinned(points: Points) -> Points:
    """Keep the smallest and the largest value of each stretch of a long curve, and its last point.

    >>> len(thinned([[n, None, n % 7] for n in range(100_000)])) <= MAX_POINTS + 2
    True
    """
    size = -(-2 * len(points) // MAX_POINTS)
    if size <= 2:
        return points
    kept: Points = []
    for n in range(0, len(points), size):
        own = [p for p in points[n : n + size] if p[2] is not None] or points[n : n + 1]
        ends = {id(p): p for p in (min(own, key=_value_of), max(own, key=_value_of))}
        kept += sorted(ends.values(), key=lambda p: p[0] or 0)
    return kept if kept[-1] is points[-1] else [*kept, points[-1]]


def _value_of(point: list[float | None]) -> float:
    return point[2] if point[2] is not None else 0.0


def _floats(data: Any) -> list[float]:
    """Decode packed floats, or the one that stands alone."""
    return [float(data)] if isinstance(data, float) else list(struct.unpack(f"<{len(data) // 4}f", data))
