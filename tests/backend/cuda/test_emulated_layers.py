"""Emulate layers of common networks with all gradients as an H200 computes them: one of each kind except convolutions,
in two precisions; the whole table with EVERY=1 (an hour).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.backend.cuda import emulated
from tests.backend.cuda.emulating import EmulatingDriver
from tests.geometries.comparing import ARITHMETICS, faults
from tests.geometries.layers import Attention, Convolution, Transposed
from tests.geometries.table import Case, cases
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.random import forget
from tilegrad.runtime import device as registry

pytestmark = pytest.mark.skipif(not emulated.has_compiler(), reason="no C++ compiler")
MOST, BATCH = 4e6, 1
ALL = cases(MOST, BATCH)
OTHERS = [case for case in ALL if not isinstance(case.layer, Convolution | Transposed)]
KINDS = {type(case.layer): case for case in reversed(OTHERS)}
CHOSEN = ALL if os.environ.get("EVERY") else list(KINDS.values())


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    name = registry.register(CudaDevice(EmulatingDriver(reversed=True), 7000)).name
    yield name
    del registry._devices[name]
    forget(name)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda c: c.name)
def test_layer(case: Case, place: str) -> None:
    others = [name for name in ARITHMETICS if name != "bfloat16"]
    assert not faults(case, ["bfloat16", others[case.number % len(others)]], place)


def test_there_is_one_of_each_kind() -> None:
    assert Attention in KINDS
    assert len(KINDS) >= 4
