"""Simulated GPUs for the tests of this folder."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.backend.cuda.simulated import SimulatedDriver
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.queues import here
from tilegrad.lazy.bounded_recording import recorded
from tilegrad.lazy.evaluation import pending
from tilegrad.lazy.handle import written
from tilegrad.random import forget
from tilegrad.runtime import device as registry

_numbers = count(100)
"""Numbers of simulated devices, unique over all tests: programs are cached by device name."""

Maker = Callable[..., list[CudaDevice]]


def forget_recorded() -> None:
    """Forget what a test left to the next evaluation, which is of another test, and may be on a device that is gone."""
    waiting = (written.storages, written.detached, written.initial, pending.differentiated, pending.checks)
    for left in (*waiting, recorded.tensors):
        left.clear()
    recorded.restart(0)


@pytest.fixture
def make_gpus() -> Iterator[Maker]:
    """Create simulated GPUs and register them by name; GPUs of the machine are hidden meanwhile."""
    made: list[str] = []
    hidden = {d.name: registry._devices.pop(d.name) for d in registry.known_devices() if d.name.startswith("cuda")}

    def make(count: int = 1, driver: SimulatedDriver | None = None, **options: int) -> list[CudaDevice]:
        driver = driver or SimulatedDriver(count, **options)
        found = [CudaDevice(driver, next(_numbers)) for _ in range(count)]
        for gpu in found:
            made.append(registry.register(gpu).name)
        return found

    before = here.device
    yield make
    forget_recorded()
    for name in made:
        del registry._devices[name]
        forget(name)
    registry._devices.update(hidden)
    here.device = before


@pytest.fixture
def gpu(make_gpus: Maker) -> CudaDevice:
    return make_gpus()[0]
