"""Everything that a document says to type is typed here."""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents import Block, abridged, blocks, commands, in_a_copy, written
from tests.source import ROOT
from tilegrad import backend
from tilegrad.backend.cuda import nvrtc
from tilegrad.foreign import compilers
from tilegrad.runtime import device as registry

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDED = {
    "a C++ compiler": compilers.is_available,
    "NVRTC": nvrtc.is_available,
    "PyTorch": lambda: importlib.util.find_spec("torch") is not None,
    "the server": lambda: all(map(importlib.util.find_spec, ("uvicorn", "httptools"))),
}
"""Requirements that a document, or one of its blocks, may declare: `<!-- needs NVRTC -->`, `needs PyTorch`."""
SIMULATED = re.compile(r"cuda:\d\d+")
PATIENCE = 120
"""Seconds for a command."""
MAX_COLUMNS = 120
"""Longest line of a document, in characters, outside of tables and fenced blocks."""
MAX_RECORD_LINES = 60
"""Longest decision record, in lines."""
GENERATED = ("docs/performance.md", "docs/reference/")
"""Documents that a tool writes."""


def same(expected: str, actual: str, where: object) -> None:
    checker = doctest.OutputChecker()
    if not checker.check_output(expected + "\n", actual + "\n", OPTIONS):
        example = doctest.Example("", expected + "\n")
        raise AssertionError(f"{where}: {checker.output_difference(example, actual, OPTIONS)}")


def run_python(block: Block, names: dict[str, Any]) -> str:
    """Runs a block, with its lines where the document has them, and returns what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.text.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.text, names, str(block), str(block.path), block.line)
            runner = doctest.DocTestRunner(optionflags=OPTIONS)
            runner.run(test, clear_globs=False)
            names.update(test.globs)
            assert not runner.failures, printed.getvalue()
        else:
            exec(compile("\n" * block.line + block.text, str(block.path), "exec"), names)
    return printed.getvalue()


def run_commands(block: Block, folder: Path, package: Path, update: bool = False) -> str:
    """Types the commands of a block; what it would say if it were written now."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(package), "COLUMNS": "120"}
    environment["TILEGRAD_THREADS"] = "2"  # tiles of matrix products depend on it
    text = block.text
    for command in commands(block):
        done = subprocess.run(
            ["bash", "-c", command.line], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{block}: $ {command.line}\n{done.stdout}{done.stderr}"
        if command.output is not None and update:
            text = text.replace(command.output, now(command.output, done.stdout.strip("\n")))
        elif command.output is not None:
            same(command.output, done.stdout.strip("\n"), block)
    return text


def now(old: str, new: str) -> str:
    """The output to write in place of an old one; the old one, if it still matches."""
    return old if doctest.OutputChecker().check_output(old + "\n", new + "\n", OPTIONS) else abridged(old, new)


def is_lacking(note: str) -> bool:
    """Tell whether a block needs something that is not installed."""
    return note.startswith("needs ") and not NEEDED[note.removeprefix("needs ")]()


def write_file(block: Block, folder: Path) -> None:
    """Writes a block to the file that it names, or adds it to that."""
    name, at_its_end, _ = block.note.partition(", at its end")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.read_text() if at_its_end else ""
    file.write_text(before + block.text)


def copy_of_the_repository(folder: Path) -> None:
    rubbish = shutil.ignore_patterns("__pycache__", "golden", ".*")
    for part in ("tilegrad", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=rubbish)
    shutil.copy(ROOT / "pyproject.toml", folder)


@pytest.mark.checklist(14, 25)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_it_says_to_type(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for need in re.findall(r"^<!-- needs (.+) -->$", path.read_text(), re.MULTILINE):
        if not NEEDED[need]():
            pytest.skip(f"{path.name} needs {need}")
    monkeypatch.chdir(tmp_path)
    # a reader has none of the devices that tests have registered; simulated GPUs are numbered from 50 on
    known = {n: d for n, d in registry._devices.items() if d.kind in backend.kinds() and not SIMULATED.fullmatch(n)}
    monkeypatch.setattr(registry, "_devices", known)
    monkeypatch.setattr(registry, "_kinds", set(registry._kinds))
    update = request.config.getoption("--update-golden")
    if in_a_copy(path):
        copy_of_the_repository(tmp_path)
    names: dict[str, Any] = {"__name__": path.stem}
    printed: str | None = None
    new: dict[int, str] = {}
    for block in blocks(path):
        if block.note.startswith(("skip:", "ci")) or is_lacking(block.note):
            printed = None
        elif block.language == "python" and ".py" in block.note:
            write_file(block, tmp_path)
        elif block.language == "python":
            printed = run_python(block, names)
        elif block.language == "console":
            new[block.line] = run_commands(block, tmp_path, tmp_path if in_a_copy(path) else ROOT, update)
        elif block.language == "text" and block.follows and printed is not None:
            if update:
                new[block.line] = now(block.text.strip("\n"), printed.strip("\n"))
            else:
                same(block.text.strip("\n"), printed.strip("\n"), block)
            printed = None
    if update:
        path.write_text(written(path, new))


def test_what_continuous_integration_types() -> None:
    """A block marked `ci` is typed by .ci/run."""
    typed = (ROOT / ".ci" / "run").read_text()
    for path in DOCUMENTS:
        for block in blocks(path):
            for command in commands(block) if block.note == "ci" else []:
                assert command.line in typed, f"{block}: .ci/run does not type {command.line!r}"


@pytest.mark.checklist(12)
def test_the_comparison_prints_its_numbers() -> None:
    """Every figure about us in docs/comparison.md stands in the output of a block."""
    path = ROOT / "docs" / "comparison.md"
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"\d+(\.\d+)? (times|%)", prose)
    assert any("times the bytes" in block.text for block in blocks(path) if block.language == "text")


@pytest.mark.checklist(144)
def test_the_tour_goes_all_the_way() -> None:
    """The tour covers every stage of `explain`."""
    text = (ROOT / "docs" / "tour.md").read_text()
    words = ("What you type", "graph(x0", "group 0:", "@tg.kernel", "program softmax", "vfmadd", "executable")
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.checklist(202)
def test_every_lab_leads_to_something_that_runs() -> None:
    path = ROOT / "docs" / "learning.md"
    labs = [line.split("|") for line in path.read_text().splitlines() if re.match(r"\| \d\. ", line)]
    assert len(labs) == 7
    for _, title, reading, doing, shown, _ in labs:
        assert "](" in reading, f"{title}: nothing to read"
        number = title.strip().partition(".")[0]
        documents = [path.parent / target for target in re.findall(r"\]\(([^)]+\.md)\)", reading)]
        runs = f"## Lab {number}." in path.read_text() or any(blocks(d) for d in documents)
        assert runs, f"{title}: nothing runs"
        assert all((doing.strip(), shown.strip())), f"{title}: nothing to do"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} points at {target}, which does not exist"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_lines_are_short(path: Path) -> None:
    if path.relative_to(ROOT).as_posix().startswith(GENERATED):
        pytest.skip("a tool writes it")
    prose = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), path.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = enumerate(prose.splitlines(), 1)
    long = [n for n, line in lines if len(line) > MAX_COLUMNS and not line.startswith("|")]
    assert not long, f"{path.name}: lines {long} have more than {MAX_COLUMNS} characters"


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "decisions").glob("0*.md")), ids=lambda p: p.stem)
def test_decision_records_are_short_and_complete(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_RECORD_LINES
    for part in ("Question", "Choice", "Price"):
        assert f"\n**{part}.**" in text, f"{path.name} has no {part}"
    assert f"({path.name}) | {text.partition(chr(10))[0][2:]} |" in (path.parent / "README.md").read_text()


def test_a_new_function_touches_four_files() -> None:
    """Those that the document on adding an op writes and changes; its blocks are executed above."""
    first = (ROOT / "docs" / "adding_an_op.md").read_text().partition("\n## 2.")[0]
    touched = re.findall(r"^(?:```python|\$ sed .*) ((?:tilegrad|tests)/[\w/]+\.py)", first, flags=re.MULTILINE)
    assert 3 <= len(set(touched)) <= 4, sorted(set(touched))
