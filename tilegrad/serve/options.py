"""Define the options of `tilegrad serve`; apart from the server, which help and other commands need not load."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the server."""
    add = command.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="net.tgp, net.onnx, NAME=FILE, NAME:VERSION=FILE, or a folder with NAME/VERSION/FILE; its own settings "
        "follow after commas: net.tgp,max_batch=64,wait=0.002,sla=0.05,max_queue=100",
    )
    add("--host", default="127.0.0.1", help="the address to listen at (default 127.0.0.1: this machine alone)")
    add("--port", type=int, default=8000, metavar="N", help="the port to listen at (default 8000; 0: a free one)")
    add(
        "--local-port", type=int, default=0, metavar="N",
        help="with another host: the port of 127.0.0.1 for status, metrics and management (default: a free one)",
    )  # fmt: skip
    add("--max-batch", type=int, default=32, metavar="N", help="rows that run together (default 32; 1: no batches)")
    add("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for more requests (default 0)")
    add("--sla", type=float, metavar="S", help="seconds in which requests are answered, or refused (default: none)")
    add("--max-queue", type=int, default=1024, metavar="N", help="requests that may wait for a model (default 1024)")
    add("--instances", type=int, default=1, metavar="N", help="inferencers of each model (default 1)")
    add("--deadline", type=float, default=60.0, metavar="S", help="seconds after which a request fails (default 60)")
    add("--drain", type=float, default=30.0, metavar="S", help="seconds for requests at the end (default 30)")
    add("--max-body", type=int, default=64, metavar="MB", help="size of a request (default 64)")
    add("--max-connections", type=int, default=1024, metavar="N", help="connections at once (default 1024)")
    add("--token-file", type=Path, metavar="FILE", help="allow management, with the token in this file")
    add("--watch", type=float, metavar="S", help="look for new files this often, and load them")
    add(
        "--log", choices=("events", "requests", "off"), default="events",
        help="JSON lines on standard error: of events, also of each request, or none",
    )  # fmt: skip
