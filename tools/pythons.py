"""Run the tests with every Python that is installed, each in an environment of its own.

    python tools/pythons.py                 all tests, with each of Python 3.11 to 3.14 that is found
    python tools/pythons.py tests/ir -x     only these, with these options of pytest
    python tools/pythons.py --quick         some tests of every part, with each interpreter but the one that runs this

Interpreters are looked for on the path and in pyenv's and uv's folders. Those that are missing are named; the exit
status is that of the first run that fails.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FOLDERS = (Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python")
QUICK = (
    "tests/ir", "tests/tiles", "tests/runtime/test_programs.py", "tests/test_linalg.py", "tests/test_control.py",
    "tests/nn/test_module.py",
)  # fmt: skip
"""Tests of every part that take seconds: of syntax, frames, reference counts and generated code."""


def works(executable: str, version: str) -> bool:
    """Tell whether an interpreter starts and has the version that its name says."""
    shown = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    return shown.returncode == 0 and shown.stdout.startswith(f"Python {version}.")


def interpreter(version: str) -> str | None:
    """Find an interpreter of a version."""
    named = shutil.which(f"python{version}")
    installed = [str(path) for folder in FOLDERS for path in sorted(folder.glob(f"*/bin/python{version}"))]
    candidates = [sys.executable, *([named] if named else []), *installed]
    return next((path for path in candidates if works(path, version)), None)


def tested(version: str, executable: str, options: list[str]) -> int:
    """Make an environment for an interpreter and run the tests in it."""
    environment = ROOT / f".venv-{version}"
    made = subprocess.run(
        ["make", "-s", f"{environment}/testing", f"PYTHON={executable}", f"VENV={environment}"], cwd=ROOT, check=False
    )
    command = [f"{environment}/bin/python", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *options]
    return made.returncode or subprocess.run(command, cwd=ROOT, check=False).returncode


def main(options: list[str]) -> int:
    status, quick = 0, options[:1] == ["--quick"]
    if quick:
        options = [*QUICK, *options[1:]]
    for version in VERSIONS:
        if quick and version == platform.python_version().rpartition(".")[0]:
            continue
        executable = interpreter(version)
        if executable is None:
            print(f"Python {version} is not installed")
            continue
        print(f"Python {version} ({executable}) on {platform.machine()}", flush=True)
        status = status or tested(version, executable, options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
