"""Training steps on a simulated GPU, where gradients are written to the memory of those before."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.test_jit_steps import Training, compare, holds_gradients, puts_gradients, reads_gradients_later
from tilegrad.backend.cuda.device import CudaDevice


@pytest.mark.parametrize("meanwhile", [holds_gradients, puts_gradients, reads_gradients_later])
def test_steps_on_a_gpu(gpu: CudaDevice, meanwhile: Callable[[Training, list[Any]], None]) -> None:
    compare(gpu.name, meanwhile)
