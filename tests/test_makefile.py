"""The targets that CI and the documents name are in the Makefile."""

import re
import shlex
import shutil
import subprocess

import pytest

from tests.conftest import PEERS
from tests.source import ROOT

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize(
    "line", [x.strip() for x in (ROOT / ".ci/run").read_text().splitlines() if "make" in x.split()]
)
def test_ci_calls_targets_that_exist(line: str) -> None:
    named = [word for word in shlex.split(line)[1:] if "=" not in word]
    assert named
    assert set(named) <= targets()


def test_documents_name_targets_that_exist() -> None:
    named = {
        name for path in DOCUMENTS for name in re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "peers"} <= named <= targets()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_declared_targets_are_those_there_are() -> None:
    (declared,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(declared.split()) == targets()
    shown = subprocess.run(["make", "-n", *declared.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr


def test_peers_have_all_packages_that_tests_compare_with() -> None:
    """Otherwise these tests are skipped everywhere, and nobody sees it."""
    (command,) = re.findall(r"pip install -q (torch.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    (names,) = re.findall(r"\(([a-z|]+)\)", PEERS.pattern)
    assert {name.partition("==")[0] for name in command.split()} == set(names.split("|"))
    assert "make peers" in (ROOT / ".ci/run").read_text()
