"""Profiles on a GPU: every launch has a time, by the GPU's own records where CUPTI is there and allowed."""

import pytest

import tilegrad as tg
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.profiler import profile


def test_launches_of_a_jitted_step_have_times(gpu: CudaDevice) -> None:
    x = tg.rand(256, 256).cuda()
    step = tg.jit(lambda x: (x @ x).relu().sum() + x.softmax(1).max())
    for _ in range(5):
        step(x).item()
    with profile() as p:
        for _ in range(3):
            step(x).item()
    launches = [r for r in p.timeline.launches if r.run is not None]
    assert len(launches) >= 6
    assert all(r.timed and not r.name.endswith("_kernel") for r in launches)
    (clock,) = {r.clock for r in launches}
    if "CUPTI" not in clock.partition(":")[0] or clock.startswith("events"):
        pytest.skip(f"launches are timed by {clock}")
    copies = [r for r in p.timeline.launches if r.run is None and r.name == "copy device to host"]
    assert len(copies) >= 3
    assert "WARNING" not in p.table()
