"""Check every access of generated kernels with NVIDIA's sanitizer (`sanitized.py`): out-of-bounds accesses and races.

Unwatched processes compile the kernels before, because the sanitizer blocks NVRTC.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.sanitized import WORKS
from tilegrad import cuda

CODE = str(Path(__file__).with_name("sanitized.py"))
TOOL = shutil.which("compute-sanitizer")
BESIDE = 5
"""Processes that compile concurrently."""
WATCHED = {
    "memcheck": tuple(WORKS),
    "racecheck": ("reductions", "scans", "sorting", "indexing", "products_float32", "products_bfloat16"),
    "synccheck": ("reductions", "scans", "sorting", "products_float32", "products_bfloat16", "attention"),
}
UNABLE = ("Device not supported", "Internal Sanitizer Error", "Unable to find injection library")


@pytest.fixture(scope="module")
def compiled() -> None:
    """Run every program once without the sanitizer, to fill the kernel cache."""
    cuda.empty_cache()
    names = list(WORKS)
    parts = [names[n::BESIDE] for n in range(BESIDE)]
    running = [
        subprocess.Popen([sys.executable, CODE, *part], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for part in parts
    ]
    for process in running:
        said, _ = process.communicate(timeout=150)
        assert process.returncode == 0, said[-3000:]


@pytest.mark.skipif(not TOOL, reason="compute-sanitizer is not here")
@pytest.mark.parametrize("tool", WATCHED)
def test_sanitizer_finds_nothing(tool: str, compiled: None, record_property: Callable[[str, object], None]) -> None:
    wanted = WATCHED[tool]
    command = ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9"]
    command += ["--leak-check=no", "--report-api-errors=no"] if tool == "memcheck" else []
    made = subprocess.run([*command, sys.executable, CODE, *wanted], capture_output=True, text=True, timeout=120)
    said = made.stdout + made.stderr
    for reason in UNABLE:
        if reason in said:
            pytest.skip(f"compute-sanitizer cannot watch here: {reason}")
    done = [name for name in wanted if f"\n{name} " in said]
    record_property(f"compute-sanitizer, {tool}: works watched", len(done))
    assert made.returncode == 0, said[-3000:]
    assert done == list(wanted), said[-3000:]
    assert "ERROR SUMMARY: 0 errors" in said or "RACECHECK SUMMARY: 0 hazards" in said, said[-1000:]
