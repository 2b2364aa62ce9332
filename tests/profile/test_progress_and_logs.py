"""Long work shows itself on a terminal, and nothing prints elsewhere until it is asked to."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import logging
from tilegrad.errors import ArgumentError
from tilegrad.profile import logs
from tilegrad.runtime import events


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    for name in ("", "compile", "model", "data"):
        logs.logger(name).setLevel(0 if name else 100)
    if logs._state["handler"] is not None:
        logs._root.removeHandler(logs._state["handler"])
        logs._state["handler"] = None
    logs._listen()


def test_progress_is_quiet_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tg.progress(range(5), "epoch")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = tg.progress((n for n in range(3)), "epoch", total=3, show=True)
    for n in shown:
        shown.metrics(loss=tg.tensor(n / 2), note="a\x1b[2Jb")
    text = capsys.readouterr().err
    assert text.endswith("\n")
    assert "epoch  3/3" in text
    assert "loss 1" in text
    assert "a [2Jb" in text, "names cannot clear the screen"
    assert len(tg.progress([1, 2])) == 2


def test_a_loop_that_breaks_off(capsys: pytest.CaptureFixture[str]) -> None:
    for n in tg.progress(range(9), show=True):
        if n == 4:
            break
    assert "4/9" in capsys.readouterr().err
    with pytest.raises(TypeError, match="no length"):
        len(tg.progress(iter([1])))


def test_nothing_is_printed_by_default() -> None:
    code = "import tilegrad as tg; tg.logging.warning('w'); tg.logging.v(1, 'x'); (tg.ones(3) * 2).realize()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


@checklist(78, 102)
def test_levels_by_module(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("warning,model=3")
    logging.info("not this")
    logging.warning("this %d", 7)
    logging.v(3, "verbose", module="model")
    logging.v(4, "too verbose", module="model")
    logging.v(1, "elsewhere", module="data")
    text = capsys.readouterr().err
    assert "this 7" in text
    assert "tilegrad.model] verbose" in text
    assert not any(word in text for word in ("not this", "too verbose", "elsewhere"))


@checklist(78)
def test_flags_of_a_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert logging.flags(["a.py", "--v=9", "--vmodule=data=0", "--rate=1"]) == ["a.py", "--rate=1"]
    logging.v(9, "shown")
    logging.v(1, "hidden", module="data")
    text = capsys.readouterr().err
    assert "shown" in text
    assert "hidden" not in text


def test_compilation_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logging.set_level("debug", "compile")
    (tg.rand(3).realize() * 1.618 + 0.577).exp().realize()
    assert "tilegrad.compile]" in capsys.readouterr().err
    logging.set_level("off", "compile")
    assert logs._on_event not in events.listeners


def test_checks() -> None:
    logging.CHECK(True)
    logging.CHECK_EQ(3, 3)
    logging.CHECK_LE(2, 2)
    with pytest.raises(logging.CheckError, match="CHECK failed: 3 < 2: too large"):
        logging.CHECK_LT(3, 2, "too large")
    with pytest.raises(logging.CheckError, match="gone"):
        logging.fatal("gone")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a level": (lambda: logging.set_level("inof"), "did you mean info"),
    "a number": (lambda: logging.set_level(12), "from 0 to 9"),
    "a flag without value": (lambda: logging.flags(["--v"]), "--v=9"),
    "a level of a module": (lambda: logging.configure("model=loud"), "no level"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    fn, message = WRONG[name]
    with pytest.raises(ArgumentError, match=message):
        fn()


def test_it_is_pythons_logging(tmp_path: Path) -> None:
    import logging as python

    handler = python.FileHandler(tmp_path / "log.txt")
    logs.logger("model").addHandler(handler)
    logs.logger("model").setLevel("INFO")
    logging.info("to a file", module="model")
    logs.logger("model").removeHandler(handler)
    handler.close()
    assert (tmp_path / "log.txt").read_text() == "to a file\n"
