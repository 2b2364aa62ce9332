import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from tests.serve.models import linear, refusing_negatives
from tilegrad.serve.batching import Batcher, BatchSettings, CallTimes, Inferencer, run_halving
from tilegrad.serve.faults import RequestFault
from tilegrad.serve.metrics import ModelMetrics

PATIENCE = 20.0


class Gated:
    """A model that notes its batches, and waits in each call until it is let go on."""

    def __init__(self, model: Inferencer = linear, is_open: bool = False) -> None:
        self.model = model
        self.batches: list[int] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        if is_open:
            self.gate.set()

    def __call__(self, *inputs: np.ndarray) -> Sequence[np.ndarray]:
        self.batches.append(len(inputs[0]))
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        return self.model(*inputs)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 4), np.float32)


def made(model: Inferencer, batched: bool = True, instances: int = 1, **settings: object) -> Batcher:
    return Batcher([model] * instances, batched, BatchSettings(**settings), ModelMetrics())


async def entered(model: Gated) -> None:
    """Wait until the model is in a call."""
    assert await asyncio.get_running_loop().run_in_executor(None, lambda: model.entered.acquire(timeout=PATIENCE))


def later() -> float:
    return time.monotonic() + PATIENCE


async def queued(batcher: Batcher, count: int) -> None:
    while len(batcher.waiting) < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("sizes", [[1, 1], [3, 1, 2], [1] * 9, [8], [5, 5, 5], [8, 1, 8]])
def test_requests_that_wait_run_together_and_each_gets_its_rows(sizes: list[int]) -> None:
    model = Gated()
    inputs = [rows(n, seed) for seed, n in enumerate([1, *sizes])]

    async def run() -> list[list[np.ndarray]]:
        batcher = made(model, max_batch=8)
        first = asyncio.ensure_future(batcher.run((inputs[0],), later()))
        await entered(model)
        others = [asyncio.ensure_future(batcher.run((x,), later())) for x in inputs[1:]]
        await queued(batcher, len(others))
        model.gate.set()
        results = await asyncio.gather(first, *others)
        await batcher.close()
        assert not batcher.waiting
        assert batcher.waiting_rows == batcher.running == 0
        return results

    for x, found in zip(inputs, asyncio.run(run()), strict=True):
        np.testing.assert_allclose(found[0], linear(x)[0], rtol=1e-6)
    assert model.batches[0] == 1
    assert sum(model.batches) == 1 + sum(sizes)
    assert max(model.batches) <= 8
    if sum(sizes) <= 8:
        assert model.batches == [1, sum(sizes)]


def test_what_comes_at_once_runs_at_once_together() -> None:
    model = Gated(is_open=True)

    async def run() -> None:
        batcher = made(model)
        await asyncio.gather(*(batcher.run((rows(1, n),), later()) for n in range(6)))

    asyncio.run(run())
    assert model.batches == [6]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_only_the_requests_fail_that_must(count: int) -> None:
    for bad in range(2**count):
        requests = [(rows(2, n) * (-1 if bad >> n & 1 else 1),) for n in range(count)]
        results = run_halving(refusing_negatives, requests, True)
        for n, (inputs, found) in enumerate(zip(requests, results, strict=True)):
            if bad >> n & 1:
                assert isinstance(found, ValueError)
            else:
                assert isinstance(found, list)
                np.testing.assert_allclose(found[0], linear(*inputs)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "outputs", [[np.zeros((3, 2))], [np.zeros(())], [np.zeros((5, 2)), np.zeros(1)]], ids=["fewer", "none", "one"]
)
def test_outputs_without_a_row_for_each_row_are_a_failure(outputs: list[np.ndarray]) -> None:
    results = run_halving(lambda x: outputs, [(rows(2),), (rows(3),)], True)
    assert any(isinstance(x, RuntimeError) for x in results)


def test_a_thread_outlives_whatever_ends_a_call() -> None:
    def leaving(x: np.ndarray) -> list[np.ndarray]:
        if x[0, 0] > 1:
            raise SystemExit
        return linear(x)

    async def run() -> None:
        batcher = made(leaving)
        with pytest.raises(RuntimeError, match="SystemExit"):
            await batcher.run((rows(1) + 2,), later())
        assert len(await batcher.run((rows(1),), later())) == 1

    asyncio.run(run())


def test_results_do_not_share_memory_with_the_model() -> None:
    held = np.zeros((1, 3), np.float32)

    def same_memory(x: np.ndarray) -> list[np.ndarray]:
        held[:] = x[0, 0]
        return [held]

    async def run() -> None:
        batcher = made(same_memory, max_batch=1)
        first = await batcher.run((np.full((1, 4), 1, np.float32),), later())
        await batcher.run((np.full((1, 4), 2, np.float32),), later())
        assert first[0][0, 0] == 1

    asyncio.run(run())


def test_other_shapes_run_in_other_batches_and_keep_their_order() -> None:
    model = Gated(lambda x: [x.sum(1)])
    lengths = [4, 5, 4, 5, 6, 4]

    async def run() -> None:
        batcher = made(model)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later()))]
        await entered(model)
        inputs = [np.ones((1, n), np.float32) for n in lengths]
        tasks += [asyncio.ensure_future(batcher.run((x,), later())) for x in inputs]
        await queued(batcher, len(lengths))
        model.gate.set()
        results = await asyncio.gather(*tasks)
        assert [x[0][0] for x in results[1:]] == lengths

    asyncio.run(run())
    assert model.batches == [1, 3, 2, 1]


def test_too_many_requests_are_told_to_come_again() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model, max_queue=2, max_batch=1)
        batcher.times.note(1, 3.0)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later()))]
        await entered(model)
        tasks += [asyncio.ensure_future(batcher.run((rows(1),), later())) for _ in range(2)]
        await queued(batcher, 2)
        with pytest.raises(RequestFault) as problem:
            await batcher.run((rows(1),), later())
        assert problem.value.status == 429
        assert problem.value.retry_after == pytest.approx(9.0)
        model.gate.set()
        await asyncio.gather(*tasks)
        assert len(await batcher.run((rows(1),), later())) == 1, "after that there is room"

    asyncio.run(run())


def test_a_request_that_would_be_late_is_refused_at_once() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model, max_batch=4, sla=1.0)
        batcher.times.note(4, 0.4)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later()))]
        await entered(model)
        tasks.append(asyncio.ensure_future(batcher.run((rows(4),), later())))
        await queued(batcher, 1)
        with pytest.raises(RequestFault) as problem:
            await batcher.run((rows(4),), later())
        assert problem.value.status == 429
        with pytest.raises(RequestFault, match="longer than"):
            await batcher.run((rows(1),), time.monotonic() + 0.1)
        model.gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_batches_stay_so_small_that_the_oldest_is_in_time() -> None:
    batcher = made(linear, max_batch=16, sla=1.0)
    batcher.times = CallTimes()
    for n, seconds in ((1, 0.1), (2, 0.2), (4, 0.4), (8, 0.8), (16, 1.6)):
        batcher.times.note(n, seconds)

    async def run() -> int:
        request = asyncio.get_running_loop().create_future()
        from tilegrad.serve.batching import QueuedRequest

        now = time.monotonic()
        return batcher._rows_in_time(QueuedRequest((rows(1),), 1, (), request, now - 0.5, now + PATIENCE), now)

    assert asyncio.run(run()) == 4


def test_a_deadline_answers_while_the_model_works_on() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model, max_batch=1)
        working = asyncio.ensure_future(batcher.run((rows(1),), time.monotonic() + 0.01))
        waiting = asyncio.ensure_future(batcher.run((rows(1),), time.monotonic() + 0.01))
        for task in (working, waiting):
            with pytest.raises(RequestFault) as problem:
                await task
            assert problem.value.status == 504
        model.gate.set()
        await batcher.close()

    asyncio.run(run())
    assert model.batches == [1], "the one that waited is not run"


def test_a_request_that_is_given_up_is_not_run() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model)
        first = asyncio.ensure_future(batcher.run((rows(1),), later()))
        await entered(model)
        others = [asyncio.ensure_future(batcher.run((rows(1),), later())) for _ in range(3)]
        await queued(batcher, 3)
        others[1].cancel()
        model.gate.set()
        await asyncio.gather(first, others[0], others[2])

    asyncio.run(run())
    assert model.batches == [1, 2]


def test_waiting_for_others_ends_with_a_full_batch() -> None:
    model = Gated(is_open=True)

    async def run() -> None:
        batcher = made(model, max_batch=4, wait=PATIENCE)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later() + PATIENCE)) for _ in range(3)]
        await queued(batcher, 3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not model.batches
        tasks.append(asyncio.ensure_future(batcher.run((rows(1),), later() + PATIENCE)))
        await asyncio.gather(*tasks)
        assert model.batches == [4]
        last = asyncio.ensure_future(batcher.run((rows(1),), later() + PATIENCE))
        await queued(batcher, 1)
        await batcher.close()
        await last

    asyncio.run(run())
    assert model.batches == [4, 1], "closing waits for nobody"


def test_waiting_for_others_ends_after_its_time() -> None:
    model = Gated(is_open=True)

    async def run() -> None:
        batcher = made(model, max_batch=4, wait=0.01)
        await asyncio.gather(*(batcher.run((rows(1),), later()) for _ in range(3)))

    asyncio.run(run())
    assert model.batches == [3]


def test_inferencers_work_at_the_same_time() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model, instances=2, max_batch=1)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later())) for _ in range(2)]
        await entered(model)
        await entered(model)
        assert not batcher.idle
        model.gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_closing_answers_what_waits_and_refuses_what_comes() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later()))]
        await entered(model)
        tasks.append(asyncio.ensure_future(batcher.run((rows(1),), later())))
        await queued(batcher, 1)
        closing = asyncio.ensure_future(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(RequestFault) as problem:
            await batcher.run((rows(1),), later())
        assert problem.value.status == 503
        model.gate.set()
        await asyncio.gather(closing, *tasks)

    asyncio.run(run())


def test_closing_waits_only_for_so_long() -> None:
    model = Gated()

    async def run() -> None:
        batcher = made(model, max_batch=1)
        tasks = [asyncio.ensure_future(batcher.run((rows(1),), later()))]
        await entered(model)
        tasks.append(asyncio.ensure_future(batcher.run((rows(1),), later())))
        await queued(batcher, 1)
        await batcher.close(0.01)
        with pytest.raises(RequestFault, match="ended first"):
            await tasks[1]
        model.gate.set()
        await tasks[0]

    asyncio.run(run())


def test_times_are_estimated() -> None:
    times = CallTimes()
    assert times.estimate(8) == 0
    times.note(4, 0.1)
    assert times.estimate(4) == times.estimate(1) == 0.1
    assert times.estimate(16) == pytest.approx(0.4)
    times.note(4, 0.9)
    assert times.estimate(4) == pytest.approx(0.2)
