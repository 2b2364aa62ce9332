"""Run the demonstration as a module, as in `python -m tilegrad explain tilegrad.demo`."""

from __future__ import annotations

import sys

from ..__main__ import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
