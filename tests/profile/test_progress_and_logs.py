"""Long work shows itself on a terminal, and nothing prints elsewhere until it is asked to."""

import io
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import config, logging
from tilegrad.backend.cpu import kernels_ahead
from tilegrad.errors import ArgumentError
from tilegrad.jitted.tuning import ProgressLine
from tilegrad.profile import logs
from tilegrad.runtime import announce, events


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


class Terminal(io.StringIO):
    """An error stream that is a terminal, and tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_long_compilations_show_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal only, and only while they last; a program within is part of what is announced."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(announce, "PATIENCE_S", 0.0)
    with announce.announced("compiling <step> for cpu"), announce.announced("compiling a part"):
        assert screen.written.wait(60)
    assert screen.getvalue().startswith("\r\x1b[Kcompiling <step> for cpu: 0 s")
    assert screen.getvalue().endswith("\r\x1b[K")
    assert "a part" not in screen.getvalue()
    monkeypatch.setattr(announce, "PATIENCE_S", 600.0)
    quick = Terminal()
    monkeypatch.setattr(sys, "stderr", quick)
    (tg.rand(3).realize() * 2.7182 + 0.31).exp().realize()
    assert quick.getvalue() == ""
    assert not announce._busy


class Clock:
    """A clock, and an event that is set after some waits; time passes while somebody waits."""

    def __init__(self, waits: int) -> None:
        self.seconds, self.waits = 100.0, waits

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> bool:
        self.waits -= 1
        self.seconds += seconds
        return self.waits < 0


@pytest.mark.parametrize(
    ("waits", "lines"), [(0, []), (1, [": 0 s"]), (4, [": 0 s", ": 1 s", *[": 2 s, kernel 2 of 9"] * 2])]
)
def test_the_line_tells_time_and_progress(waits: int, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before half a second; then it is renewed in place, and erased in the end."""
    screen, clock, work = Terminal(), Clock(waits), announce.Announcement("compiling p for cpu")
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(announce, "time", clock)
    monkeypatch.setattr(announce, "_busy", [work])
    seen: list[str] = []

    def wait(seconds: float) -> bool:
        done = Clock.wait(clock, seconds)
        if clock.seconds > 101.4:
            announce.note_progress("kernel 2 of 9")
        seen.append(screen.getvalue())
        return done

    announce._show(work, cast(threading.Event, SimpleNamespace(wait=wait)))
    assert announce.PATIENCE_S == 0.5
    assert seen[0] == ""
    shown = [line for line in screen.getvalue().split("\r\x1b[K") if line]
    assert "\n" not in screen.getvalue()
    assert [line.removeprefix("compiling p for cpu") for line in shown] == lines
    assert not lines or screen.getvalue().endswith("\r\x1b[K")


def test_the_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps could not be erased."""
    monkeypatch.setenv("COLUMNS", "30")
    assert len(announce.Announcement("x" * 100).line(1.0)) == 29


def test_a_terminal_that_erases_no_line_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert announce._is_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not announce._is_terminal()
    monkeypatch.setattr(sys, "stderr", None)
    assert not announce._is_terminal()


@pytest.mark.usefixtures("compiled")
def test_a_compilation_tells_how_many_kernels_are_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    monkeypatch.setattr(kernels_ahead, "note_progress", told.append)
    x, y = tg.rand(131, 96).realize(), tg.rand(96, 96).realize()
    told.clear()
    with config.changed(cache=str(tmp_path)):
        ((x.softmax(1) @ y).softmax(1) @ y.T).softmax(1).realize()
    assert "2 kernels left" in told
    assert "1 kernels left" in told
    assert all(text.endswith(" kernels left") for text in told)


def test_tuning_shows_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    line = ProgressLine(20.0)
    line.show("contract: 3 of 12")
    assert re.search(r"\rtuning, \d+ of 20 s: contract: 3 of 12", sys.stderr.getvalue())  # type: ignore[attr-defined]
    line.end()
    assert sys.stderr.getvalue().endswith("\r")  # type: ignore[attr-defined]


def test_a_compilation_announces_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []

    class Noted(announce.Announcement):
        def __init__(self, what: str) -> None:
            super().__init__(what)
            announced.append(what)

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(announce, "Announcement", Noted)
    step = tg.jit(lambda x: x * 1.4142 + 0.2718)
    step(tg.ones(3))
    assert announced
    assert all(text.startswith("compiling ") and text.endswith(" for cpu") for text in announced)


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


@pytest.mark.usefixtures("compiled")
def test_compilation_is_logged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logging.set_level("debug", "compile")
    with config.changed(cache=str(tmp_path)):  # an earlier process may have left the program
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
