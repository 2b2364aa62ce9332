"""The labs, each copied elsewhere and run there: a custom layer in Python, C++ and CUDA learns what the others do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.source import ROOT
from tilegrad.foreign import compilers
from tilegrad.torch import digits

LABS = ROOT / "examples" / "labs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    digits.write(folder, 384, 60)
    return folder


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "tilegrad.torch", *command]
    made = subprocess.run(line, cwd=folder, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    return made.stdout


def losses(output: str) -> list[float]:
    return [float(x) for x in re.findall(r"loss ([\d.]+)", output)]


@checklist(24)
def test_lab1(tmp_path: Path, data: Path) -> None:
    shutil.copytree(LABS / "lab1", tmp_path / "lab1")
    output = run(tmp_path / "lab1", "mnist.py", "--data", str(data), "--epochs", "1", "--log-interval", "1")
    found = losses(output)
    assert found[-1] < 0.95 * found[0]
    assert "conv2d" in output


@pytest.mark.skipif(not compilers.is_available(), reason="there is no C++ compiler")
@checklist(18, 19, 20, 24, 27, 34, 37, 38, 42, 44)
def test_labs_2_and_3(tmp_path: Path, data: Path) -> None:
    """Built by a setup.py, trained: the same losses in Python, in C++ and in (simulated) CUDA."""
    if tg.cuda.is_available():
        pytest.skip("there is a GPU: nothing is simulated")
    for lab in ("lab2", "lab3"):
        shutil.copytree(LABS / lab, tmp_path / lab)
        run(tmp_path / lab / "linear", "setup.py", "-q", "build_ext", "--inplace")
    options = ("--data", str(data), "--epochs", "1")
    python = losses(run(tmp_path / "lab2", "mnist.py", *options, "--linear", "python"))
    cpp = losses(run(tmp_path / "lab2", "mnist.py", *options, "--linear", "cpp"))
    cuda = losses(run(tmp_path / "lab3", "--simulate", "mnist.py", *options))
    assert len(python) == 2
    assert python[-1] < 0.95 * python[0]
    assert cpp == pytest.approx(python, abs=1e-3)
    assert cuda == pytest.approx(python, abs=1e-3)
