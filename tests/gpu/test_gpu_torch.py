"""CUDA extensions on a GPU: the sources that are simulated elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.source import ROOT
from tests.torch.test_cuda_extensions import DECLARED, LAUNCHES, SQUARE
from tilegrad import errors
from tilegrad.foreign import compilers
from tilegrad.torch import digits
from tilegrad.torch.cpp_extension import load_inline

pytestmark = pytest.mark.skipif(not compilers.is_available(), reason="there is no C++ compiler")


@checklist(15, 16, 60, 80, 118, 119)
def test_kernels() -> None:
    names = ["square_matrix", "row_sums", "launch"]
    made = load_inline("squares_on_a_gpu", DECLARED, SQUARE, functions=names, with_cuda=True)
    for shape in ((2, 3), (33, 17), (1000, 1001)):
        x = tg.randn(*shape, device="cuda")
        np.testing.assert_array_equal(made.square_matrix(x).cpu().numpy(), x.cpu().numpy() ** 2)
    for dtype in (tg.float32, tg.float64):
        x = tg.randn(300, 700, dtype=dtype, device="cuda")
        np.testing.assert_allclose(made.row_sums(x).cpu().numpy(), x.cpu().numpy().sum(1), rtol=1e-4, atol=1e-4)
    for launch, message in LAUNCHES.items():
        with pytest.raises(errors.LaunchError, match=message):
            made.launch(tg.zeros(4, device="cuda"), *launch)


@checklist(20, 27)
def test_lab3(tmp_path: Path) -> None:
    digits.write(tmp_path / "data")
    shutil.copytree(ROOT / "examples" / "labs" / "lab3", tmp_path / "lab3")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(folder: Path, *command: str) -> str:
        line = [sys.executable, "-m", "tilegrad.torch", *command]
        made = subprocess.run(line, cwd=folder, capture_output=True, text=True, env=environment)
        assert made.returncode == 0, made.stderr
        return made.stdout

    run(tmp_path / "lab3" / "linear", "setup.py", "-q", "build_ext", "--inplace")
    output = run(tmp_path / "lab3", "mnist.py", "--data", str(tmp_path / "data"), "--epochs", "3")
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", output)]
    assert losses[-1] < 0.3 * losses[0]
