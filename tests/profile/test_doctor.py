"""Findings and advice of the doctor."""

from pathlib import Path

import pytest

from tilegrad import config
from tilegrad.backend.cpu.limits import limits
from tilegrad.profile import doctor


def test_the_limits_are_plausible() -> None:
    found = limits()
    assert 1e9 < found["read"] < 1e13
    assert 1e9 < found["copy"] < 1e13
    assert 1e9 < found["fma_core"] <= found["fma"] * 1.5 < 1e15
    assert found["vector_bits"] in (128, 256, 512)


def test_the_report_names_everything() -> None:
    text = doctor.report()
    for name in ("processor", "vector units", "matrix units", "memory copy", "multiply-add", "disk cache"):
        assert name in text
    assert "GPUs" in text or "cuda:0" in text


@pytest.mark.parametrize(
    "knobs, advice",
    [({"cache": "off"}, "unset TILEGRAD_CACHE"), ({"cache": "/proc/nowhere"}, "set TILEGRAD_CACHE to a folder")],
)
def test_what_is_wrong_comes_with_a_remedy(knobs: dict[str, str], advice: str, tmp_path: Path) -> None:
    with config.changed(**knobs):
        assert advice in doctor.report()
