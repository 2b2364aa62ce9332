"""Every knob, read from the environment."""

import os
from pathlib import Path

import pytest

from tilegrad import config
from tilegrad.errors import ArgumentError


def test_every_knob_has_a_text_and_the_defaults_are_valid() -> None:
    assert set(config.ABOUT) == set(config.Config._fields)
    assert config.read({}) == config.Config()
    for knob in config.Config._fields:
        assert f"TILEGRAD_{knob.upper()}" in config.listing()


def test_values_are_read_by_type() -> None:
    read = config.read({"TILEGRAD_CACHE_BYTES": "64M", "TILEGRAD_HUGE_PAGES": "0", "TILEGRAD_USE": "kernel:x.py"})
    assert config.read({"TILEGRAD_CHECK": "race, foreign"}).check == "race,foreign"
    assert (read.cache_bytes, read.huge_pages, read.use) == (64 << 20, False, "kernel:x.py")


@pytest.mark.parametrize(
    "variable, value, message",
    [
        ("TILEGRAD_THREADS", "many", "whole number"),
        ("TILEGRAD_THREADS", "-1", "whole number"),
        ("TILEGRAD_HUGE_PAGES", "maybe", "1 or 0"),
        ("TILEGRAD_CHECK", "kernel", "of division, foreign, kernels, race, some"),
        ("TILEGRAD_CASHE", "x", "did you mean TILEGRAD_CACHE"),
        ("TILEGRAD_", "x", "not a knob"),
    ],
)
def test_a_bad_knob_is_refused_with_a_list_of_all(variable: str, value: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        config.read({variable: value})
    assert "TILEGRAD_SPIN" in str(caught.value)


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"HOME": "/h"}, "/h/.cache/tilegrad"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/tilegrad"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "c"}, "/h/.cache/tilegrad"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/tilegrad"),
        ({"HOME": "h"}, None),
        ({"HOME": "/h", "TILEGRAD_CACHE": "~/c"}, "/h/c"),
        ({"HOME": "/h", "TILEGRAD_CACHE": "off"}, None),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="there are others for this")
def test_the_cache_is_in_no_folder_that_a_process_happens_to_work_in(
    variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    knobs = {name: value for name, value in variables.items() if name.startswith("TILEGRAD_")}
    assert config.read(knobs).cache_folder == (Path(expected) if expected else None)
    monkeypatch.chdir(tmp_path)
    assert config.read({"TILEGRAD_CACHE": "here"}).cache_folder == tmp_path / "here"


def test_zero_turns_the_cache_off_as_other_knobs() -> None:
    assert config.read({"TILEGRAD_CACHE": "0"}).cache_folder is None
    assert config.read({"TILEGRAD_CACHE": "./0"}).cache_folder == Path("0").absolute()


def test_knobs_change_for_a_block() -> None:
    before = config.settings()
    with config.changed(cache="off"):
        assert config.settings().cache_folder is None
    assert config.settings() is before
