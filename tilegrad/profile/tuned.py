"""`python -m tilegrad tune SCRIPT`: runs a script, then tunes the kernels of all that it has compiled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import changed, settings
from ..errors import ArgumentError
from ..jitted.function import PreparedProgram
from ..jitted.tuning import SizedProgram, seconds_of, summary, tune_programs
from ..lazy.realize import compiled_programs
from ..runtime.lock import FILE
from .script import run_script


def tune_script(script: Path, arguments: Sequence[str], budget: str, lock: Path | None) -> int:
    """Run a script, tune its kernels and print the results; return the exit status.

    Whoever interrupts the script goes on to tuning what it has compiled by then.
    """
    seconds = seconds_of(budget, "--budget")
    target = lock or _target(script)
    prepared: list[PreparedProgram] = []
    with changed(lock=str(target) if target.is_file() else "off"):
        try:
            status = run_script(script, arguments, prepared.append)
        except KeyboardInterrupt:
            status = 0
            print(f"tilegrad: {script} was interrupted: tuning what it has compiled so far", file=sys.stderr)
        programs = [SizedProgram(p.compiled, p.sizes) for p in prepared]
        programs += [SizedProgram(compiled, {}) for compiled in compiled_programs() if not compiled.program.sizes]
        if not programs:
            raise ArgumentError(f"{script} compiled nothing: there is nothing to tune" + _ended(status))
        tuned = tune_programs(programs, seconds, target)
        print(summary(tuned, seconds))
    return status


def _target(script: Path) -> Path:
    """Choose the file that a run of the script will find."""
    wanted = settings().lock
    if wanted not in ("", "off"):
        return Path(wanted)
    return script.parent / FILE if script.is_file() and not Path(FILE).is_file() else Path(FILE)


def _ended(status: int) -> str:
    return f" (it ended with status {status})" if status else ""
