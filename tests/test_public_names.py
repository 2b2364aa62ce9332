"""The public names: `dir` of every public module shows those in public_names.txt, and nothing else."""

from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tools import reference
from tools.stubs import stubs

LIST = Path(__file__).parent / "public_names.txt"
MODULES = (
    *("tilegrad", "tilegrad.amp", "tilegrad.autograd", "tilegrad.cpp", "tilegrad.custom", "tilegrad.data"),
    *("tilegrad.language", "tilegrad.linalg", "tilegrad.nn", "tilegrad.nn.functional", "tilegrad.nn.init"),
    *("tilegrad.nn.models", "tilegrad.nn.utils", "tilegrad.optim", "tilegrad.optim.lr_scheduler"),
    *("tilegrad.optim.swa_utils", "tilegrad.random", "tilegrad.runtime", "tilegrad.serialization"),
)


@cache
def pages() -> dict[Path, str]:
    """Return the pages of the reference as they are now."""
    return reference.pages()


def public_names() -> str:
    """Return the list as it is now: a line per module and name."""
    found = [f"{name}.{x}" for name in MODULES for x in sorted(dir(import_module(name))) if not x.startswith("_")]
    return "\n".join(found) + "\n"


def test_list(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        LIST.write_text(public_names())
    listed, found = set(LIST.read_text().split()), set(public_names().split())
    assert not found - listed, f"new public names: {sorted(found - listed)}; run pytest --update-golden if meant so"
    assert not listed - found, f"public names that are gone: {sorted(listed - found)}; run pytest --update-golden"


@pytest.mark.parametrize("name", MODULES)
def test_all_names_are_there(name: str) -> None:
    module = import_module(name)
    assert sorted(x for x in dir(module) if not x.startswith("_")) == sorted(module.__all__)
    for public in module.__all__:
        getattr(module, public)


def test_stubs_are_as_written() -> None:
    different = [path.name for path, text in stubs().items() if path.read_text() != text]
    assert not different, f"run python tools/stubs.py: {', '.join(different)} would change"


def test_types_are_part_of_the_package() -> None:
    package = Path(import_module("tilegrad").__file__ or "").parent
    assert (package / "py.typed").exists()


@pytest.mark.parametrize("path", sorted(reference.FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_reference_is_as_written(path: Path) -> None:
    assert path.read_text() == pages()[path], f"run python tools/reference.py: {path.name} would change"


def test_reference_has_all_pages() -> None:
    assert set(pages()) == set(reference.FOLDER.glob("*.md"))


def test_reference_tells_differences_from_pytorch() -> None:
    """Each known difference stands with a function, or with those for all functions."""
    text = " ".join("".join(pages().values()).split())
    assert not [str(found) for found in reference.differences() if str(found) not in text]
