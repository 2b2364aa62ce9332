"""Schedule kernels for a GPU and run them on the CPU, for tests on machines without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.lazy import realize
from tilegrad.lazy.known_programs import known
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import TargetModel

GPU = gpu_model(132, 227 << 10)
"""The model of an H200."""


@contextmanager
def scheduled_for(target: TargetModel) -> Iterator[None]:
    """Schedule programs for the CPU with another target model inside the block."""
    own = device("cpu").__dict__
    before = device("cpu").target
    own["target"] = target
    forget()
    try:
        yield
    finally:
        own["target"] = before
        forget()


def forget() -> None:
    """Forgets the programs of tensors that were looked at: they are found by their graphs, whatever the target was."""
    realize._programs.clear()
    realize._numbers.clear()
    known.found.clear()
