"""Define the command line of the load generator: `python -m tilegrad.serve bench`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import TilegradError
from .load_generator import address_of, run_load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load generator; return the exit status: 1 if an answer is wrong, or missing."""
    parser = argparse.ArgumentParser(prog="python -m tilegrad.serve", description="Measure a server.")
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="send requests, verify the answers, show latencies")
    bench.add_argument("url", help="the server: http://127.0.0.1:8000")
    bench.add_argument("model", help="the name of the model")
    bench.add_argument("--connections", type=int, default=32, metavar="N", help="requests at once (default 32)")
    bench.add_argument("--requests", type=int, default=10_000, metavar="N", help="requests in all (default 10,000)")
    bench.add_argument("--rows", type=int, default=1, metavar="N", help="rows of a request (default 1)")
    bench.add_argument("--json", action="store_true", help="send JSON, not binary data")
    options = parser.parse_args(arguments)
    for name in ("connections", "requests", "rows"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is at least 1")
    try:
        report = run_load(
            address_of(options.url, options.model),
            options.requests,
            options.connections,
            rows=options.rows,
            binary=not options.json,
            warm_up=min(options.requests, 10 * options.connections),
        )
    except (TilegradError, OSError) as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    print(report)
    return 0 if not report.wrong and report.statuses.keys() == {200} else 1


if __name__ == "__main__":
    sys.exit(main())
