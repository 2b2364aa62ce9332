"""The tier follows from counts: results are the same to the bit whenever a program runs again."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import CompileError
from tilegrad.first_tier.decision import VALUES_PER_MEETING
from tilegrad.lazy import realize
from tilegrad.lazy.realize import compiled_programs


def compiles(tier: str, rounds: int, length: int) -> list[int]:
    """The programs compiled for each of some equal rounds."""
    counts = []
    x = tg.tensor(np.arange(float(length), dtype=np.float32))
    (x * 3).numpy()  # what was recorded before is computed, and is not counted with the first round
    with config.changed(tier=tier, compile_at=3):
        for n in range(rounds):
            before = len(compiled_programs())
            (x * (2.0 + n) + 1.0).sum().item()
            counts.append(len(compiled_programs()) - before)
    return counts


def test_the_third_meeting_compiles() -> None:
    assert compiles("counted", 5, 211) == [0, 0, 1, 0, 0]


def test_large_structures_wait_longer() -> None:
    """Compiling them costs what many meetings save."""
    x = tg.tensor(np.arange(7.0, dtype=np.float32))
    (x * 3).numpy()
    compiled = []
    with config.changed(tier="counted", compile_at=3):
        for _ in range(7):
            before = len(compiled_programs())
            y = x
            for n in range(5 * VALUES_PER_MEETING):
                y = y.sin() if n % 2 else y.exp()
            y.numpy()
            compiled.append(len(compiled_programs()) - before)
    assert compiled == [0, 0, 0, 0, 1, 0, 0]


def test_the_setting_fixes_the_tier() -> None:
    assert compiles("compiled", 3, 212)[0] == 1
    assert compiles("interpreted", 5, 213) == [0] * 5


def test_jit_compiles_at_its_first_call() -> None:
    with config.changed(tier="interpreted"):
        f = tg.jit(lambda x: (x * 2).sum())
        assert f(tg.ones(5)).item() == 10.0


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The graphs whose compilation was tried, and failed."""
    found: list[object] = []

    def failing(graph: object) -> None:
        found.append(graph)
        raise CompileError("no program today")

    monkeypatch.setattr(realize, "compile", failing)
    return found


def test_what_cannot_be_compiled_goes_on(attempts: list[object], recwarn: pytest.WarningsRecorder) -> None:
    """The error is kept and told once, and compilation is not tried again."""
    x = tg.tensor(np.arange(214, dtype=np.float32))
    (x * 3).numpy()
    with config.changed(tier="counted", compile_at=3):
        sums = [(x * (2.0 + n)).maximum(x).sum().item() for n in range(6)]
        steps = str(tg.explain((x * 2.0).maximum(x).sum()))
    assert sums == [(2 + n) * 213 * 107 for n in range(6)]
    assert [str(w.message).count("CompileError: no program today") for w in recwarn] == [len(attempts)] == [1]
    assert "first tier: it could not be compiled: CompileError: no program today" in steps


def test_a_fixed_tier_does_not_go_on(attempts: list[object]) -> None:
    x = tg.tensor(np.arange(215, dtype=np.float32))
    with config.changed(tier="compiled"), pytest.raises(CompileError, match="no program today"):
        (x * 2.0).minimum(x).sum().item()
    assert len(attempts) == 1


def test_explain_tells_which_tier_runs_what_it_cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(graph: object) -> None:
        raise CompileError("no program today")

    monkeypatch.setattr("tilegrad.compiler.compile", failing)
    x = tg.tensor(np.arange(216, dtype=np.float32))
    with config.changed(tier="counted"), pytest.raises(CompileError) as error:
        tg.explain((x * 2.0).sum())
    assert any("first tier: met 0 times" in note for note in error.value.__notes__)
