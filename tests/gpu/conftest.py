"""Tests for a machine with a GPU (`make gpu-test`); not collected elsewhere. The run leaves a record."""

import datetime
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tilegrad import cuda
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.null import NullDriver
from tilegrad.runtime.device import device

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def _present() -> bool:
    return cuda.is_available() and not isinstance(device("cuda:0").driver, NullDriver)  # type: ignore[attr-defined]


PRESENT = _present()
collect_ignore_glob = [] if PRESENT else ["test_*.py"]


@pytest.fixture(scope="session")
def gpu() -> CudaDevice:
    found = device("cuda:0")
    assert isinstance(found, CudaDevice)
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the passed tests, the machine, and the figures that tests recorded."""
    if not PRESENT:
        terminalreporter.write_line("There is no GPU here: nothing was tested.")
        return
    stats = terminalreporter.stats
    reports = [r for kind in ("passed", "failed", "error") for r in stats.get(kind, [])]
    files: dict[str, dict[str, int]] = {}
    for r in reports:
        counted = files.setdefault(_file(r), {"passed": 0, "failed": 0})
        counted[r.outcome] += 1
    found = cuda.get_device_properties()
    date = datetime.date.today().isoformat()
    path = RESULTS / f"{found.name.lower().replace('nvidia ', '').replace(' ', '-')}-tests-{date}.json"
    before = json.loads(path.read_text()) if path.exists() else {"files": {}, "figures": {}, "failures": []}
    files = before["files"] | files  # other files were run before on the same day
    failures = [f for f in before["failures"] if Path(f.partition("::")[0]).stem not in {_file(r) for r in reports}]
    record = {
        "date": date,
        "device": found.name,
        "driver": f"CUDA {found.driver_version // 1000}.{found.driver_version % 1000 // 10}, {_driver()}",
        "python": platform.python_version(),
        "passed": sum(f["passed"] for f in files.values()),
        "failed": sum(f["failed"] for f in files.values()),
        "files": files,
        "failures": failures + sorted(r.nodeid for r in reports if r.outcome == "failed"),
        "figures": before["figures"] | dict(item for r in reports for item in getattr(r, "user_properties", ())),
        "properties": found._asdict(),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    terminalreporter.write_line(f"written to {path}")


def _file(report: Any) -> str:
    return Path(report.nodeid.partition("::")[0]).stem


def _driver() -> str:
    """Return the driver version that nvidia-smi prints."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return "driver " + subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "driver unknown"
