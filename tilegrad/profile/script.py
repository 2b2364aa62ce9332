"""Run a script (or a module), and explain the functions that it jits: `python -m tilegrad explain SCRIPT`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import ArgumentError
from ..jitted import function as jitted
from ..viewer.server import view
from .explanation import Explanation, of_prepared
from .step_model import save


def explain_script(script: Path, arguments: Sequence[str], html: Path | None, full: bool = False) -> int:
    """Run a script as its author would, print the explanation of each jitted function, and return the exit status."""
    found, status = watched_run(script, arguments)
    if not found:
        raise ArgumentError(
            f"{script} called no jitted function: put @tilegrad.jit before the function to explain, and call it"
            + (f" (the script ended with status {status})" if status else "")
        )
    if html is not None:
        save(html, found)
    for explanation in found:
        print(explanation.text(full=full) if html is None else explanation.summary())
    if html is not None:
        print(f"written to {html}")
    return status


def view_script(script: Path, port: int | None, saved: Path | None) -> int:
    """Run a script, and show the page of its jitted functions in the browser, or write it to a file."""
    if saved is not None:
        return explain_script(script, [], saved)
    with TemporaryDirectory() as folder:
        page = Path(folder, f"{script.stem}.html")
        status = explain_script(script, [], page)
        return view(page, port) or status


def watched_run(script: Path, arguments: Sequence[str]) -> tuple[list[Explanation], int]:
    """Run a script; return its compilations, in order, and how it ended."""
    prepared: list[jitted.PreparedProgram] = []
    status = run_script(script, arguments, prepared.append)
    return [of_prepared(p) for p in prepared], status


def run_script(script: Path, arguments: Sequence[str], watcher: Callable[[jitted.PreparedProgram], None]) -> int:
    """Run a script (or a module) as its author would and report its compilations; return how it ended."""
    if not script.is_file() and not _is_module(str(script)):
        raise ArgumentError(f"there is no script {script}, and no module of that name")
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    jitted.watchers.append(watcher)
    status = 0
    try:
        if script.is_file():
            runpy.run_path(str(script), run_name="__main__")
        else:
            runpy.run_module(str(script), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        jitted.watchers.remove(watcher)
        sys.argv, sys.path[:] = argv, path
    return status


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
