"""The first buffers of a process are made in Python; native code makes them when that pays."""

import subprocess
import sys
from unittest import mock

from tilegrad.backend.cpu import first_buffers
from tilegrad.backend.cpu.buffer_factory import buffer_factory
from tilegrad.runtime.device import device

ITEMS = """
import sys
import numpy as np
import tilegrad as tg
x, y = tg.from_numpy(np.arange(16, dtype=np.float32)), tg.zeros(4)
for n in range(100):
    y[n % 4] = x[n % 16] * 2
    x = x * 0.5 + 1
assert x.sum().item() > 0 and y.tolist() == [y[n].item() for n in range(4)]
assert "tilegrad.ops.indexing" not in sys.modules, "items load what picks elements by tensors"
assert not {"llvmlite", "tilegrad.backend.cpu.native"}.intersection(sys.modules), "items load native code"
"""


def test_items_load_no_native_code() -> None:
    subprocess.run([sys.executable, "-c", ITEMS], check=True)


def test_native_code_takes_over() -> None:
    native = type(buffer_factory(device("cpu"), 64)())  # type: ignore[arg-type]
    with (
        mock.patch.object(first_buffers, "NATIVE", "nothing that is loaded"),
        mock.patch.object(first_buffers, "MAX_FIRST_BUFFERS", 2),
        mock.patch.object(first_buffers.FirstBuffers, "count", 0),
    ):
        make = device("cpu").maker(64)
        found = [make() for _ in range(5)]
    assert [type(b) is native for b in found] == [False, False, False, True, True]
    assert len({b.address for b in found}) == 5
    assert type(device("cpu").maker(64)()) is native
