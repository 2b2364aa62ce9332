"""Work on the CPU that is cut as for another device: the target model of a GPU where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.lazy import realize
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import Grain, many_small

GPU = many_small(132, 227 << 10)
"""Of an H200."""


@contextmanager
def cut_as(grain: Grain) -> Iterator[None]:
    """Within the block, programs for the CPU are cut as for a device with another grain."""
    own = device("cpu").__dict__
    before = device("cpu").grain
    own["grain"] = grain
    forget()
    try:
        yield
    finally:
        own["grain"] = before
        forget()


def forget() -> None:
    """Forgets the programs of tensors that were looked at: they are found by their graphs, whatever the grain was."""
    realize._programs.clear()
    realize._numbers.clear()
