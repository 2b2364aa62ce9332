"""Edited kernels take the place of generated ones once they have given the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import ArgumentError, KernelError
from tilegrad.profile import explain


def scaled(x: tg.Tensor) -> tg.Tensor:
    return x.exp() * 2.0


def example() -> tg.Tensor:
    return tg.tensor(np.linspace(0, 1, 24, dtype=np.float32), device="reference")


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """A file with the kernel of `scaled`, as it prints."""
    path = tmp_path / "scaled.py"
    path.write_text(explain(scaled, example()).kernels["mul"])
    return path


def run(file: Path | str) -> np.ndarray:
    with config.changed(use=f"kernel:{file}"):
        return np.array(tg.jit(scaled)(example()).tolist())


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


EXPECTED = np.exp(np.linspace(0, 1, 24, dtype=np.float32)) * 2


def test_an_edited_kernel_is_used(printed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    edit(printed, "tl.exp(x0_) * 2.0", "tl.exp(x0_) + tl.exp(x0_)")
    with config.changed(use=f"kernel:{printed}"):
        e = explain(scaled, example())
    assert "tl.exp(x0_) + tl.exp(x0_)" in e.kernels["mul"]
    assert "edited in" in str(e["program"])
    assert f"tilegrad: mul: using {printed} (same results on random inputs)" in capfd.readouterr().err
    np.testing.assert_allclose(run(printed), EXPECTED, rtol=1e-6)


@pytest.mark.parametrize("grid", ["cdiv(24, 8)", "3", "cdiv(24, 8), "])
def test_the_grid_can_be_changed(printed: Path, grid: str) -> None:
    edit(printed, "mul[cdiv(24, 24)]", f"mul[{grid}]")
    edit(printed, "i = tl.arange(0, 24)", "i = tl.program_id(0) * 8 + tl.arange(0, 8)")
    np.testing.assert_allclose(run(printed), EXPECTED, rtol=1e-6)


def test_other_results_are_refused(printed: Path) -> None:
    edit(printed, "* 2.0", "* 2.5")
    with pytest.raises(KernelError, match=r"mul does not compute .* mul_1\[0\] is .* and should be .*24 of 24 differ"):
        run(printed)


def test_a_part_that_is_not_written_is_found(printed: Path) -> None:
    edit(printed, "mul[cdiv(24, 24)]", "mul[cdiv(24, 32)]")
    edit(printed, "tl.arange(0, 24)", "tl.arange(0, 16)")
    with pytest.raises(KernelError, match=r"mul_1\[16\] is .*8 of 24 differ"):
        run(printed)


def test_what_is_out_of_bounds_does_no_harm(printed: Path) -> None:
    edit(printed, "tl.arange(0, 24)", "tl.arange(0, 32)")
    with pytest.raises(KernelError, match="does not compute what the kernel does"):
        run(printed)


def test_other_parameters_are_refused(printed: Path) -> None:
    edit(printed, 'x0: "*f32", ', 'x0: "*f32", n: "i32", ')
    with pytest.raises(KernelError, match='takes .*n: "i32".* keep the parameters, their order and their types'):
        run(printed)


def test_kernels_for_other_shapes_stay(printed: Path) -> None:
    edit(printed, "* 2.0", "* 2.5")
    with config.changed(use=f"kernel:{printed}"):
        other = tg.jit(scaled)(tg.tensor(np.zeros(7, np.float32), device="reference"))
    assert other.tolist() == [2.0] * 7


def test_without_its_launch_line_a_kernel_goes_by_its_parameters(printed: Path) -> None:
    printed.write_text("\n".join(x for x in printed.read_text().split("\n") if not x.startswith("#")))
    edit(printed, "* 2.0", "* 2.5")
    with pytest.raises(KernelError, match="does not compute"):
        run(printed)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("kernel", "TILEGRAD_USE=kernel:FILE"),
        ("graph:x", "only kernels can be replaced"),
        ("kernel:/nowhere/k.py", "the file cannot be read"),
    ],
)
def test_wrong_knobs(use: str, words: str) -> None:
    with config.changed(use=use), pytest.raises(ArgumentError, match=words):
        tg.jit(scaled)(example())


def test_a_file_that_is_no_kernel_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text('def mul(x: "*f32"):\n    y = tl.load(z)\n')
    with pytest.raises(KernelError, match="(?s)wrong.py: kernel mul, line 2"):
        run(path)


def test_a_grid_that_means_nothing_is_refused(printed: Path) -> None:
    edit(printed, "mul[cdiv(24, 24)]", "mul[cdiv(rows, 24)]")
    with pytest.raises(KernelError, match="`rows` in the grid of the launch line is neither a number nor a size"):
        run(printed)
