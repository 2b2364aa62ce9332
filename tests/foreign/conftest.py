"""Tests of foreign code: each has a cache of its own, and skips visibly where there is no compiler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tilegrad import config
from tilegrad.backend.cuda import nvrtc
from tilegrad.foreign import build, compilers


@pytest.fixture
def cpp() -> None:
    if not compilers.is_available():
        pytest.skip("no C++ compiler here: install one, or the wheel ziglang")


@pytest.fixture
def cuda() -> None:
    if not nvrtc.is_available():
        pytest.skip("no NVRTC here: install the wheel nvidia-cuda-nvrtc")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, as a process has it that compiles for the first time."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(build, "_loaded", {})
    with config.changed(cache=str(folder)):
        yield folder / "foreign"
