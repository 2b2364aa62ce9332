"""The command line, as people type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.viewer.saved import data_alone
from tilegrad.__main__ import main

SCRIPT = """
import sys

import tilegrad as tg


@tg.jit
def weights(scores):
    scaled = scores * 0.5
    return scaled.softmax(1)


print(sys.argv[1:], weights(tg.ones(4, 8))[0, 0].item())
"""


def tilegrad(*arguments: str | Path, folder: Path | None = None, **knobs: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TILEGRAD_") or k == "TILEGRAD_CACHE"}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    command = [sys.executable, "-m", "tilegrad", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment | knobs, timeout=120)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "attention.py"
    path.write_text(SCRIPT)
    return path


def test_help_lists_the_commands() -> None:
    done = tilegrad("--help")
    assert done.returncode == 0
    for command in ("demo", "explain", "tune", "doctor"):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("docter",), "did you mean doctor?"),
        ((), "the following arguments are required: COMMAND"),
        (("demo", "--epochs", "many"), "invalid int value: 'many'"),
        (("demo", "--outptu", "x.html"), "unrecognized arguments: --outptu"),
        (("explain",), "the following arguments are required: SCRIPT"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: tuple[str, ...], words: str) -> None:
    done = tilegrad(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "--help" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--epochs", "0"), "--epochs 0: at least one is needed"),
        (("demo", "--output", "/nowhere/at/all.html"), "there is no folder"),
        (("explain", "nowhere.py"), "there is no script nowhere.py"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(arguments: tuple[str, ...], words: str) -> None:
    done = tilegrad(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_runs_a_script_and_prints_every_stage(script: Path) -> None:
    done = tilegrad("explain", script, "--size", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['--size', '8'] 0.125")
    for stage in ("lines", "graph", "fuse", "kernels", "program", "assembly", "measured"):
        assert f"=== {stage} ===" in done.stdout
    assert "attention.py:9: scaled = scores * 0.5" in done.stdout
    assert "inner loop" in done.stdout


def test_explain_writes_a_page(script: Path, tmp_path: Path) -> None:
    done = tilegrad("explain", "--html", tmp_path / "page.html", script)
    assert done.returncode == 0, done.stderr
    assert "weights: " in done.stdout
    data_alone((tmp_path / "page.html").read_text())


def test_view_runs_a_script_and_shows_its_page(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(script), "--save", str(tmp_path / "page.html")]) == 0
    data_alone((tmp_path / "page.html").read_text())
    shown: list[str] = []
    monkeypatch.setattr(
        "tilegrad.profile.script.view", lambda path, port: shown.append(f"{port} {path.name} {path.exists()}")
    )
    assert main(["view", str(script), "--port", "8123"]) == 0
    assert shown == ["8123 attention.html True"]
    assert main(["view", "nowhere.py"]) == 1
    assert "there is no script nowhere.py" in capsys.readouterr().err


def test_a_script_without_jitted_functions_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("import tilegrad as tg\ntg.ones(3)\n")
    done = tilegrad("explain", path)
    assert done.returncode == 1
    assert "put @tilegrad.jit before the function to explain" in done.stderr


def test_an_edited_kernel_is_used_by_a_script(script: Path, tmp_path: Path) -> None:
    printed = tilegrad("explain", script).stdout
    kernel = printed.split("=== kernels ===\n")[1].split("\n\n")[0]
    assert "tl.exp" in kernel
    file = tmp_path / "kernel.py"
    file.write_text(kernel)
    done = tilegrad("explain", script, TILEGRAD_USE=f"kernel:{file}")
    assert done.returncode == 0, done.stderr
    assert "same results on random inputs" in done.stderr
    file.write_text(kernel.replace("tl.exp", "tl.exp2"))
    done = tilegrad("explain", script, TILEGRAD_USE=f"kernel:{file}")
    assert done.returncode == 1
    assert "does not compute what the kernel does that it should replace" in done.stderr


def test_a_script_is_tuned_and_finds_what_was_settled(script: Path, tmp_path: Path) -> None:
    done = tilegrad("tune", "--budget", "1s", script, "a", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['a'] 0.125\n1 of 1 kernels tuned, ")
    lines = (tmp_path / "kernels.lock").read_text().splitlines()
    assert lines[-1].startswith("mul ")
    assert lines[-2].startswith("[tilegrad ")

    (tmp_path / "kernels.lock").write_text(
        "\n".join([*lines[:-1], re.sub("=.*", "= loop width=3  # by hand", lines[-1])])
    )
    done = tilegrad("explain", script, folder=tmp_path.parent)
    assert f"0 mul  loop width=3 ({tmp_path / 'kernels.lock'}, line {len(lines)}: by hand)" in done.stdout, done.stderr
    assert "for k in range(0, 8, 3)" in done.stdout

    (tmp_path / "kernels.lock").write_text("mul = fast\n")
    done = tilegrad("explain", script, folder=tmp_path.parent)
    assert done.returncode == 1
    assert "kernels.lock, line 1: 'mul = fast'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "soon", "attention.py"), "--budget='soon': a time is wanted, such as '20s', '5m'"),
        (("nothing.py",), "there is no script nothing.py"),
        (("plain.py",), "plain.py compiled nothing: there is nothing to tune"),
    ],
)
def test_what_cannot_be_tuned(script: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "plain.py").write_text("import tilegrad as tg\n")
    done = tilegrad("tune", *arguments, folder=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr


def test_doctor_reports() -> None:
    done = tilegrad("doctor")
    assert done.returncode == 0, done.stderr
    assert "vector units" in done.stdout


def test_a_reader_who_has_enough(script: Path) -> None:
    """`tilegrad explain train.py | head -1` prints no traceback."""
    command = [sys.executable, "-m", "tilegrad", "explain", "--full", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
