"""The planned memory of training steps against PyTorch's. Nothing runs: the null device."""

from __future__ import annotations

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.schedule.programs import given, labels, least_arena, program
from tilegrad import optim
from tilegrad.ir.program import Program
from tilegrad.nn.models import AlexNet

PYTORCH = 785e6
"""Bytes of PyTorch 2.13 for a step of AlexNet at batch 64 by SGD on a CPU: its parameters, and by how much the most
memory that the process ever had (getrusage) grew over two steps."""


def alexnet(batch: int, zero_first: bool) -> Program:
    model = AlexNet().to("null")
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        if zero_first:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if not zero_first:
            optimizer.zero_grad()
        return loss

    return program(step, given(batch, 1, 224, 224), labels(batch))


@pytest.mark.parametrize(("zero_first", "most"), [(True, 0.7), (False, 0.45)])
def test_a_step_of_alexnet_takes_less_than_pytorch(zero_first: bool, most: float) -> None:
    """Also where the gradients are kept until the next step; where they are not, they are never in memory at all."""
    made = alexnet(64, zero_first)
    own = {b.name: int(b.type.bytes) for b in made.buffers if b.role != "temporary" and b.alias is None}
    assert int(made.arena) + sum(own.values()) <= most * PYTORCH
    assert int(made.arena) <= 1.1 * least_arena(made)
