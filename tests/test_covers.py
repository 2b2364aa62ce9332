"""Every module of the package has a test file of its own name, or a row in `covers.txt` with the one that covers it."""

from pathlib import Path

import pytest

from tests.source import ROOT, imported, module_name
from tools.house import covered, untested

ROWS = covered()


def imports(path: Path) -> set[str]:
    """The modules that a file of tests imports, also through others of the tests."""
    found: set[str] = set()
    stack, seen = [path], {path}
    while stack:
        file = stack.pop()
        found |= imported(file)
        helpers = [ROOT / "tests" / "conftest.py", *(p for p in file.parent.glob("*.py") if _is_mentioned(p, file))]
        stack += [p for p in helpers if p not in seen]
        seen |= {*helpers}
    return found


def _is_mentioned(helper: Path, file: Path) -> bool:
    return not helper.stem.startswith("test_") and module_name(helper) in file.read_text()


def test_every_module_is_covered() -> None:
    missing = [str(path.relative_to(ROOT)) for path in untested()]
    assert not missing, f"name the tests of these in tests/covers.txt (python tools/covers.py): {', '.join(missing)}"


@pytest.mark.parametrize("module", ROWS)
def test_rows(module: str) -> None:
    test = ROOT / ROWS[module]
    assert (ROOT / module).is_file(), f"there is no {module}: python tools/covers.py writes the table anew"
    assert test.is_file(), f"there is no {ROWS[module]}"
    assert not any(True for _ in (ROOT / "tests").rglob(f"test_{Path(module).stem}.py")), "it has tests of its own name"
    assert "def test_" in test.read_text()
    assert imports(test), "the tests import nothing of the package"
