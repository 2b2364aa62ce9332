"""`kernels.lock`: what is read, what is refused, and what stays when something is written."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tilegrad import config
from tilegrad.errors import ArgumentError
from tilegrad.runtime import lock
from tilegrad.runtime.choice import chosen, parse_choice
from tilegrad.runtime.lock import Lock, LockEntry, changed_text, keep, lock_of, place, read

TEXT = """\
# ours
[tilegrad 1.0 on toy, 2 threads]
matmul 0123456789ab = m=64 n=32 k=64  # 3 us instead of 4 us
# the next one was tried by hand
exp abcdefabcdef = along width=64

[tilegrad 1.0 on other]
exp abcdefabcdef = across height=8 width=8
"""
PATH = Path("kernels.lock")


def test_what_is_read() -> None:
    sections = read(TEXT, PATH)
    assert list(sections) == [("1.0", "toy, 2 threads"), ("1.0", "other")]
    entry = sections["1.0", "toy, 2 threads"]["0123456789ab"]
    assert entry == LockEntry("matmul", chosen(m=64, n=32, k=64), "3 us instead of 4 us", 3)
    assert sections["1.0", "other"]["abcdefabcdef"].choice == chosen("across", height=8, width=8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("matmul 0123456789ab m=64", "a line is NAME DIGEST = SIZES"),
        ("matmul 01234 = m=64", "a line is NAME DIGEST = SIZES"),
        ("matmul 0123456789ab =", "nothing stands behind the ="),
        ("matmul 0123456789ab = # 3 us", "nothing stands behind the ="),
        ("matmul 0123456789ab = m=0", "'m=0' is no size"),
        ("matmul 0123456789ab = m=-4", "'m=-4' is no size"),
        ("matmul 0123456789ab = m=4.5", "'m=4.5' is no size"),
        ("matmul 0123456789ab = m=4 m=8", "m occurs twice"),
        ("matmul 0123456789ab = m=4 along", "'along' is no size"),
        ("[tilegrad 1.0]", "a section begins with [tilegrad VERSION on MACHINE]"),
        ("exp 0123456789ab = m=4\nexp 0123456789ab = m=8", "line 2 is for the same kernel"),
    ],
)
def test_a_broken_line_is_named(line: str, reason: str) -> None:
    text = f"[tilegrad 1.0 on toy]\n{line}"
    with pytest.raises(ArgumentError, match=re.escape(reason)) as raised:
        read(text, PATH)
    assert f"kernels.lock, line {len(text.splitlines())}: {line.splitlines()[-1]!r}" in str(raised.value)
    assert "Correct the line, or remove it" in str(raised.value)


def test_a_line_without_a_section_is_named() -> None:
    with pytest.raises(ArgumentError, match="line 1.*stands before the first"):
        read("exp 0123456789ab = m=4", PATH)


@pytest.mark.parametrize("text", ["", "m=4 n=8", "across height=3 width=4", "rows"])
def test_choices_are_read_as_they_print(text: str) -> None:
    assert str(parse_choice(text)) == text
    assert parse_choice(text).size("x", 7) == 7


def test_what_is_written_leaves_the_rest() -> None:
    found = {
        "0123456789ab": LockEntry("matmul", chosen(m=8)),
        "ffffffffffff": LockEntry("add", chosen("along", width=4), "1 us"),
    }
    text = changed_text(TEXT, PATH, "1.0", "toy, 2 threads", found)
    assert text == TEXT.replace("m=64 n=32 k=64  # 3 us instead of 4 us", "m=8").replace(
        "along width=64\n", "along width=64\nadd ffffffffffff = along width=4  # 1 us\n"
    )
    again = changed_text(text, PATH, "2.0", "toy", {"0123456789ab": LockEntry("matmul", chosen(m=8))})
    assert again == f"{text}\n[tilegrad 2.0 on toy]\nmatmul 0123456789ab = m=8\n"


def test_a_new_file_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kernels.lock"
    keep(path, "1.0", "toy", {"0123456789ab": LockEntry("matmul", chosen(m=8), "3 us")})
    keep(path, "1.0", "toy", {"0123456789ac": LockEntry("exp", chosen("along", width=8))})
    text = path.read_text()
    assert text.startswith("# The fastest known way")
    assert [e.choice.size("m") for e in read(text, path)["1.0", "toy"].values()] == [8, 1]
    assert list(tmp_path.iterdir()) == [path]


def keep_many(path: Path, begin: Barrier, digit: str) -> None:
    begin.wait(60)
    for n in range(20):
        keep(path, "1.0", "toy", {f"{digit}{n:011}": LockEntry("matmul", chosen(m=8))})


@pytest.mark.skipif(os.name == "nt", reason="a folder cannot be held there")
def test_two_processes_lose_no_line_of_each_other(tmp_path: Path) -> None:
    path, context = tmp_path / "kernels.lock", multiprocessing.get_context("spawn")
    begin = context.Barrier(2)
    writers = [context.Process(target=keep_many, args=(path, begin, digit), daemon=True) for digit in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(read(path.read_text(), path)["1.0", "toy"]) == 40


def test_where_a_folder_cannot_be_held_lines_are_written_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    keep(tmp_path / "kernels.lock", "1.0", "toy", {"0123456789ab": LockEntry("matmul", chosen(m=8))})
    assert "0123456789ab = m=8" in (tmp_path / "kernels.lock").read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and next to it a folder with a script."""
    (tmp_path / "here").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "scripts" / "train.py")])
    return tmp_path


def test_where_it_is_found(folder: Path) -> None:
    beside, here = folder / "scripts" / "kernels.lock", folder / "here" / "kernels.lock"
    assert place() == beside, "where it would be made"
    beside.touch()
    assert place() == beside
    here.touch()
    assert place() == Path("kernels.lock")
    with config.changed(lock=str(beside)):
        assert place() == beside
    with config.changed(lock="off"):
        assert place() is None


def test_a_lock_of_another_machine_or_version_is_ignored_with_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "here" / "kernels.lock"
    path.write_text(TEXT)
    for version, machine in (("1.0", "mine"), ("1.1", "other"), ("1.0", "mine")):
        assert lock_of(version, lambda machine=machine: machine).digest == ""
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"tilegrad: kernels.lock is ignored: it is for tilegrad 1.0 on toy, 2 threads; 1.0 on other; this is {mine}"
        for mine in ("1.0 on mine", "1.1 on other")
    ]
    assert lock_of("1.0", lambda: "other").digest
    assert lock_of("1.0", lambda: "other").digest != lock_of("1.0", lambda: "toy, 2 threads").digest
    assert not capsys.readouterr().err


def test_what_other_versions_write_is_not_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "here" / "kernels.lock"
    path.write_text(TEXT + "[tilegrad 9.0 on other]\nin another way: {m: 3}\n", encoding="utf-8-sig")
    assert lock_of("1.0", lambda: "other").digest
    keep(path, "1.0", "other", {"0123456789ac": LockEntry("add", chosen("along", width=8))})
    text = path.read_text()
    assert (text[:6], text[-23:]) == ("# ours", "in another way: {m: 3}\n")
    with pytest.raises(ArgumentError, match="line 11.*in another way"):
        lock_of("9.0", lambda: "other")
    path.write_text("# nothing is settled\n")
    assert not lock_of("1.0", lambda: "other").digest
    assert not capsys.readouterr().err


def test_a_file_that_is_not_there_or_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []
    assert lock_of("1.0", lambda: str(asked.append(1))) == Lock(folder / "scripts" / "kernels.lock")
    assert not asked, "the machine is not looked at without need"
    assert not capsys.readouterr().err
    with config.changed(lock="missing.lock"):
        lock_of("1.0", lambda: "other")
    assert "missing.lock does not exist" in capsys.readouterr().err
    (folder / "here" / "kernels.lock").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match=r"cannot be read.*TILEGRAD_LOCK=off"):
        lock_of("1.0", lambda: "other")
