"""The models that the package `onnx` brings as files: simple ones, and those that PyTorch's exporter wrote.

All must pass but those in `LEFT_OUT`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.onnx.oracle import Case, outcome
from tilegrad import config

onnx = pytest.importorskip("onnx")

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = ("pytorch-converted", "pytorch-operator", "simple")
LEFT_OUT = {
    "test_gradient_": "training",
    "test_strnorm_": "strings",
}
"""Beginnings of names, and why."""


def read(path: Path) -> Any:
    """Read a tensor, a sequence or nothing."""
    data = path.read_bytes()
    tensor = onnx.TensorProto.FromString(data)
    return onnx.numpy_helper.to_array(tensor)


@cache
def cases(folder: str) -> list[Case]:
    found = []
    for path in sorted((DATA / folder).iterdir()):
        data = []
        for case in sorted(path.glob("test_data_set_*")):
            kinds = [sorted(case.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])) for kind in KINDS]
            data.append(tuple([read(file) for file in files] for files in kinds))
        found.append(Case(path.name, (path / "model.onnx").read_bytes(), data, 1e-3, 1e-5))
    return found


KINDS = ("input", "output")


@pytest.mark.parametrize("folder", FOLDERS)
def test_models(folder: str) -> None:
    wrong = []
    with config.changed(tier="interpreted"), np.errstate(all="ignore"):
        for case in cases(folder):
            text = outcome(case)
            if case.name.startswith(tuple(LEFT_OUT)):
                wrong += [] if text else [f"{case.name} passes"]
            elif text:
                wrong.append(f"{case.name}: {text}")
    assert not wrong, "\n" + "\n".join(wrong)
