"""Several GPUs of one machine; skipped if there is only one."""

import time
from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import cuda

pytestmark = pytest.mark.skipif(cuda.device_count() < 2, reason="one GPU")


def test_tensors_move_between_gpus() -> None:
    x = tg.arange(1_000_000, dtype=tg.float32)
    there = (x.to("cuda:0") * 2).to("cuda:1")
    back = (there + 1).to("cuda:0") + x.to("cuda:0")
    np.testing.assert_array_equal(back.cpu().numpy(), x.numpy() * 3 + 1)


def test_each_has_its_own_context_and_memory() -> None:
    assert [cuda.get_device_name(n) for n in range(2)] == [cuda.get_device_name()] * 2
    with cuda.device(1):
        before = cuda.memory_allocated()
        kept = tg.ones(1 << 20, device="cuda:1").realize()
        assert cuda.memory_allocated() - before == 4 << 20
        assert cuda.current_stream().device.name == "cuda:1"
    total = sum((tg.ones(100, device=f"cuda:{n}") * k).sum().item() for n in range(2) for k in range(5))
    assert total == 2 * 100 * 10
    assert kept.sum().item() == 1 << 20


def test_halves_of_a_batch_on_two_gpus() -> None:
    """The gradients of two halves, added on one GPU, equal those of the whole."""
    tg.manual_seed(0)
    model = tg.nn.Linear(20, 5)
    x, t = tg.rand(16, 20), tg.rand(16, 5)
    ((model(x) - t) ** 2).sum().backward()
    assert model.weight.grad is not None
    wanted = model.weight.grad.numpy()
    parts = []
    for n, rows in enumerate((slice(0, 8), slice(8, 16))):
        place = f"cuda:{n}"
        weight = model.weight.detach().to(place).requires_grad_()
        y = x[rows].to(place) @ weight.t() + model.bias.detach().to(place)
        ((y - t[rows].to(place)) ** 2).sum().backward()
        assert weight.grad is not None
        parts.append(weight.grad.to("cuda:0"))
    np.testing.assert_allclose((parts[0] + parts[1]).cpu().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_copies_between_gpus(record_property: Callable[[str, object], None]) -> None:
    x = tg.rand(1 << 28, device="cuda:0").realize()
    y = x.to("cuda:1")
    seconds = []
    for _ in range(3):
        cuda.synchronize(0)
        cuda.synchronize(1)
        start = time.perf_counter()
        y = x.to("cuda:1")
        cuda.synchronize(1)
        seconds.append(time.perf_counter() - start)
    record_property("GB/s between two GPUs", (1 << 30) / min(seconds) / 1e9)
    assert (y[-1000:].cpu() == x[-1000:].cpu()).all()


def test_networks_train_alike_on_each_gpu() -> None:
    """One program, with its own graphs and streams on each GPU, computes equal numbers."""

    def losses(number: int) -> list[float]:
        tg.manual_seed(3)
        with cuda.device(number):
            model = tg.nn.Sequential(tg.nn.Linear(64, 96), tg.nn.ReLU(), tg.nn.Linear(96, 10)).cuda()
            optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            x, t = tg.rand(32, 64).cuda(), tg.randint(0, 10, (32,)).cuda()
            assert x.device.name == model[0].weight.device.name == f"cuda:{number}"

            @tg.jit
            def step() -> tg.Tensor:
                optimizer.zero_grad()
                loss = tg.nn.functional.cross_entropy(model(x), t)
                loss.backward()
                optimizer.step()
                return loss

            with cuda.stream(cuda.Stream()):
                return [step().item() for _ in range(6)]

    first, second = losses(0), losses(1)
    assert first == second
    assert first[-1] < first[0]
