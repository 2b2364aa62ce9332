"""The simulated accelerator: what it computes, what hiding latency gains, and units that wait for ever."""

import itertools

import numpy as np
import pytest

from examples import accelerator
from tests.checklist import checklist


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    return x, y


@checklist(181)
@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 48, 64), (16, 32, 160)])
def test_more_places_hide_latency(shape: tuple[int, int, int]) -> None:
    x, y = operands(*shape)
    cycles = []
    for places in (1, 2, 3):
        made = accelerator.multiplied(x, y, places)
        np.testing.assert_array_equal(made.result, x.astype(np.int64) @ y.astype(np.int64))
        cycles.append(made.cycles)
        for unit in accelerator.UNITS:  # a unit does one thing at a time, in order
            mine = [d for d in made.history if d.instruction.unit == unit]
            assert all(a.end <= b.start for a, b in itertools.pairwise(mine))
    if shape[2] > 16:
        assert cycles[1] < 0.75 * cycles[0]
    assert cycles == sorted(cycles, reverse=True)


@checklist(181)
def test_what_goes_wrong() -> None:
    x, y = operands(16, 16, 32)
    with pytest.raises(ValueError, match=r"tiles of 16 x 16, and not \(16, 32\) and \(16, 16\)"):
        accelerator.multiplied(x, y[:16], 1)
    listed = list(accelerator.program(1, 1, 2, 1))
    without = [s._replace(tells=()) if s.unit == "load" else s for s in listed]
    with pytest.raises(
        RuntimeError, match=r"every unit waits: load \(0, 0, 1\) for multiply; multiply \(0, 0, 0\) for"
    ):
        accelerator.run(x, y, without)


def test_it_prints_what_it_gains(capsys: pytest.CaptureFixture[str]) -> None:
    accelerator.main()
    printed = capsys.readouterr().out
    assert "1 place: 2716 cycles, 1.00 times as fast" in printed
    assert "2 places: 1864 cycles, 1.46 times as fast" in printed
