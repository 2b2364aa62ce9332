"""The namespaces: what both have is drawn by a recipe or has a reason, and what is missing here has one."""

from __future__ import annotations

import sys

import pytest

from .names import PACKAGES, functions_of, is_drawn, recorded, split, without_reason


def test_the_recorded_names_are_those_of_pytorch() -> None:
    pytest.importorskip("torch")
    for package in PACKAGES:
        found = sys.modules["torch"]
        for part in package.split(".")[1:]:
            found = getattr(found, part)
        assert set(functions_of(found)) == set(recorded()[package]), f"{package}: python -m tests.operators.names"


def test_every_name_that_both_have_is_drawn() -> None:
    here, _ = split()
    assert len(here) > 1000
    bare, idle = without_reason({name for name in here if not is_drawn(name)}, "not_drawn.txt")
    assert not bare, f"no recipe and no reason: {bare}"
    assert not idle, f"fit nothing: {idle}"


def test_every_name_that_is_missing_has_a_reason() -> None:
    _, missing = split()
    bare, idle = without_reason(missing, "missing.txt")
    assert not bare, f"missing without a reason: {bare}"
    assert not idle, f"fit nothing: {idle}"
