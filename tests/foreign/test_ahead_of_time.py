"""`python -m tilegrad build`: a package and a wheel that need no compiler."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.__main__ import main
from tilegrad.errors import DataError, DTypeError

pytestmark = pytest.mark.usefixtures("cpp")

SOURCE = """
#include "factor.h"
// tilegrad: scale(x: F[n], alpha: double = 2) -> F[n]  # x times alpha, times a factor
void scale(const F *x, double alpha, F *out, int64_t n) {
    TG_CHECK(alpha != 0, "alpha is 0");
    for (int64_t i = 0; i < n; ++i) out[i] = F(FACTOR * alpha * x[i]);
}
// tilegrad: pieces(x: float[n]) -> list
tg::List pieces(tg::Tensor x) { return {x, tg::empty_like(x)}; }
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    sources = folder / "scaling"
    sources.mkdir()
    (sources / "scale.cpp").write_text(SOURCE)
    (sources / "factor.h").write_text("#define FACTOR 1\n")
    assert main(["build", str(sources), "--output", str(folder / "dist")]) == 0
    return folder / "dist"


@checklist(18)
def test_the_wheel_is_imported_without_a_compiler(output: Path, tmp_path: Path) -> None:
    (wheel,) = output.glob("scaling-0.1.0-py3-none-*.whl")
    with zipfile.ZipFile(wheel) as file:
        assert file.testzip() is None
        file.extractall(tmp_path)
        rows = file.read("scaling-0.1.0.dist-info/RECORD").decode().splitlines()
    assert {row.split(",")[0] for row in rows} == set(zipfile.ZipFile(wheel).namelist())
    code = (
        "import scaling, tilegrad as tg; x = tg.arange(3); "
        "print(scaling.scale(x.float()).tolist(), scaling.scale(x.double(), alpha=0.5).tolist(), "
        "len(scaling.pieces(x.float()))); print(scaling.scale.__doc__)"
    )
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    environment = {**os.environ, "PYTHONPATH": path, "PATH": "", "TILEGRAD_CACHE": "off"}
    environment.pop("CXX", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[0.0, 2.0, 4.0] [0.0, 0.5, 1.0] 2\n")
    assert "x times alpha, times a factor" in done.stdout


def test_what_cannot_be_loaded_says_why(output: Path, tmp_path: Path) -> None:
    scaling = tg.cpp.load(output / "scaling")
    with pytest.raises(DTypeError, match="scale was built for other dtypes than F = float16"):
        scaling.scale(tg.ones(3).half())
    with pytest.raises(DataError, match="holds no functions that were built"):
        tg.cpp.load(tmp_path)
    listed = json.loads((output / "scaling" / "functions.json").read_text())
    for changes, message in (({"platform": "toaster-1"}, "was built for toaster-1"), ({"abi": 99}, "a newer one")):
        (tmp_path / "functions.json").write_text(json.dumps({**listed, **changes}))
        with pytest.raises(DataError, match=message):
            tg.cpp.load(tmp_path)
    listed["libraries"][0]["sha256"] = "0" * 64
    (tmp_path / "functions.json").write_text(json.dumps(listed))
    (tmp_path / listed["libraries"][0]["file"]).write_bytes(b"not what was built")
    with pytest.raises(DataError, match="is not what was built"):
        tg.cpp.load(tmp_path).scale(tg.ones(3))


WRONG = [
    ("int f(int x) { return x; }", "says which functions it has"),
    ("// tilegrad: f(x: flaot[n]) -> float[n]\n", r"f.cpp:1: there is no dtype flaot"),
    ("// tilegrad: f(x: float[n]) -> float[n]\nvoid g() {}", "no source defines the function f"),
    ("// tilegrad: f(x: float[n]) -> float[n]\nvoid f(float *out) { out[0] = y; }", r"f.cpp:2: error: 'y' was not"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_folders(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.cpp").write_text(text)
    assert main(["build", str(tmp_path), "--name", "wrong", "--output", str(tmp_path / "dist")]) == 1
    assert message.replace("\\", "") in capsys.readouterr().err
