"""Select a GPU by number, by name, or per thread; errors where there is none."""

import threading
from functools import partial

import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tilegrad import cuda
from tilegrad.backend.cuda.driver import ILLEGAL_ADDRESS, DriverFault
from tilegrad.errors import ArgumentError, DeviceError


def test_current_device_is_per_thread(make_gpus: Maker) -> None:
    first, second = make_gpus(2)
    with cuda.device(first):
        assert tg.ones(3).cuda().device is first
        with cuda.device(second.name):
            assert cuda.current_device() == second.number
            assert tg.zeros(3, device="cuda").device is second
            assert tg.nn.Linear(2, 2).cuda().weight.device is second
            assert tg.ones(2).to("cuda", non_blocking=True).device is second
        assert tg.rand(3, device="cuda").device is first
        cuda.set_device(second)
        assert tg.ones(3).cuda().device is second
        found: list[object] = []
        thread = threading.Thread(target=lambda: (cuda.set_device(first), found.append(tg.ones(1).cuda().device)))
        thread.start()
        thread.join()
        assert found == [first]
        assert tg.ones(3).cuda().device is second, "other threads choose for themselves"


def test_numbers_and_names(make_gpus: Maker) -> None:
    first, second = make_gpus(2)
    for place in (second, second.name, second.number):
        assert tg.ones(3, device=place).device is second
        assert tg.ones(3).to(place).device is second
        assert tg.ones(3).cuda(place, non_blocking=True).device is second
        assert tg.nn.Linear(2, 2).cuda(place).weight.device is second
    assert tg.device("cuda", first.number) is first
    stats = cuda.memory_stats(second)
    assert stats["allocated_bytes.all.current"] == cuda.memory_allocated(second)


def test_streams_are_set(make_gpus: Maker) -> None:
    (gpu,) = make_gpus(1)
    before, side = cuda.current_stream(gpu), cuda.Stream(gpu)
    with cuda.device(gpu):
        cuda.set_stream(side)
        assert cuda.current_stream(gpu) == side
        cuda.set_stream(before)


def test_a_stream_brings_its_device(make_gpus: Maker) -> None:
    first, second = make_gpus(2)
    side = cuda.Stream(second)
    with cuda.device(first):
        with cuda.stream(side):
            assert tg.ones(3, device="cuda").device is second
            assert cuda.current_stream() == side
        assert tg.ones(3, device="cuda").device is first
        before = cuda.current_stream(second)
        cuda.set_stream(side)
        assert cuda.current_device() == second.number
        cuda.set_stream(before)  # the device is that of before at the end of the block


def test_types_and_numbers(make_gpus: Maker) -> None:
    (gpu,) = make_gpus(1)
    assert (gpu.type, gpu.index) == ("cuda", gpu.number)
    assert (tg.device("cpu").type, tg.device("cpu").index) == ("cpu", None)


def test_external_work_on_a_stream_is_awaited(make_gpus: Maker) -> None:
    """External work is not counted, so an explicit wait is always made."""
    (gpu,) = make_gpus(1)
    side, done = cuda.Stream(gpu), []
    with gpu.entered():
        gpu.driver.put(side.cuda_stream, lambda: done.append(1))  # type: ignore[attr-defined]
    cuda.current_stream(gpu).wait_stream(side)
    cuda.current_stream(gpu).synchronize()
    assert done
    tg.ones(3, device=gpu).record_stream(side)


def test_use_after_fork_is_an_error(make_gpus: Maker) -> None:
    first, second = make_gpus(2)
    tg.ones(3, device=first).realize()
    for gpu in (first, second):  # as in the child: one was used, one only asked for
        gpu._forked()
        for ask in (partial(cuda.mem_get_info, gpu), partial(cuda.Stream, gpu), tg.ones(3, device=gpu).realize):
            with pytest.raises(DeviceError, match="a fork cannot use it: start processes with multiprocessing"):
                ask()


def test_failures_name_their_device(make_gpus: Maker) -> None:
    first, second = make_gpus(2)
    for gpu in (first, second):
        gpu.start()
    first.broken = "the first failed"
    second.queue  # noqa: B018 - enters it
    fault = DriverFault(ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal access", "cuStreamSynchronize")
    assert str(second.driver.explained(fault)).startswith(f"{second.name} failed: an illegal access")


def test_what_is_not_there(make_gpus: Maker) -> None:
    make_gpus(1)
    for ask in (
        lambda: tg.ones(3, device=77),
        lambda: tg.ones(3).to(77),
        lambda: tg.ones(3).cuda("cuda:77"),
        lambda: tg.nn.Linear(2, 2).cuda(77),
        lambda: cuda.set_device(77),
        lambda: cuda.Stream(77),
        lambda: cuda.get_device_properties(77),
        lambda: cuda.device(77).__enter__(),
        lambda: tg.device("cuda", 77),
    ):
        with pytest.raises(DeviceError, match="no device 'cuda:77' here"):
            ask()
    with pytest.raises(ArgumentError, match=r"takes a tilegrad\.cuda\.Stream, not int"), cuda.stream(3):  # type: ignore[arg-type]
        pass
