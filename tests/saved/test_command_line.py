"""`tilegrad run` and `tilegrad export`, as people type them."""

from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.saved.networks import LENET
from tilegrad.__main__ import main
from tilegrad.saved.exported import load_program

MODEL = """
import tilegrad as tg

tg.manual_seed(1)
model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Tanh(), tg.nn.Linear(4, 2))


def make():
    return model


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mynet.py").write_text(MODEL)
    (tmp_path / "net.txt").write_text(LENET)
    np.save(tmp_path / "x.npy", np.ones((5, 3), np.float32))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY")
    yield tmp_path
    __import__("sys").modules.pop("mynet", None)


@pytest.mark.parametrize("source", ["mynet.py:model", "mynet:make"])
def test_a_model_is_exported_and_run(source: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", source, "net.tgp", "x.npy", "--dynamic", "input:0=n"]) == 0
    assert capsys.readouterr().out == "net.tgp: 12 values, 4 tensors\n"
    assert main(["run", "net.tgp", "x.npy"]) == 0
    assert capsys.readouterr().out.startswith("float32 [5, 2]\n[[")
    np.save("x.npy", np.ones((7, 3), np.float32))
    assert main(["run", "net.tgp", "x.npy", "--output", "y.npy"]) == 0
    with tg.no_grad():
        assert np.array_equal(np.load("y.npy"), load_program("net.tgp")(np.ones((7, 3), np.float32)).numpy())


def test_programs_and_texts_are_turned_into_each_other(folder: Path) -> None:
    for source, output in (("net.txt", "net.tgp"), ("net.tgp", "again.txt"), ("again.txt", "again.tgp")):
        assert main(["export", source, output]) == 0
    assert str(load_program("again.tgp")) == (folder / "again.txt").read_text()


WRONG = {
    "no program": (["run", "none.tgp"], "there is no file none.tgp"),
    "no input": (["run", "net.txt", "none.npy"], "there is no file none.npy"),
    "a file of objects": (["run", "net.txt", "objects.npy"], "objects.npy holds no array"),
    "a damaged file": (["run", "net.txt", "bad.npy"], "bad.npy holds no array"),
    "another shape": (["run", "net.txt", "x.npy"], "has shape (5, 3); the network takes (n, 1, 28, 28)"),
    "no module": (["export", "none:model", "out.tgp"], "the module none cannot be imported"),
    "no file": (["export", "none.py:model", "out.tgp"], "there is no file none.py"),
    "no network": (["export", "mynet.py:number", "out.tgp", "x.npy"], "number in mynet is int"),
    "a size without an axis": (["export", "mynet.py:model", "out.tgp", "x.npy", "--dynamic", "n"], "input:0=n"),
    "a folder that is not there": (["export", "net.txt", "none/net.tgp"], "cannot be written"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_end_in_one_line(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = WRONG[case]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (folder / "out.tgp").exists()
