"""Open what a page shows: a saved step, a trace, a saved program, or a folder with any of them and event files."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ArgumentError
from ..ir.program import Program
from ..ir.stored import node_of
from ..serialization.trace_files import HINT, MAX_READ_BYTES, read_within
from .launches import step_of_program
from .model import Page, PageStep, PageTrace, page_of
from .page import data_of
from .runs import EVENTS, RunFolder
from .traces import trace_of

ENDINGS = (".json", ".json.gz", ".html")
MAX_FILES = 40
"""Saved steps and traces of a folder that are shown."""
SMALLER = "Save fewer functions in a page"
KNOWN = (
    'a page of tg.explain(...).save("step.html"), a trace of export_chrome_trace, a folder of SummaryWriter, or a '
    "saved program"
)


class PageSource:
    """A file or a folder; a folder is read again and again while a training writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise ArgumentError(f"there is no file or folder {path}")
        self.folder = RunFolder(path) if path.is_dir() else None
        if self.folder is not None and not self.folder.read_all() and not _candidates(path):
            raise ArgumentError(f"{path} has nothing to show: a folder has {KNOWN}")
        self.opened = None if self.folder is not None else opened(path)

    def page(self, live: bool = False) -> Page:
        """Return its page; a served folder is live."""
        if self.opened is not None:
            return self.opened
        assert self.folder is not None
        self.folder.read_all()
        steps: list[PageStep] = self.folder.graphs()
        traces: list[PageTrace] = []
        notes = self.folder.notes()
        candidates = _candidates(self.path)
        for file in candidates[:MAX_FILES]:
            try:
                found = opened(file)
            except ArgumentError as problem:
                notes.append(str(problem))
                continue
            steps += found["steps"]
            traces += found["traces"]
        if len(candidates) > MAX_FILES:
            notes.append(f"{len(candidates) - MAX_FILES:,} more files are not shown")
        title = self.path.resolve().name or "/"
        return page_of(title, steps=steps, traces=traces, runs=self.folder.runs(), notes=notes, live=live)


def opened(path: Path) -> Page:
    """Read one file; an error in words for what is damaged, too large or something else."""
    if path.name.startswith(EVENTS):
        return PageSource(path.parent).page()
    data = read_within(path, MAX_READ_BYTES, "files", SMALLER if path.suffix == ".html" else HINT)
    start = data[:4096].lstrip()
    if start.startswith((b"<!doctype html>", b'{"format":')):
        try:
            page = data_of(data.decode())
        except (ArgumentError, UnicodeDecodeError) as problem:
            raise ArgumentError(f"{path.name}: {problem}") from None
        return {**page, "live": False}
    if start.startswith(b'[["'):
        return page_of(path.name, steps=[step_of_program(_program(path, data))])
    if not start.startswith((b"{", b"[")):
        raise ArgumentError(f"{path.name} is nothing that can be shown: that is {KNOWN}")
    trace = trace_of(path)
    return page_of(path.name, traces=[trace], notes=[trace["note"]] if trace["note"] else [])


def _program(path: Path, data: bytes) -> Program:
    try:
        program = node_of(data)
    except Exception as problem:  # whatever is wrong in it, it is no program
        raise ArgumentError(f"{path.name} is no saved program, or it is damaged: {problem}") from None
    if not isinstance(program, Program):
        raise ArgumentError(f"{path.name} is no saved program but a {type(program).__name__}")
    return program


def _candidates(root: Path) -> list[Path]:
    """Return the files of a folder, and of the folders in it, that may be steps or traces."""
    found = []
    for folder, inner, names in os.walk(root):
        if Path(folder) != root:
            inner.clear()
        found += [Path(folder, name) for name in names if name.endswith(ENDINGS)]
    return sorted(found)
