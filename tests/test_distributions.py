"""The core, `simt` and `torch` are distributions of their own, made from one repository."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.source import ROOT

PARTS = ("simt", "torch")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of each distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [str(ROOT), *(str(ROOT / "distributions" / part) for part in PARTS)]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), *sources]
    made = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if made.returncode:
        pytest.skip(f"wheels cannot be built here: {made.stderr.splitlines()[-1] if made.stderr else made.returncode}")
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def folders(wheel: Path) -> set[str]:
    """The folders of the package that a wheel has files in."""
    names = [name.split("/") for name in zipfile.ZipFile(wheel).namelist()]
    return {parts[1] for parts in names if parts[0] == "tilegrad" and len(parts) > 2}


def test_each_wheel_has_its_own_folders(wheels: dict[str, Path]) -> None:
    every = {path.name for path in (ROOT / "tilegrad").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders(wheels["tilegrad"]) == every - set(PARTS)
    for part in PARTS:
        assert folders(wheels[f"tilegrad_{part}"]) == {part}


def test_the_core_has_what_the_viewer_shows_pages_with(wheels: dict[str, Path]) -> None:
    names = set(zipfile.ZipFile(wheels["tilegrad"]).namelist())
    assets = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tilegrad" / "viewer" / "assets").iterdir()}
    assert assets <= names


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={"PYTHONPATH": str(folder)}
    )


def test_the_core_runs_without_the_others(wheels: dict[str, Path], tmp_path: Path) -> None:
    zipfile.ZipFile(wheels["tilegrad"]).extractall(tmp_path)
    done = run(tmp_path, "import tilegrad as tg; print(tg.__file__, (tg.ones(2) + 1).sum().item())")
    assert done.stdout.split() == [str(tmp_path / "tilegrad" / "__init__.py"), "4.0"], done.stderr
    for part in PARTS:
        missing = run(tmp_path, f"import tilegrad as tg; tg.{part}")
        assert f"pip install 'tilegrad[{part}]'" in missing.stderr
        zipfile.ZipFile(wheels[f"tilegrad_{part}"]).extractall(tmp_path)
        done = run(tmp_path, f"import tilegrad.{part} as part; print(part.__name__)")
        assert done.stdout.strip() == f"tilegrad.{part}", done.stderr
