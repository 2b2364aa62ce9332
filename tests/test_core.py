"""The core, the files of core.txt, learns to read digits by itself, with everything else removed."""

import re

import pytest

from tools import core

MAX_LINES = 38_000
"""Lines of the core: the aim is 12,000. This bound only goes down."""


def test_lines() -> None:
    count = sum(map(core.lines, core.core()))
    assert count <= MAX_LINES, f"{count} lines: import what the digits do not need when it is first used"


def test_the_core_learns_by_itself() -> None:
    try:
        run = core.run()
    except RuntimeError as problem:
        pytest.fail(f"{problem}\npython tools/core.py --list says which files core.txt lacks")
    accuracy = int(run.output.splitlines()[-1].split(" %")[0])
    assert accuracy >= 90
    unneeded = {path for path in core.core() if path.endswith(".py")} - set(run.loaded)
    assert not unneeded, f"core.txt lists files that it does not need: {sorted(unneeded)}"


def test_the_reading_order_has_the_files_of_the_core() -> None:
    listed = re.findall(r"^- \[[^]]*\]\(\.\./([^)]*)\)", core.READING.read_text(), re.MULTILINE)
    assert listed == core.core(), "run python tools/core.py --write"
