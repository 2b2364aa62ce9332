"""The walks that `tools/walks.py` measures lead through functions that exist."""

import platform
import subprocess
import sys

import pytest

from tests.source import ROOT

MAX_FUNCTIONS = {"exp": 56, "matmul": 57, "kernel": 24}
"""Functions from a line of Python to machine code: a walk that grows longer is harder to follow."""


@pytest.mark.parametrize("walk", MAX_FUNCTIONS)
def test_walks_stay_short(walk: str) -> None:
    if walk == "matmul" and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("AMX is a part of x86 processors")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/walks.py"), walk], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "never called" not in done.stdout, done.stdout
    assert int(done.stdout.split()[1]) <= MAX_FUNCTIONS[walk], done.stdout
