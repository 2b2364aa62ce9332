"""Recurrent layers as they are for GPUs: in one kernel while that fits, wide ones step by step."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.target_models import GPU, scheduled_for
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.program import Launch

TARGETS = {"sm_90a": GPU, "sm_80": gpu_model(108, 163 << 10), "sm_120": gpu_model(84, 99 << 10)}
"""Models of GPUs with much shared memory, and with little."""
WIDTHS = {"LSTM": (128, 224, 650), "GRU": (100, 256), "RNN": (512,)}


def trained(kind: str, width: int, dtype: str) -> tuple[Any, tg.Tensor]:
    """The states of a layer and all gradients, as a jitted function and what it is given."""
    tg.manual_seed(0)
    layer = getattr(tg.nn, kind)(20, width, batch_first=True).to(getattr(tg, dtype))
    x = tg.randn(3, 4, 20).to(getattr(tg, dtype))
    x.requires_grad = True

    def step(x: tg.Tensor) -> tuple[tg.Tensor, ...]:
        y = layer(x)[0]
        return (y, *tg.autograd.grad(y.square().sum(), (x, *layer.parameters())))

    return tg.jit(step), x


@pytest.mark.parametrize(("kind", "width"), [(kind, width) for kind in WIDTHS for width in WIDTHS[kind]])
def test_every_width_compiles_for_every_gpu_and_is_right(kind: str, width: int) -> None:
    step, x = trained(kind, width, "float32")
    right = [y.detach().numpy() for y in step(x)]
    for architecture, target in TARGETS.items():
        with scheduled_for(target):
            step, x = trained(kind, width, "float32")
            found = [y.detach().numpy() for y in step(x)] if target is GPU else right
            kernels = [s.kernel for s in step.prepared(x).program.compiled.program.steps if isinstance(s, Launch)]
        for one, other in zip(found, right, strict=True):
            np.testing.assert_allclose(one, other, 1e-3, 1e-5 * max(1.0, float(np.abs(other).max())))
        assert any(k.name.startswith("recurrence") for k in kernels) == (width <= 128)
        for kernel in kernels:
            lower(kernel, architecture)


ALL = list(
    itertools.product(WIDTHS, [*range(1, 9), *range(16, 1041, 16), 37, 101, 331, 509, 1021], ["float32", "bfloat16"])
)
CHOSEN = ALL if os.environ.get("EVERY") else ALL[7::97]


@pytest.mark.parametrize(("kind", "width", "dtype"), CHOSEN)
def test_any_width_compiles(kind: str, width: int, dtype: str) -> None:
    """EVERY=1 compiles all of them, also for the GPU with the least shared memory."""
    for architecture, target in list(TARGETS.items())[:: 2 if os.environ.get("EVERY") else 3]:
        with scheduled_for(target):
            step, x = trained(kind, width, dtype)
            steps = step.prepared(x).program.compiled.program.steps
        for kernel in (s.kernel for s in steps if isinstance(s, Launch)):
            assert lower(kernel, architecture).text
