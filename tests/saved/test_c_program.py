"""Networks as shared objects for C: programs without Python predict the same to the bit."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.test_record import NETWORKS
from tests.saved.networks import LENET, exported
from tilegrad.__main__ import main
from tilegrad.errors import ArgumentError, CompileError
from tilegrad.foreign import compilers
from tilegrad.saved import c_program
from tilegrad.saved.exported import load_program

pytestmark = pytest.mark.skipif(not compilers.is_available("c"), reason="needs a C compiler")

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "digits.h"

static _Alignas(64) float image[3 * 28 * 28], result[3 * 10];

int main(int count, char **names) {
    void *workspace = aligned_alloc(64, DIGITS_WORKSPACE_BYTES);
    FILE *file = fopen(names[1], "rb");
    if (fread(image, sizeof image, 1, file) != 1) return 9;
    fclose(file);
    int status = digits_run(image, result, workspace);
    for (int n = 0; n < 30; n++) printf("%a\\n", result[n]);
    if (digits_run(image + 1, result, workspace) != DIGITS_UNALIGNED) return 8;
    return count == 2 ? status : 7;
}
"""


def test_a_program_in_c_predicts_the_same(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(LENET)
    tg.manual_seed(0)
    network, x = load_program(tmp_path / "net.txt"), tg.randn(3, 1, 28, 28)
    assert network.save_c(tmp_path / "digits.so", x) == tmp_path / "digits.h"
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "x.bin").write_bytes(x.numpy().tobytes())
    command = compilers.compiler("c").command
    build = [*command, "-std=c11", "-Wall", "-Wextra", "-Werror", "main.c", "./digits.so", "-o", "main"]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(["./main", "x.bin"], cwd=tmp_path, capture_output=True, text=True, check=True, env={})
    with tg.no_grad():
        expected = network(x).numpy().reshape(-1)
    assert [float.fromhex(line) for line in done.stdout.split()] == expected.tolist()
    assert b"libpython" not in (tmp_path / "digits.so").read_bytes()


@pytest.mark.parametrize("name", ["gpt", "gru", "batch norm", "cuts"])
def test_networks_of_all_kinds(name: str, tmp_path: Path) -> None:
    """Results are compared to the bit before a file is written."""
    exported(name).save_c(tmp_path / "net.so", NETWORKS[name][1](3))
    assert (tmp_path / "net.so").exists()
    assert "int net_run(const " in (tmp_path / "net.h").read_text()


def aligned(x: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> tuple[ctypes.c_void_p, object]:
    memory = np.zeros(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + x.nbytes] = x.reshape(-1).view(np.uint8)
    return ctypes.c_void_p(memory.ctypes.data + start), memory


def test_an_index_outside_its_axis_is_told(tmp_path: Path) -> None:
    table = tg.export(tg.nn.Embedding(4, 8).eval(), tg.tensor([0, 1, 2]))
    header = table.save_c(tmp_path / "table.so", tg.tensor([0, 1, 2])).read_text()
    run = ctypes.CDLL(str(tmp_path / "table.so")).table_run
    result, workspace = aligned(np.zeros(24, np.float32)), aligned(np.zeros(1 << 16, np.uint8))
    for indices, status in (([0, 3, 1], 0), ([0, 4, 1], 2), ([3, 3, 3], 0)):
        given = aligned(np.array(indices, np.int64))
        assert run(given[0], result[0], workspace[0]) == status
    assert "TABLE_WRONG_INDEX = 2" in header
    assert "const int64_t *input, float *result, void *workspace" in header


def test_what_c_cannot_hold_is_refused(tmp_path: Path) -> None:
    for name, words in (("writes", "changes its tensors"), ("containers", "is a view of an argument")):
        with pytest.raises(CompileError, match=words):
            exported(name).save_c(tmp_path / "net.so", NETWORKS[name][1](3))
    with pytest.raises(ArgumentError, match="the name of a C function"):
        exported("cuts").save_c(tmp_path / "my net.so", NETWORKS["cuts"][1](3))
    network = tg.export(tg.nn.Linear(2, 2), tg.ones(1, 2))
    with pytest.raises(ArgumentError, match="training mode"):
        network.train().save_c(tmp_path / "net.so", tg.ones(1, 2))
    assert not list(tmp_path.iterdir())


def test_other_results_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds a weight that is off by one bit."""
    weights = c_program._weights

    def damaged(*args: object) -> bytes:
        data = bytearray(weights(*args))  # type: ignore[arg-type]
        data[3] ^= 1
        return bytes(data)

    monkeypatch.setattr(c_program, "_weights", damaged)
    with pytest.raises(CompileError, match="computes other results than tilegrad"):
        exported("batch norm").save_c(tmp_path / "net.so", NETWORKS["batch norm"][1](3))
    assert not list(tmp_path.iterdir())


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.txt").write_text(LENET)
    np.save("x.npy", np.ones((1, 1, 28, 28), np.float32))
    assert main(["export", "net.txt", "net.so", "x.npy", "--c"]) == 0
    assert capsys.readouterr().out == "net.so, net.h\n"
    assert main(["export", "net.txt", "net.so", "--c"]) != 0
    assert "for arrays like the inputs: name some" in capsys.readouterr().err
