"""Training steps on a simulated GPU, where gradients reuse the memory of the previous step."""

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tests.test_jit_steps import Training, compare, holds_gradients, puts_gradients, reads_gradients_later
from tilegrad.backend.cuda.device import CudaDevice


@pytest.mark.parametrize("meanwhile", [holds_gradients, puts_gradients, reads_gradients_later])
def test_steps_on_a_gpu(gpu: CudaDevice, meanwhile: Callable[[Training, list[Any]], None]) -> None:
    compare(gpu.name, meanwhile)


def test_gradient_memory_is_reused(gpu: CudaDevice) -> None:
    """A step whose gradients are dropped allocates only its loss."""
    training = Training(gpu.name, tg.jit)
    for _ in range(4):
        training.step(training.x, training.y)
    before = [p.grad for p in training.model.parameters()]
    places = [g._value.buffer.address for g in before]
    del before
    training.step(training.x, training.y)
    assert [p.grad._value.buffer.address for p in training.model.parameters()] == places
    held = [p.grad for p in training.model.parameters()]
    training.step(training.x, training.y)
    assert not {p.grad._value.buffer.address for p in training.model.parameters()} & set(places)
    assert all(p.grad is not g for p, g in zip(training.model.parameters(), held, strict=True))
