"""Run the server from the command line: `tilegrad serve`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from ..errors import ArgumentError, MissingFileError
from .batching import BatchSettings
from .engine_models import engine_loader
from .limits import MEBIBYTE, RequestLimits
from .logs import EventLog
from .repository import ModelFile, files_of
from .server import InferenceServer, run_until_signal

NUMBERS: Mapping[str, type] = {"max_batch": int, "wait": float, "sla": float, "max_queue": int}
"""The settings that each model can have for itself."""


def serve(options: argparse.Namespace) -> int:
    """Serve models until a signal ends it; return the exit status."""
    server = server_of(options)
    return run_until_signal(server)


def server_of(options: argparse.Namespace) -> InferenceServer:
    """Make the server that options describe."""
    missing = [name for name in ("uvicorn", "httptools") if find_spec(name) is None]
    if missing:
        raise ArgumentError(f"the server needs {' and '.join(missing)}: pip install 'tilegrad[serve]'")
    default = checked(
        BatchSettings(options.max_batch, options.wait, options.sla, options.max_queue), "the options of all models"
    )
    for name in ("deadline", "drain", "max_body", "max_connections"):
        if not 0 < getattr(options, name) < math.inf:
            raise ArgumentError(f"--{name.replace('_', '-')} is a positive number, not {getattr(options, name)}")
    if options.watch is not None and not 0 < options.watch < math.inf:
        raise ArgumentError(f"--watch is a positive number of seconds, not {options.watch}")
    log = EventLog(None if options.log == "off" else sys.stderr, options.log == "requests")
    return InferenceServer(
        [file for text in options.models for file in model_files(text, default)],
        engine_loader(options.instances),
        host=options.host,
        port=options.port,
        local_port=options.local_port,
        token=None if options.token_file is None else token_in(options.token_file),
        watch=options.watch,
        limits=RequestLimits(
            max_body_bytes=options.max_body * MEBIBYTE,
            max_waiting_bytes=max(16 * options.max_body, 1024) * MEBIBYTE,
            max_connections=options.max_connections,
            deadline_seconds=options.deadline,
            drain_seconds=options.drain,
        ),
        log=log,
    )


def model_files(text: str, default: BatchSettings) -> list[ModelFile]:
    """Read the files of a model, with its settings.

    >>> model_files("no.tgp,max_batch=0", BatchSettings())
    Traceback (most recent call last):
    ...
    tilegrad.errors.ArgumentError: no.tgp: max_batch is a number of rows, at least 1, not 0...
    """
    path, *settings = [text] if Path(text).exists() else text.split(",")
    changes: dict[str, float] = {}
    for setting in settings:
        name, _, number = setting.partition("=")
        try:
            changes[name] = NUMBERS[name](number)
        except KeyError:
            raise ArgumentError(f"{path}: there is no setting {name!r:.40}; there are {', '.join(NUMBERS)}") from None
        except ValueError:
            raise ArgumentError(f"{path}: {name} is a number, not {number!r:.40}") from None
    return files_of(path, checked(replace(default, **changes), path))  # type: ignore[arg-type]


def checked(settings: BatchSettings, what: str) -> BatchSettings:
    """Return settings that make sense."""
    if settings.max_batch < 1:
        raise ArgumentError(f"{what}: max_batch is a number of rows, at least 1, not {settings.max_batch}")
    if settings.max_queue < 1:
        raise ArgumentError(f"{what}: max_queue is a number of requests, at least 1, not {settings.max_queue}")
    if not 0 <= settings.wait < math.inf:
        raise ArgumentError(f"{what}: wait is a number of seconds, not {settings.wait}")
    if settings.sla is not None and not 0 < settings.sla < math.inf:
        raise ArgumentError(f"{what}: sla is a positive number of seconds, not {settings.sla}")
    return settings


def token_in(path: Path) -> str:
    """Read the token of the management."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise MissingFileError(f"{path} has no token: {problem}") from None
