"""The tier follows from counts: results are the same to the bit whenever a program runs again."""

from __future__ import annotations

import numpy as np

import tilegrad as tg
from tilegrad import config
from tilegrad.first_tier.decision import VALUES_PER_MEETING
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
